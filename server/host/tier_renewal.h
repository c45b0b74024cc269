// Replaces a damaged spill tier, which takes no more rows, by an empty one.
//
// 1. Replicas that other servers hold too are given up: backups and learners first, primaries some
//    seconds later. The coordinator takes them out of their records.
// 2. Once no record depends on rows here, the tier is emptied, and the shards come back as snapshot
//    transfers.
// 3. While a shard has its only replica here, nothing is deleted; trouble() says so.
#ifndef HOTBED_SERVER_HOST_TIER_RENEWAL_H_
#define HOTBED_SERVER_HOST_TIER_RENEWAL_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "common/clock.h"
#include "common/status_numbers.h"
#include "server/host/assignments.h"
#include "server/host/data_directory.h"
#include "server/host/shard_directory.h"
#include "server/tiers/api/host.h"

namespace hotbed {

class TierRenewal {
 public:
  struct Wiring {
    const DataDirectory* data = nullptr;
    const ShardDirectory* directory = nullptr;
    Assignments* assignments = nullptr;
    TierHost* tiers = nullptr;
    const Clock* clock = nullptr;
    std::function<void()> has_news;  // replicas were given up: the coordinator should hear of it
  };
  explicit TierRenewal(Wiring wiring) : wiring_(std::move(wiring)) {}

  // The upkeep thread, with each pass.
  void RenewWhereDamaged(const TierHost::Health& health, int64_t now_ns);

  // --- any thread
  // Why a damaged tier stays as it is, for people; empty: it does not.
  std::string trouble() const ABSL_LOCKS_EXCLUDED(mu_);
  void AddNumbers(StatusNumbers* numbers) const {
    numbers->Add("spill_renewals", "hotbed_server_spill_renewals_total",
                 "Times that a damaged spill tier was emptied; its rows come back from other "
                 "replicas.",
                 renewals_.load(std::memory_order_relaxed));
  }

 private:
  std::string GiveUpReplicas(int64_t now_ns);
  absl::Status Renew();

  const Wiring wiring_;
  int64_t damaged_since_ns_ = 0;  // the upkeep thread's; 0: the tier is well
  std::atomic<uint64_t> renewals_{0};
  mutable absl::Mutex mu_;
  std::string trouble_ ABSL_GUARDED_BY(mu_);
};

}  // namespace hotbed

#endif  // HOTBED_SERVER_HOST_TIER_RENEWAL_H_
