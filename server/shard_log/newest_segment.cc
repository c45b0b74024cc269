#include "server/shard_log/newest_segment.h"

#include <algorithm>
#include <string>

#include "common/status_macros.h"

namespace hotbed {
namespace {

// Disk space is set aside in steps of this, which is cheaper than block by block (1.17 times the
// rate on ext4), and little compared with the space that a disk must have left for a log to grow.
constexpr uint64_t kExpectBytes = 16ull << 20;
// Probe believes in free space when it could write this much.
constexpr size_t kProbeBytes = 1 << 20;

}  // namespace

absl::Status WriteSegmentHeader(const SegmentHeader& header, bool sync, WritableFile* file) {
  std::string bytes = EncodeSegmentHeader(header);
  const iovec piece = {bytes.data(), bytes.size()};
  HOTBED_RETURN_IF_ERROR(file->Append({&piece, 1}));
  return sync ? file->Sync() : absl::OkStatus();
}

absl::Status NewestSegment::Append(absl::Span<const iovec> pieces, uint64_t bytes) {
  ExpectAppends(bytes);
  return file_->Append(pieces);
}

void NewestSegment::ExpectAppends(uint64_t bytes) {
  const uint64_t end = bytes_ + bytes;
  if (end <= expected_bytes_ || end > bytes_max_) return;
  expected_bytes_ = std::min(std::max(end, bytes_ + kExpectBytes), bytes_max_);
  file_->ExpectAppends(expected_bytes_ - bytes_);
}

// If the process is killed here, recovery takes zeros at the end of the newest segment for a torn
// record.
absl::Status NewestSegment::Probe() {
  const std::string zeros(kProbeBytes, '\0');
  const iovec piece = {const_cast<char*>(zeros.data()), zeros.size()};
  const absl::Status written = file_->Append({&piece, 1});
  HOTBED_RETURN_IF_ERROR(CutBack());
  HOTBED_RETURN_IF_ERROR(Sync());
  return written;
}

}  // namespace hotbed
