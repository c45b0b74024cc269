// Checkpoints of the tables of durability class checkpoint, which have no log: after a crash their
// rows go back to the last one.
//
// Thread-safe, but KeepWhereDue and KeepLast are for one thread at a time: the upkeep's, then that
// of the shutdown. The calls block on the disk.
#ifndef HOTBED_SERVER_HOST_TABLE_CHECKPOINTS_H_
#define HOTBED_SERVER_HOST_TABLE_CHECKPOINTS_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "common/clock.h"
#include "common/ids.h"
#include "common/status_numbers.h"
#include "server/host/shard_directory.h"
#include "server/host/shard_write_back.h"
#include "server/tiers/api/host.h"

namespace hotbed {

struct ShardsByClass {
  ShardList logged;
  ShardList checkpointed;
};
ShardsByClass SplitByClass(const ShardList& shards);

class TableCheckpoints {
 public:
  struct Wiring {
    const ShardDirectory* directory = nullptr;
    ShardWriteBack* write_back = nullptr;
    TierHost* tiers = nullptr;
    const Clock* clock = nullptr;
    int64_t interval_ns = 0;  // 0: only KeepNow and KeepLast
  };
  explicit TableCheckpoints(const Wiring& wiring) : wiring_(wiring) {}

  // Once per interval, if a row has changed since the last checkpoint. Pushes to these tables are
  // refused for a moment (UNAVAILABLE).
  void KeepWhereDue(int64_t now_ns);
  // At the end: the shards are closed and take no more pushes.
  absl::Status KeepLast(const ShardList& shards);
  // Now, whether or not it is due.
  absl::Status KeepNow() ABSL_LOCKS_EXCLUDED(mu_) {
    return Keep(SplitByClass(*wiring_.directory->Shards()).checkpointed);
  }
  // Runs `work` while the rows of the shards, of any class, stand still: their pushes are refused
  // (UNAVAILABLE) for that moment. One caller at a time.
  absl::Status WhilePaused(const ShardList& shards, absl::FunctionRef<absl::Status()> work)
      ABSL_LOCKS_EXCLUDED(mu_);
  // Whether a crash would find the shard, as it was since it opened, in the last checkpoint.
  bool Keeps(const std::shared_ptr<Shard>& shard) const ABSL_LOCKS_EXCLUDED(kept_mu_) {
    return KeptLsn(shard).has_value();
  }
  bool periodic() const { return wiring_.interval_ns != 0; }
  void AddNumbers(StatusNumbers* numbers) const {
    numbers->Add("checkpoints", "hotbed_server_checkpoints_total",
                 "Checkpoints made of the tables of class checkpoint.",
                 total_.load(std::memory_order_relaxed));
  }

 private:
  absl::Status Keep(const ShardList& shards) ABSL_LOCKS_EXCLUDED(mu_);
  absl::Status Freeze(const ShardList& shards) ABSL_LOCKS_EXCLUDED(kept_mu_);

  std::optional<Lsn> KeptLsn(const std::shared_ptr<Shard>& shard) const
      ABSL_LOCKS_EXCLUDED(kept_mu_);

  // A shard in the last checkpoint. One that has left since and returned, or was cut or merged, is
  // another object, whose LSNs may be those of the former one.
  struct Kept {
    std::weak_ptr<Shard> shard;
    Lsn lsn = 0;
  };
  const Wiring wiring_;
  std::atomic<uint64_t> total_{0};
  int64_t tried_ns_ = 0;
  absl::Mutex mu_;  // one pause at a time: a shard that is resumed must not stand still elsewhere
  mutable absl::Mutex kept_mu_;
  absl::flat_hash_map<ShardId, Kept> kept_ ABSL_GUARDED_BY(kept_mu_);
};

}  // namespace hotbed

#endif  // HOTBED_SERVER_HOST_TABLE_CHECKPOINTS_H_
