// The shards that something goes on with, by their own account (Shard::watched): they have other
// replicas, requests that wait, or a trouble that may pass, or wait for their activation. The host
// ticks them often and asks them what the coordinator should hear. Most shards of a server with
// very many are idle, and nobody has to look at these for it. Thread-safe.
#ifndef HOTBED_SERVER_HOST_WATCHED_SHARDS_H_
#define HOTBED_SERVER_HOST_WATCHED_SHARDS_H_

#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_set.h"
#include "absl/synchronization/mutex.h"
#include "common/ids.h"

namespace hotbed {

class WatchedShards {
 public:
  void Add(ShardId shard) ABSL_LOCKS_EXCLUDED(mu_) {
    absl::MutexLock lock(&mu_);
    shards_.insert(shard);
  }
  void Remove(ShardId shard) ABSL_LOCKS_EXCLUDED(mu_) {
    absl::MutexLock lock(&mu_);
    shards_.erase(shard);
  }
  std::vector<ShardId> List() const ABSL_LOCKS_EXCLUDED(mu_) {
    absl::MutexLock lock(&mu_);
    return {shards_.begin(), shards_.end()};
  }

 private:
  mutable absl::Mutex mu_;
  absl::flat_hash_set<ShardId> shards_ ABSL_GUARDED_BY(mu_);
};

}  // namespace hotbed

#endif  // HOTBED_SERVER_HOST_WATCHED_SHARDS_H_
