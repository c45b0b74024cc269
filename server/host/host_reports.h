// The reports of a shard host to the coordinator about its shards, computed on request from the
// shard directory. Thread-safe. The records and lists are described in shard_host.h.
#ifndef HOTBED_SERVER_HOST_HOST_REPORTS_H_
#define HOTBED_SERVER_HOST_HOST_REPORTS_H_

#include <functional>
#include <memory>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "server/host/data_directory.h"
#include "server/host/shard_directory.h"
#include "server/host/shard_host.h"
#include "server/host/watched_shards.h"
#include "server/shard_log/promise_file.h"

namespace hotbed {

class HostReports {
 public:
  HostReports(const DataDirectory* data, const ShardDirectory* directory,
              const WatchedShards* watched, const PromiseFile* promises)
      : data_(data), directory_(directory), watched_(watched), promises_(promises) {}

  std::vector<ShardHost::ShardEpoch> ShardsToActivate() const;
  std::vector<ShardHost::JoinReady> JoinsReady() const;
  std::vector<ShardHost::JoinReady> SilentMembers() const;
  std::vector<ShardHost::LostReplica> LostReplicas() const;
  std::vector<ShardHost::HeldReplica> HeldReplicas(bool asked_for) const;
  ShardHost::Recollection Recollect() const;
  std::string UndecidedText() const;
  ShardHost::Primaries CountPrimaries() const;

  void SetListener(std::function<void()> listener) ABSL_LOCKS_EXCLUDED(mu_);
  // Calls the listener if the coordinator has something to do for this server.
  void TellListener() const ABSL_LOCKS_EXCLUDED(mu_);

 private:
  // Calls visit(id, entry) for those of the watched shards that are open here.
  template <typename Visit>
  void ForEachWatched(Visit visit) const;
  // The shards of the map whose records ask for the replica here.
  std::vector<ShardId> AskedFor(const std::shared_ptr<const ShardDirectory::Map>& map) const
      ABSL_LOCKS_EXCLUDED(asked_mu_);

  const DataDirectory* const data_;
  const ShardDirectory* const directory_;
  const WatchedShards* const watched_;
  const PromiseFile* const promises_;
  // As of this map and process: each heartbeat asks, and the map changes seldom.
  mutable absl::Mutex asked_mu_;
  mutable std::shared_ptr<const ShardDirectory::Map> asked_in_ ABSL_GUARDED_BY(asked_mu_);
  mutable Member asked_of_ ABSL_GUARDED_BY(asked_mu_);
  mutable std::vector<ShardId> asked_ ABSL_GUARDED_BY(asked_mu_);
  mutable absl::Mutex mu_;
  std::function<void()> listener_ ABSL_GUARDED_BY(mu_);
};

}  // namespace hotbed

#endif  // HOTBED_SERVER_HOST_HOST_REPORTS_H_
