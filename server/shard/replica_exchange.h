// The messages between a shard and its other replicas: records out, records in, and the reports to
// the coordinator about the replicas.
//
// Records travel as they stand in the log: the primary encodes each entry once, and its followers
// append those bytes to their own logs and apply from them. Checksums and contents of incoming
// records are checked before the strand is entered.
//
// Confined to the shard's strand, except where a section says otherwise.
#ifndef HOTBED_SERVER_SHARD_REPLICA_EXCHANGE_H_
#define HOTBED_SERVER_SHARD_REPLICA_EXCHANGE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "common/ids.h"
#include "common/shared_value.h"
#include "common/tables/shard_record.h"
#include "server/protocol/shard_core.h"
#include "server/shard/log_replay.h"
#include "server/shard/push_state.h"
#include "server/shard/replica/record_tail.h"
#include "server/shard/replica/replica_message.h"
#include "server/shard/replica_comparison.h"
#include "server/shard/shard_context.h"

namespace hotbed {

class CommitPipeline;

// A primary's report to the coordinator about its other replicas. Epoch and lists are one value: a
// list of one epoch, reported under the next, could make members of replicas that lack entries.
struct ReplicasHeard {
  Epoch epoch = 0;
  std::vector<Member> joined;  // learners in the acknowledging set
  std::vector<Member> silent;  // ShardCore::SilentMembers
};

class ReplicaExchange {
 public:
  // All outlive it.
  ReplicaExchange(ShardContext* shard, RecordTail* tail, ReplicaComparison* comparison,
                  LogReplay* replay, CommitPipeline* pipeline)
      : shard_(*shard),
        tail_(*tail),
        comparison_(*comparison),
        replay_(*replay),
        pipeline_(*pipeline) {}

  void Send(const CoreSend& send);
  // The record is about to be learned (LearnRecord of the core), and was.
  void BeginEpoch(Epoch epoch);
  void SetRecord(const SharedValue<ShardRecord>& record) ABSL_LOCKS_EXCLUDED(mu_);
  // After each event: what other threads may read. Has the coordinator told of news at once, and in
  // any case where `news` says so.
  void Publish(bool served, bool news);
  // When the primary was last heard from in this epoch; 0: never.
  int64_t primary_heard_ns() const { return primary_heard_ns_; }

  // --- any thread; these do not block
  void OnMessage(const Member& from, ReplicaMessage message);
  void OnPeerLost(const Member& peer);
  // Whether the record names `to` as a replica.
  bool Wants(const Member& to) const;
  ReplicasHeard Heard() const;

 private:
  struct Incoming;

  void SendAppends(const CoreSend& send);
  std::string CheckRecord(const RecordHeader& header, const PushState& state) const;
  void Take(Incoming* incoming);
  void TakeAppend(Incoming* incoming);
  // True: this replica was given up, since its rows hold an entry that the primary's log has not.
  bool GaveUpRows(const std::vector<CoreEntry>& entries);
  // The record behind the first `taken` of the message is not taken, for `error`.
  void RefuseRecord(const Member& from, const ReplicaMessage& append, size_t taken,
                    const std::string& error);
  // Refused here, and nothing depends on these rows: asks the primary for a snapshot.
  void AskForSnapshot(const Member& from, const ReplicaMessage& message);

  ShardContext& shard_;
  RecordTail& tail_;
  ReplicaComparison& comparison_;
  LogReplay& replay_;
  CommitPipeline& pipeline_;
  int64_t primary_heard_ns_ = 0;
  Lsn untaken_lsn_ = 0;  // the record that was refused last, and how many times in a row
  int untaken_times_ = 0;
  bool heard_any_ = false;  // heard_ names a replica
  mutable absl::Mutex mu_;
  std::unique_ptr<const ReplicasHeard> heard_
      ABSL_GUARDED_BY(mu_);  // null: it has no followers yet
  SharedValue<ShardRecord> record_ ABSL_GUARDED_BY(mu_);
};

}  // namespace hotbed

#endif  // HOTBED_SERVER_SHARD_REPLICA_EXCHANGE_H_
