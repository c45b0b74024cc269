// The newest segment of the log, open for writing: appends, takes failed appends out again, and
// sets disk space aside ahead of them.
//
// Belongs to the log's current writer (log_writer.h); not thread-safe. Errors are the file's.
#ifndef HOTBED_SERVER_SHARD_LOG_NEWEST_SEGMENT_H_
#define HOTBED_SERVER_SHARD_LOG_NEWEST_SEGMENT_H_

#include <sys/uio.h>

#include <cstdint>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "common/files/file_system.h"
#include "server/shard_log/segment_format.h"

namespace hotbed {

// Into a file that holds nothing, or nothing that counts; synced if `sync`.
absl::Status WriteSegmentHeader(const SegmentHeader& header, bool sync, WritableFile* file);

class NewestSegment {
 public:
  NewestSegment() = default;
  // `bytes`: whole records and the header, which the file holds; other bytes may follow if it is
  // `reused`. `bytes_max`: no disk space is set aside beyond this size.
  NewestSegment(std::unique_ptr<WritableFile> file, uint64_t bytes, uint64_t bytes_max,
                bool reused = false)
      : file_(std::move(file)),
        bytes_(bytes),
        bytes_max_(bytes_max),
        reused_(reused),
        expected_bytes_(reused ? bytes_max : 0) {}

  // Bytes of the records that count, and of the header.
  uint64_t bytes() const { return bytes_; }
  uint64_t bytes_max() const { return bytes_max_; }

  // Appends `pieces`, `bytes` in all. They count once Keep has been called.
  absl::Status Append(absl::Span<const iovec> pieces, uint64_t bytes);
  void Keep(uint64_t bytes) { bytes_ += bytes; }
  // Takes everything out that does not count.
  absl::Status CutBack() { return file_->Truncate(bytes_); }
  // Takes out what a reused file had before, if it is one.
  absl::Status End() { return reused_ ? CutBack() : absl::OkStatus(); }
  absl::Status Sync() { return file_->Sync(); }
  // Writes some bytes and takes them out again: OK if the disk accepts writes.
  absl::Status Probe();

 private:
  void ExpectAppends(uint64_t bytes);

  std::unique_ptr<WritableFile> file_;
  uint64_t bytes_ = 0;
  uint64_t bytes_max_ = 0;
  bool reused_ = false;
  uint64_t expected_bytes_ = 0;  // the size that the file system has been told to expect
};

}  // namespace hotbed

#endif  // HOTBED_SERVER_SHARD_LOG_NEWEST_SEGMENT_H_
