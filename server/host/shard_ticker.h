// One thread for short and urgent work of the shards: promises, ticks, and requests that have
// waited for too long. Thread-safe; nothing that shards call here blocks.
#ifndef HOTBED_SERVER_HOST_SHARD_TICKER_H_
#define HOTBED_SERVER_HOST_SHARD_TICKER_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "common/clock.h"
#include "server/host/host_reports.h"
#include "server/host/promise_keeper.h"
#include "server/host/shard_directory.h"
#include "server/host/watched_shards.h"
#include "server/shard_log/shard_log.h"

namespace hotbed {

class ShardTicker {
 public:
  struct Wiring {
    const ShardDirectory* directory = nullptr;
    const HostReports* reports = nullptr;
    WatchedShards* watched = nullptr;
    PromiseKeeper* promises = nullptr;
    ShardLog* log = nullptr;
    const Clock* clock = nullptr;
  };
  explicit ShardTicker(const Wiring& wiring) : wiring_(wiring) {}
  ~ShardTicker() { Stop(); }

  void Start();
  void Stop() ABSL_LOCKS_EXCLUDED(mu_);

  // A promise is wanted: the thread keeps it now.
  void Wake() ABSL_LOCKS_EXCLUDED(mu_);
  // There may be something for the coordinator (HostReports::TellListener).
  void HasNews() ABSL_LOCKS_EXCLUDED(mu_);
  // A request waits in a shard until `ns` (Clock::NowNs scale) at the latest.
  void WaitsUntil(int64_t ns) ABSL_LOCKS_EXCLUDED(mu_);

 private:
  void Loop() ABSL_LOCKS_EXCLUDED(mu_);
  bool Wakes() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) { return stops_ || wake_; }
  void TickWatched();
  void TickSome(size_t turn);
  void ExpireWaiting(int64_t now_ns);

  const Wiring wiring_;
  std::atomic<int64_t> waits_until_ns_{0};  // requests wait in shards, the last until then; 0: none
  std::atomic<bool> news_{false};
  absl::Mutex mu_;
  bool stops_ ABSL_GUARDED_BY(mu_) = false;
  bool wake_ ABSL_GUARDED_BY(mu_) = false;
  std::thread thread_;
};

}  // namespace hotbed

#endif  // HOTBED_SERVER_HOST_SHARD_TICKER_H_
