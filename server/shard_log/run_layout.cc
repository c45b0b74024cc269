#include "server/shard_log/run_layout.h"

#include "common/files/crc32c.h"

namespace hotbed {
namespace {

// Calls visit(rows, bytes) for the gradient rows, with those that lie together as one.
template <typename Visit>
void ForGradients(const LogAppend& append, const Visit& visit) {
  const uint32_t count = append.header.id_count;
  const uint64_t row_bytes = GradientRowBytes(append.header);
  for (uint32_t i = 0; row_bytes > 0 && i < count;) {
    uint32_t end = i + 1;
    while (end < count && append.gradients[end] == append.gradients[end - 1] + row_bytes) ++end;
    visit(append.gradients[i], (end - i) * row_bytes);
    i = end;
  }
}

uint64_t PaddingOf(const RecordHeader& header) {
  return RecordBytes(header) - kRecordHeaderBytes - 8ull * header.id_count - GradientBytes(header);
}

}  // namespace

uint32_t RunLayout::PayloadCrc(const LogAppend& append) {
  if (!append.encoded.empty()) return RecordPayloadCrc(append.encoded.data());
  uint32_t crc = Crc32c(append.ids, 8ull * append.header.id_count);
  ForGradients(append, [&](const void* rows, uint64_t bytes) { crc = Crc32c(rows, bytes, crc); });
  return Crc32c(kPadding, PaddingOf(append.header), crc);
}

void RunLayout::LayOut(absl::Span<LogAppend* const> run, const RecordOrigin& origin) {
  pieces_.clear();
  if (run.size() == 1) {
    LayOutRecord(*run[0], origin);
  } else {
    LayOutGroup(run, origin);
  }
}

void RunLayout::LayOutRecord(const LogAppend& append, const RecordOrigin& origin) {
  if (append.encoded.empty()) {
    EncodeRecordHeader(append.header, append.queued.payload_crc, origin, record_header_);
  } else {
    ResealRecordHeader(append.encoded.data(), origin, record_header_);
  }
  Add(record_header_, kRecordHeaderBytes);
  AddIds(append);
  AddGradients(append);
  Add(kPadding, PaddingOf(append.header));
  bytes_ = append.queued.bytes;
  header_crc_ = RecordHeaderCrc(record_header_);
}

void RunLayout::LayOutGroup(absl::Span<LogAppend* const> run, const RecordOrigin& origin) {
  table_.Clear();
  for (const LogAppend* append : run) table_.Add(append->header, append->queued.payload_crc);
  const absl::Span<const char> head = table_.Seal(origin);
  Add(head.data(), head.size());
  for (const LogAppend* append : run) AddIds(*append);
  for (const LogAppend* append : run) AddGradients(*append);
  Add(kPadding, table_.padding());
  bytes_ = table_.length();
  header_crc_ = table_.header_crc();
}

// The ids of a message lie together as a rule, and its gradients too: then they are one piece each.
void RunLayout::Add(const void* data, uint64_t bytes) {
  if (bytes == 0) return;
  if (!pieces_.empty()) {
    iovec& last = pieces_.back();
    if (static_cast<const char*>(last.iov_base) + last.iov_len == data) {
      last.iov_len += bytes;
      return;
    }
  }
  pieces_.push_back({const_cast<void*>(data), bytes});
}

void RunLayout::AddIds(const LogAppend& append) {
  const void* const ids = append.encoded.empty() ? static_cast<const void*>(append.ids)
                                                 : append.encoded.data() + kRecordHeaderBytes;
  Add(ids, 8ull * append.header.id_count);
}

void RunLayout::AddGradients(const LogAppend& append) {
  if (append.encoded.empty()) {
    ForGradients(append, [this](const void* rows, uint64_t bytes) { Add(rows, bytes); });
  } else {
    Add(append.encoded.data() + kRecordHeaderBytes + 8ull * append.header.id_count,
        GradientBytes(append.header));
  }
}

}  // namespace hotbed
