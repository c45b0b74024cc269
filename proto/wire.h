// Reads and writes the messages of the data plane without copying their bulk bytes; free of gRPC.
//
// A received message is a list of memory fragments (the slices of a gRPC ByteBuffer). Parse* walks
// the outer fields only: the header submessage goes to generated code, each bulk field becomes a
// FragmentRange that points into the fragments. Parse* accepts the messages that protobuf accepts,
// with fields in any order, except for two differences: a bulk field that occurs twice is refused
// (protobuf takes the last), and unknown fields are skipped, not kept. Malformed input gives
// InvalidArgument. Views point into the fragments, which must outlive them.
//
// A sender writes [header field][bulk tag and length] into one small buffer, then adds the payload
// as slices of its own:
//
//   std::string head;
//   AppendHeaderField(header, &head);
//   AppendBulkTag(v1::PullReply::kRowsFieldNumber, rows_bytes, &head);
//   // then rows_bytes of payload
//
// All functions are thread-safe; FragmentReader and WireScratch are thread-compatible.
#ifndef HOTBED_PROTO_WIRE_H_
#define HOTBED_PROTO_WIRE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "proto/data.pb.h"
#include "proto/replica.pb.h"

namespace hotbed {

constexpr uint32_t kWireVersion = 2;
// 2: holds replicas of shards, and gives them to others.
constexpr uint32_t kFeatureLevel = 2;

using Fragment = absl::Span<const uint8_t>;
using Fragments = absl::Span<const Fragment>;

// `bytes` bytes from `offset` of fragment number `fragment` on, continuing in the next fragments.
struct FragmentRange {
  size_t fragment = 0;
  size_t offset = 0;
  uint64_t bytes = 0;    // 0 when the field is absent or empty
  bool present = false;  // the field occurs in the message
};

struct PullRequestView {
  v1::PullHeader header;
  FragmentRange ids;
  FragmentRange lengths;
  FragmentRange weights;
};
struct PullReplyView {
  v1::ReplyHeader header;
  FragmentRange rows;
  FragmentRange flags;
  FragmentRange arg_max;
};
struct PushRequestView {
  v1::PushHeader header;
  FragmentRange ids;
  FragmentRange gradients;
};
struct TransferView {
  v1::TransferHeader header;
  FragmentRange body;
};

// Overwrites the whole view; a reused view keeps its header's memory. InvalidArgument names the
// message, the error and its byte; the view is then unspecified.
absl::Status ParsePullRequest(Fragments message, PullRequestView* view);
// Also reads a PushReply, which has nothing but the header.
absl::Status ParsePullReply(Fragments message, PullReplyView* view);
absl::Status ParsePushRequest(Fragments message, PushRequestView* view);
absl::Status ParseTransferMessage(Fragments message, TransferView* view);

// Memory for values that must be made contiguous; it has to outlive the work that points into it.
// Addresses stay valid until Clear.
class WireScratch {
 public:
  uint8_t* Allocate(size_t bytes);  // aligned to 16 bytes
  void Clear();                     // keeps the newest block for reuse

 private:
  struct Block {
    std::unique_ptr<uint8_t[]> memory;
    size_t size = 0;
  };
  std::vector<Block> blocks_;
  size_t used_ = 0;  // of the newest block
};

// Reads a bulk field from its beginning. The range must come from a Parse* of the same fragments.
// Asking for more than left() is a programming error (checked): compare with the header's counts
// first.
class FragmentReader {
 public:
  FragmentReader(Fragments fragments, const FragmentRange& range);

  uint64_t left() const { return left_; }
  void CopyTo(void* to, size_t bytes);
  void Skip(uint64_t bytes);
  // The next `bytes` contiguous and aligned to `alignment` (a power of two, at most 16): in place
  // if they already are, else copied into scratch. Never null, even for 0 bytes.
  const uint8_t* Contiguous(size_t bytes, size_t alignment, WireScratch* scratch);
  // One pointer per row for the next `rows` rows, unaligned; only rows that straddle fragments are
  // copied into scratch.
  void RowPointers(size_t row_bytes, size_t rows, const uint8_t** out, WireScratch* scratch);

 private:
  size_t LeftHere() const;     // of the range, in the current fragment
  void Advance(size_t bytes);  // inside the current fragment
  void SkipEmptyFragments();

  Fragments fragments_;
  size_t fragment_;
  size_t offset_;
  uint64_t left_;
};

// The number of bytes that the functions below append, for sizing a buffer exactly. Each updates
// the header's cached sizes.
size_t HeaderFieldBytes(const google::protobuf::MessageLite& header);
size_t BulkTagBytes(int field, uint64_t payload_bytes);

// Writes the header as field 1 of its message: HeaderFieldBytes bytes, for which `to` must have
// space. Returns the end. Write* relies on a preceding HeaderFieldBytes of the unchanged header.
uint8_t* WriteHeaderField(const google::protobuf::MessageLite& header, uint8_t* to);
void AppendHeaderField(const google::protobuf::MessageLite& header, std::string* out);

// Writes tag and length of a bulk field; its payload follows.
uint8_t* WriteBulkTag(int field, uint64_t payload_bytes, uint8_t* to);
void AppendBulkTag(int field, uint64_t payload_bytes, std::string* out);

}  // namespace hotbed

#endif  // HOTBED_PROTO_WIRE_H_
