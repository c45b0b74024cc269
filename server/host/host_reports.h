// The reports of a shard host to the coordinator about its shards, computed on request from the
// shard directory. Thread-safe. The records and lists are described in shard_host.h.
#ifndef HOTBED_SERVER_HOST_HOST_REPORTS_H_
#define HOTBED_SERVER_HOST_HOST_REPORTS_H_

#include <functional>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "server/host/data_directory.h"
#include "server/host/shard_directory.h"
#include "server/host/shard_host.h"
#include "server/shard_log/promise_file.h"

namespace hotbed {

class HostReports {
 public:
  HostReports(const DataDirectory* data, const ShardDirectory* directory,
              const PromiseFile* promises)
      : data_(data), directory_(directory), promises_(promises) {}

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
  const DataDirectory* const data_;
  const ShardDirectory* const directory_;
  const PromiseFile* const promises_;
  mutable absl::Mutex mu_;
  std::function<void()> listener_ ABSL_GUARDED_BY(mu_);
};

}  // namespace hotbed

#endif  // HOTBED_SERVER_HOST_HOST_REPORTS_H_
