// One thread that sweeps the shards whose rows come and go (server/shard/row_sweep.h), where this
// server is the primary: a table with a limit as soon as a shard has more rows than its part,
// a table whose rows expire from time to time.
//
// When a good part of a shard's rows were deleted, their space on the disk is given back.
//
// A sweep uses the strand of its shard in short tasks and rests as long as it works in between, so
// requests get their turns. Start and Stop are for one thread.
#ifndef HOTBED_SERVER_HOST_ROW_SWEEPER_H_
#define HOTBED_SERVER_HOST_ROW_SWEEPER_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "common/clock.h"
#include "common/ids.h"
#include "server/host/shard_directory.h"
#include "server/shard/shard.h"

namespace hotbed {

class RowSweeper {
 public:
  // All outlive it.
  RowSweeper(const ShardDirectory* directory, TierHost* tiers, const Clock* clock)
      : directory_(directory), tiers_(tiers), clock_(clock) {}
  ~RowSweeper() { Stop(); }

  void Start();
  void Stop() ABSL_LOCKS_EXCLUDED(mu_);
  // Looks at all shards once and sweeps those that are due. For the thread, and for tests without
  // it.
  void Run();

 private:
  struct Swept {
    int64_t next_ns = 0;     // for rows that expire: not before
    int64_t again_ns = 0;    // after an error: not before
    uint64_t pushed = 0;     // rows pushed before the last sweep
    uint64_t deleted = 0;    // rows whose space on the disk was not given back yet
    int64_t compact_ns = 0;  // when to give it back; 0: too few
  };
  void Loop() ABSL_LOCKS_EXCLUDED(mu_);
  bool IsDue(Shard* shard, const Swept& last, int64_t now_ns) const;
  void Sweep(Shard* shard, Swept* last);
  void Compact(const Shard& shard, Swept* last);
  bool Stops() ABSL_LOCKS_EXCLUDED(mu_);

  const ShardDirectory* const directory_;
  TierHost* const tiers_;
  const Clock* const clock_;
  // The thread's.
  absl::flat_hash_map<ShardId, Swept> last_;
  std::weak_ptr<const ShardList> seen_;
  std::vector<size_t> living_;  // the shards of seen_ whose tables keep touches
  absl::Mutex mu_;
  bool stops_ ABSL_GUARDED_BY(mu_) = false;
  std::thread thread_;
};

}  // namespace hotbed

#endif  // HOTBED_SERVER_HOST_ROW_SWEEPER_H_
