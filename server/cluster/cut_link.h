// Cuts and merges of shards that the coordinator asks for: prepares each of them, has it committed
// and learns the records, one cut at a time on a thread of its own.
//
// Where the shard has several members, or is merged, it takes no pushes from the preparation on,
// and the commit may have happened when its answer is lost. So the request is repeated until the
// coordinator has said yes or no, and after a yes until the records are applied here.
#ifndef HOTBED_SERVER_CLUSTER_CUT_LINK_H_
#define HOTBED_SERVER_CLUSTER_CUT_LINK_H_

#include <cstdint>
#include <functional>
#include <map>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "proto/control.pb.h"
#include "server/cluster/assignment_applier.h"
#include "server/host/shard_host.h"

namespace hotbed {

// Thread-safe.
class CutLink {
 public:
  // Fills in who asks, and calls the coordinator.
  using Commit = std::function<absl::Status(v1::CommitCutRequest*, v1::CommitCutReply*)>;
  // Both pointers outlive it.
  CutLink(ShardHost* host, AssignmentApplier* applier, Commit commit);
  ~CutLink() { Stop(); }

  // All cuts that are asked for now.
  void Learn(const google::protobuf::RepeatedPtrField<v1::ShardCut>& cuts) ABSL_LOCKS_EXCLUDED(mu_);
  // Calls of Commit end by themselves.
  void Stop() ABSL_LOCKS_EXCLUDED(mu_);

 private:
  struct Asked {
    v1::ShardCut cut;
    int64_t again_ns = 0;  // not before
    bool ended = false;    // committed or refused; a message from before may still ask for it
  };

  void Run() ABSL_LOCKS_EXCLUDED(mu_);
  // False: it is to stop.
  bool AwaitNext(v1::ShardCut* next) ABSL_LOCKS_EXCLUDED(mu_);
  // Fills in the request; its epoch is 0 if there is nothing to commit from here.
  absl::Status Prepare(const v1::ShardCut& cut, v1::CommitCutRequest* request);
  // The shards take pushes again.
  void GiveUp(const v1::ShardCut& cut);
  // A cut that cannot be made yet comes again.
  void CarryOut(const v1::ShardCut& cut) ABSL_LOCKS_EXCLUDED(mu_);
  void OnCommitted(const v1::ShardCut& cut, const v1::CommitCutReply& reply, int64_t prepared_ns)
      ABSL_LOCKS_EXCLUDED(mu_);
  void End(const v1::ShardCut& cut) ABSL_LOCKS_EXCLUDED(mu_);

  ShardHost* const host_;
  AssignmentApplier* const applier_;
  const Commit commit_;
  absl::Mutex mu_;
  bool stop_ ABSL_GUARDED_BY(mu_) = false;
  std::map<uint64_t, Asked> asked_ ABSL_GUARDED_BY(mu_);  // by packed shard
  uint64_t learnt_ ABSL_GUARDED_BY(mu_) = 0;
  std::thread thread_;
};

}  // namespace hotbed

#endif  // HOTBED_SERVER_CLUSTER_CUT_LINK_H_
