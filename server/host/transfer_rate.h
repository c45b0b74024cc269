// How fast copies of shards may leave this server: one dial for all of them together, turned down
// by itself while pulls take longer than they should. Thread-safe; time is given.
#ifndef HOTBED_SERVER_HOST_TRANSFER_RATE_H_
#define HOTBED_SERVER_HOST_TRANSFER_RATE_H_

#include <cstdint>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "server/host/shard_host.h"

namespace hotbed {

class TransferRate {
 public:
  void SetLimits(const ShardHost::TransferLimits& limits) ABSL_LOCKS_EXCLUDED(mu_);
  bool paused() const ABSL_LOCKS_EXCLUDED(mu_);
  // `bytes` are about to be sent: how long to wait before.
  int64_t WaitNs(uint64_t bytes, int64_t now_ns) ABSL_LOCKS_EXCLUDED(mu_);
  // Once a second: how long pulls took, 99 of 100; 0: there were none. Above the limit the rate is
  // halved, down to kRateMin; else it grows back by a quarter.
  void OnSecond(int64_t pull_p99_ns) ABSL_LOCKS_EXCLUDED(mu_);

  // Bytes a second that are allowed now; 0: as many as there can be.
  uint64_t rate() const ABSL_LOCKS_EXCLUDED(mu_);
  uint64_t bytes_total() const ABSL_LOCKS_EXCLUDED(mu_);

  static constexpr uint64_t kRateMin = 1ull << 20;
  static constexpr uint64_t kRateMax = 4ull
                                       << 30;  // where no limit was set: beyond it there is none

 private:
  uint64_t RateNow() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  mutable absl::Mutex mu_;
  ShardHost::TransferLimits limits_ ABSL_GUARDED_BY(mu_);
  uint64_t guarded_rate_ ABSL_GUARDED_BY(mu_) = 0;  // 0: the guard is off
  int64_t free_ns_ ABSL_GUARDED_BY(mu_) = 0;        // what was let out is through by then
  uint64_t bytes_total_ ABSL_GUARDED_BY(mu_) = 0;
  uint64_t bytes_before_ ABSL_GUARDED_BY(mu_) = 0;  // at the last second
};

}  // namespace hotbed

#endif  // HOTBED_SERVER_HOST_TRANSFER_RATE_H_
