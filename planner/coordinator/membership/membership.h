// The coordinator's membership: which replica of which shard is where, carried out. It looks at the
// shards of which something has changed (their record, one of their servers, their goal), asks
// DecideShard for the next step of each, and puts the steps into transactions of up to
// kRecordsPerTxn records. Fail-over, refills, moves, drains and read replicas all work this way.
//
// The wish for a shard is its goal (in the store, until the record fulfils it), else as many
// members as its table's class asks for, wherever they are. A member whose server is about to stop
// leaves as long as another stays, and gets its replica back as one that died does. A shard on a
// draining server is given a goal here.
//
// Snapshot transfers begin a few at a time: Options::transfers_per_server from each server and to
// each. When transfers have to wait, refills go before goals, and goals before read replicas.
//
// Everything kept here can be thrown away: the shards to look at, the reports of servers (which
// repeat them, member_reports.h), the last holder of a lost replica (to which it goes back), and
// the servers on which replicas do not last (replica_backoff.h). Pure; thread-compatible.
#ifndef HOTBED_PLANNER_COORDINATOR_MEMBERSHIP_MEMBERSHIP_H_
#define HOTBED_PLANNER_COORDINATOR_MEMBERSHIP_MEMBERSHIP_H_

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/container/btree_set.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "planner/coordinator/membership/member_reports.h"
#include "planner/coordinator/membership/membership_batch.h"
#include "planner/coordinator/membership/replica_backoff.h"
#include "planner/coordinator/membership/replica_placement.h"
#include "planner/coordinator/membership/shard_decision.h"
#include "planner/coordinator/membership/shard_doubts.h"
#include "planner/coordinator/membership/snapshot_transfers.h"
#include "planner/coordinator/state/cluster_state.h"
#include "planner/coordinator/state/leases.h"
#include "planner/coordinator/state/operation.h"

namespace hotbed {

struct MembershipOptions {
  size_t transfers_per_server = 2;  // snapshot transfers in flight from a server, and to a server
  // A shard that has lost all its members waits until all are back or a person chooses, and not
  // only for LeaseOptions::awaited_ns.
  bool asks_person = false;
};

class Membership {
 public:
  struct Counts {
    uint64_t fail_overs = 0;  // shards
    uint64_t moves = 0;       // goals fulfilled
    uint64_t refills = 0;     // replicas that were missing and are members now
    uint64_t given_up = 0;    // goals
  };

  // `leases` must outlive it.
  Membership(MembershipOptions options, const Leases* leases)
      : options_(options), leases_(leases), transfers_(leases, &reports_) {}
  Membership(const Membership&) = delete;
  Membership& operator=(const Membership&) = delete;

  // The state was read again: every shard is looked at.
  void OnLoaded(const ClusterState& state);
  // `ops` were committed and are in the state.
  void OnCommitted(int64_t now_ns, const ClusterState& state, const std::vector<Op>& ops);
  // The server's process is gone, came up, drains or is about to stop: looks at its shards and at
  // those that wait.
  void OnServerChanged(const ClusterState& state, ServerId server);
  // Takes over the reports of a live process about joins, lost replicas and silent members.
  void OnHeartbeat(const ClusterState& state, const v1::HeartbeatRequest& request);
  // The process registers, and these replicas are on its disk. Called before its server's record is
  // committed.
  void OnRegister(const ClusterState& state, const Member& process,
                  const google::protobuf::RepeatedPtrField<v1::HeldReplica>& held) {
    reports_.OnRegister(state, process, held);
  }
  // A few times per second: looks again at shards that wait for something that nobody reports.
  void Tick(int64_t now_ns, const ClusterState& state);

  // Shards of which a member is gone: they go before everything else.
  bool HasUrgent() const { return !urgent_.empty(); }
  bool HasWork() const { return !urgent_.empty() || !look_.empty(); }
  // The next changes; nullopt: none of the shards looked at (a bounded number) has a next step.
  std::optional<Transaction> NextBatch(const ClusterState& state, int64_t now_ns, int64_t unix_ms,
                                       bool urgent);

  // A person's choice of a replica (ChooseReplica in shard_decision.h), as a transaction and its
  // answer. NotFound: there is no such shard or server.
  struct Chosen {
    Transaction transaction;
    v1::ChooseReplicaReply reply;
  };
  absl::StatusOr<Chosen> Choose(const ClusterState& state, int64_t now_ns, int64_t unix_ms,
                                const v1::ChooseReplicaRequest& request);

  // Why the shard waits; empty: it does not, or nothing is wanted of it.
  std::string WaitsFor(uint64_t packed) const;
  size_t waiting() const { return waiting_.size() + gated_.size(); }
  const MemberReports& reports() const { return reports_; }
  const ShardDoubts& doubts() const { return doubts_; }
  const SnapshotTransfers& transfers() const { return transfers_; }

  const Counts& counts() const { return counts_; }
  // For each shard that became active again since the last call: nanoseconds since its server was
  // found gone.
  std::vector<int64_t> TakeFailOverNs() { return std::exchange(fail_over_ns_, {}); }

 private:
  // membership.cc: which shards are looked at.
  void Mark(const ClusterState& state, const ShardRecord& record);
  void MarkWaiting();
  void MarkGated(size_t count);
  void Forget(uint64_t packed);  // the shard no longer exists
  void NoteRecord(int64_t now_ns, const ShardRecord& record);

  // membership_steps.cc: the next step of one shard.
  // `ask` with the present view of the servers of the record.
  template <typename Ask>
  auto WithView(const ShardRecord& record, MembershipBatch* batch, const Ask& ask);
  void LookAt(uint64_t packed, MembershipBatch* batch);
  // Drops or makes the shard's goal where that comes first; true: a goal was written or deleted.
  bool SettleGoal(const ShardRecord& record, MembershipBatch* batch);
  bool DrainGoal(const ShardRecord& record, MembershipBatch* batch);
  // Servers that are to be given no replica of the shard now.
  std::vector<ServerId> Avoided(const ShardRecord& record, int64_t now_ns) const;
  ShardWish WishOf(const ShardRecord& record, const ClusterState& state, int64_t now_ns) const;
  // The best place by `search`, with the loads of the batch.
  ServerId FindPlace(const ShardRecord& record, PlaceSearch search, MembershipBatch* batch) const;
  ServerId RefillPlace(const ShardRecord& record, const std::vector<ServerId>& members,
                       MembershipBatch* batch);
  // Why the transfer to the learner cannot begin now, or empty.
  std::string Gate(const ShardRecord& record, const Member& learner,
                   const std::vector<ServerId>& readers, const MembershipBatch& batch) const;
  void NoteDoubt(const ShardRecord& record, const ShardDecision& decision, MembershipBatch* batch);
  // Puts the step into the batch.
  void CarryOut(const ShardRecord& record, ShardDecision decision, MembershipBatch* batch);
  // The decision leaves out members that are gone or leaving.
  void NoteFailOver(const ShardRecord& record, const ShardDecision& decision,
                    MembershipBatch* batch);
  // Counts the replicas that the decision leaves out because they are lost or silent; returns text
  // for the event log.
  std::string NoteBackoff(const ShardRecord& record, const ShardDecision& decision, int64_t now_ns,
                          const ClusterState& state);

  const MembershipOptions options_;
  const Leases* const leases_;
  MemberReports reports_;
  SnapshotTransfers transfers_;
  ReplicaBackoff backoff_;
  ShardDoubts doubts_;

  // Packed ids of shards.
  absl::btree_set<uint64_t> urgent_;                // to look at first
  absl::btree_set<uint64_t> look_;                  // to look at
  absl::btree_map<uint64_t, std::string> waiting_;  // with the reason
  std::set<std::pair<int, uint64_t>> gated_;        // transfers that cannot begin yet: rank, shard
  absl::flat_hash_map<uint64_t, std::string> gate_why_;
  uint64_t next_waiting_ = 0;                                // where the next Tick continues
  absl::flat_hash_map<uint64_t, ServerId> last_holder_;      // gets its lost replica back
  absl::flat_hash_map<uint64_t, int64_t> failing_since_ns_;  // not active since a fail-over
  std::vector<int64_t> fail_over_ns_;
  Counts counts_;
};

}  // namespace hotbed

#endif  // HOTBED_PLANNER_COORDINATOR_MEMBERSHIP_MEMBERSHIP_H_
