// Lays out the records of one write: a single one as such, several as a record group. The pieces
// point into the appends and into this object. Thread-compatible; keeps its memory.
#ifndef HOTBED_SERVER_SHARD_LOG_RUN_LAYOUT_H_
#define HOTBED_SERVER_SHARD_LOG_RUN_LAYOUT_H_

#include <sys/uio.h>

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "server/shard_log/record_group.h"
#include "server/shard_log/segment_format.h"
#include "server/shard_log/shard_log.h"

namespace hotbed {

class RunLayout {
 public:
  // The plain CRC32C of an append's ids, gradients and padding.
  static uint32_t PayloadCrc(const LogAppend& append);

  // Replaces what was laid out before. `run`: prepared appends, at least one.
  void LayOut(absl::Span<LogAppend* const> run, const RecordOrigin& origin);

  absl::Span<const iovec> pieces() const { return pieces_; }
  uint64_t bytes() const { return bytes_; }
  uint32_t header_crc() const { return header_crc_; }  // of the record or group, as stored

 private:
  void LayOutRecord(const LogAppend& append, const RecordOrigin& origin);
  void LayOutGroup(absl::Span<LogAppend* const> run, const RecordOrigin& origin);
  void Add(const void* data, uint64_t bytes);
  void AddIds(const LogAppend& append);
  void AddGradients(const LogAppend& append);

  char record_header_[kRecordHeaderBytes];
  GroupTable table_;
  std::vector<iovec> pieces_;
  uint64_t bytes_ = 0;
  uint32_t header_crc_ = 0;
};

}  // namespace hotbed

#endif  // HOTBED_SERVER_SHARD_LOG_RUN_LAYOUT_H_
