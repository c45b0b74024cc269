// The transfers of snapshots as a host reports them, and the limits that it is given.
#ifndef HOTBED_SERVER_HOST_TRANSFER_TRANSFER_PROGRESS_H_
#define HOTBED_SERVER_HOST_TRANSFER_TRANSFER_PROGRESS_H_

#include <cstdint>

#include "common/ids.h"
#include "common/tables/shard_record.h"

namespace hotbed {

struct TransferProgress {
  ShardId shard;
  Member to;
  uint64_t bytes_copied = 0;
  uint64_t bytes_total = 0;
  uint64_t bytes_per_s = 0;
  uint32_t passes = 0;  // the first sends all rows, further ones the rows changed since
  uint64_t changed_bytes_per_s = 0;  // by pushes, before the last pass
  bool beyond_rate = false;          // no longer limited by TransferLimits::bytes_per_s
};

struct TransferLimits {
  uint64_t bytes_per_s = 0;  // 0: no limit
  bool paused = false;
  uint32_t pull_p99_ms_max = 0;  // above it transfers slow down; 0: they never do
};

}  // namespace hotbed

#endif  // HOTBED_SERVER_HOST_TRANSFER_TRANSFER_PROGRESS_H_
