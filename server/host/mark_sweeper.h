// One thread that takes the marks of deleted rows away which nobody needs any more
// (server/shard/delete_marks.h), from the shards of this server, whoever their primary is. Where
// they were a good part of a shard, their space on the disk is given back.
//
// It rests as long as it works. Start and Stop are for one thread.
#ifndef HOTBED_SERVER_HOST_MARK_SWEEPER_H_
#define HOTBED_SERVER_HOST_MARK_SWEEPER_H_

#include <cstdint>
#include <memory>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "common/clock.h"
#include "server/host/shard_directory.h"
#include "server/shard/shard.h"

namespace hotbed {

class MarkSweeper {
 public:
  // All outlive it. Marks stay for `keep_ns`, unless there are too many.
  MarkSweeper(const ShardDirectory* directory, TierHost* tiers, int64_t keep_ns, const Clock* clock)
      : directory_(directory), tiers_(tiers), keep_ns_(keep_ns), clock_(clock) {}
  ~MarkSweeper() { Stop(); }

  void Start();
  void Stop() ABSL_LOCKS_EXCLUDED(mu_);

 private:
  void Loop() ABSL_LOCKS_EXCLUDED(mu_);
  void Sweep(Shard* shard) ABSL_LOCKS_EXCLUDED(mu_);
  bool Stops() ABSL_LOCKS_EXCLUDED(mu_);

  const ShardDirectory* const directory_;
  TierHost* const tiers_;
  const int64_t keep_ns_;
  const Clock* const clock_;
  absl::Mutex mu_;
  bool stops_ ABSL_GUARDED_BY(mu_) = false;
  std::thread thread_;
};

}  // namespace hotbed

#endif  // HOTBED_SERVER_HOST_MARK_SWEEPER_H_
