#include "client/net/grpc_message.h"

#include <numeric>
#include <utility>

#include "absl/container/inlined_vector.h"
#include "absl/strings/str_cat.h"
#include "proto/segments.h"

namespace hotbed {
namespace {

void ReleaseBuffer(void* buffer) { BufferRef::Adopt(buffer); }

}  // namespace

grpc::ByteBuffer ToByteBuffer(const std::string& prefix, OutgoingMessage message) {
  std::string head;
  AppendBulkTag(v1::PullRequest::kHeaderFieldNumber, prefix.size() + message.header.size(), &head);
  head += prefix;
  head += message.header;
  absl::InlinedVector<grpc::Slice, 8> slices;
  for (OutgoingMessage::Bulk& bulk : message.bulk) {
    uint64_t bytes = 0;
    for (const BytesRef& piece : bulk.pieces) bytes += piece.size;
    AppendBulkTag(static_cast<int>(bulk.field), bytes, &head);
    slices.emplace_back(head);
    head.clear();
    for (BytesRef& piece : bulk.pieces) {
      slices.emplace_back(const_cast<char*>(piece.data), piece.size, ReleaseBuffer,
                          piece.owner.Release());
    }
  }
  if (!head.empty()) slices.emplace_back(head);
  return grpc::ByteBuffer(slices.data(), slices.size());
}

absl::Status ReceivedMessage::Parse(const grpc::ByteBuffer& buffer) {
  slices_.clear();
  const grpc::Status dumped = buffer.Dump(&slices_);
  if (!dumped.ok()) return absl::InternalError(dumped.error_message());
  fragments_.clear();
  for (const grpc::Slice& slice : slices_) fragments_.emplace_back(slice.begin(), slice.size());
  return ParsePullReply(fragments_, &view_);
}

ServerReply ReceivedMessage::reply(uint64_t row_bytes) const {
  const v1::ReplyHeader& header = view_.header;
  if (header.row_bytes_size() > 0) {
    row_bytes = std::accumulate(header.row_bytes().begin(), header.row_bytes().end(), uint64_t{0});
  }
  const bool whole = IsWhole(header) && (header.code() != v1::OK || row_bytes == view_.rows.bytes);
  return {fragments_, &view_, 0, header.segments(), 0, whole};
}

absl::Status StatusOfServer(const grpc::Status& status, const std::string& address) {
  if (status.ok()) {
    return absl::UnavailableError(absl::StrCat("server ", address, " ended the stream"));
  }
  return absl::Status(static_cast<absl::StatusCode>(status.error_code()),
                      absl::StrCat("server ", address, ": ", status.error_message()));
}

}  // namespace hotbed
