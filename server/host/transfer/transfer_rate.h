// How fast snapshot transfers may leave this server: one limit for all of them together, which goes
// down by itself while pulls take longer than they should. Thread-safe; the caller gives the time.
#ifndef HOTBED_SERVER_HOST_TRANSFER_TRANSFER_RATE_H_
#define HOTBED_SERVER_HOST_TRANSFER_TRANSFER_RATE_H_

#include <cstdint>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "common/status_numbers.h"
#include "server/host/transfer/transfer_progress.h"

namespace hotbed {

class TransferRate {
 public:
  void SetLimits(const TransferLimits& limits) ABSL_LOCKS_EXCLUDED(mu_);
  bool paused() const ABSL_LOCKS_EXCLUDED(mu_);
  // Takes `bytes` that are about to be sent into account; how long to wait before sending them.
  int64_t WaitNs(uint64_t bytes, int64_t now_ns) ABSL_LOCKS_EXCLUDED(mu_);
  // To be called once per second with the 99th percentile of the pulls' latency; 0: there were no
  // pulls. Above the limit the rate is halved, down to kRateMin; else it grows back by a quarter.
  void OnSecond(int64_t pull_p99_ns) ABSL_LOCKS_EXCLUDED(mu_);

  // Bytes per second that are allowed now; 0: no limit.
  uint64_t rate() const ABSL_LOCKS_EXCLUDED(mu_);
  void AddNumbers(StatusNumbers* numbers) const ABSL_LOCKS_EXCLUDED(mu_);

  static constexpr uint64_t kRateMin = 1ull << 20;
  static constexpr uint64_t kRateMax =
      4ull << 30;  // without a limit set, a rate above this ends the guard

 private:
  uint64_t RateNow() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  mutable absl::Mutex mu_;
  TransferLimits limits_ ABSL_GUARDED_BY(mu_);
  uint64_t guarded_rate_ ABSL_GUARDED_BY(mu_) = 0;  // 0: the guard is off
  int64_t free_ns_ ABSL_GUARDED_BY(mu_) = 0;        // when the rate allows the next bytes
  uint64_t bytes_total_ ABSL_GUARDED_BY(mu_) = 0;
  uint64_t bytes_before_ ABSL_GUARDED_BY(mu_) = 0;  // as of the last OnSecond
};

}  // namespace hotbed

#endif  // HOTBED_SERVER_HOST_TRANSFER_TRANSFER_RATE_H_
