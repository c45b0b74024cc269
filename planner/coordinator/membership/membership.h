// Who holds which shard, carried out: looks at the shards of which something has changed (their
// record, a server of theirs, what is wanted), asks DecideShard what is next for each, and puts the
// answers into transactions of up to kRecordsPerTxn records. Fail-over, refills, moves, drains and
// read copies are all this.
//
// What is wanted of a shard: its goal (in the store, until the record fulfils it), else the copies
// of its table's class wherever they are; off servers that are about to stop, as far as others are
// left. A shard on a draining server is given a goal here.
//
// Copies are begun a few at a time: Options::copies_per_server from each server and to each. What
// has to wait waits by itself: refills before goals, goals before read copies.
//
// It keeps nothing that could not be thrown away: what is remembered are shards to look at, joins
// that primaries reported and members that are to leave (servers repeat both), who lost what (so
// that it is given back), who was silent and whose copies do not last (replica_backoff.h). Pure;
// thread-compatible.
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
#include "planner/coordinator/membership/replica_backoff.h"
#include "planner/coordinator/membership/shard_decision.h"
#include "planner/coordinator/state/cluster_state.h"
#include "planner/coordinator/state/leases.h"
#include "planner/coordinator/state/operation.h"

namespace hotbed {

struct MembershipOptions {
  size_t copies_per_server = 2;  // under way from a server, and to a server
};

class MembershipBatch;

class Membership {
 public:
  struct Counts {
    uint64_t fail_overs = 0;  // shards
    uint64_t moves = 0;       // goals fulfilled
    uint64_t refills = 0;     // copies that were missing and are members now
    uint64_t given_up = 0;    // goals
  };

  // `leases` must outlive it.
  Membership(MembershipOptions options, const Leases* leases)
      : options_(options), leases_(leases) {}

  // The state was read anew: everything is looked at.
  void OnLoaded(const ClusterState& state);
  // `ops` were committed and are in the state.
  void OnCommitted(int64_t now_ns, const ClusterState& state, const std::vector<Op>& ops);
  // The server's process is gone, came, is about to stop or drains: its shards are looked at, and
  // those that wait.
  void OnServerChanged(const ClusterState& state, ServerId server);
  // The joins, lost copies and silent members that a live process reports.
  void OnHeartbeat(const ClusterState& state, const v1::HeartbeatRequest& request);
  // A few times a second: looks again at shards that wait for something that nobody reports.
  void Tick(int64_t now_ns, const ClusterState& state);

  // Shards of which a member is gone: before anything else.
  bool HasUrgent() const { return !urgent_.empty(); }
  bool HasWork() const { return !urgent_.empty() || !look_.empty(); }
  // The next changes; nullopt: none of the shards looked at (a bounded number) can go on.
  std::optional<Transaction> NextBatch(const ClusterState& state, int64_t now_ns, int64_t unix_ms,
                                       bool urgent);

  // Of each server's copies to others: its part of the dial.
  v1::CopyLimits LimitsOf(const ClusterState& state) const;
  // Changes whenever LimitsOf may give something else.
  uint64_t limits_version() const { return limits_version_; }
  // Why the shard waits; empty: it does not, or nothing is wanted of it.
  std::string WaitsFor(uint64_t packed) const;
  bool Joined(const v1::ShardRecord& record, const v1::Member& learner) const;
  // Why the live member is to leave, as was said in the record's epoch: by itself, that its copy is
  // lost; by the primary, that it does not hear of it.
  MemberOut Out(const v1::ShardRecord& record, const v1::Member& member) const;
  // Shards with learners.
  const absl::btree_set<uint64_t>& with_learners() const { return with_learners_; }
  size_t waiting() const { return waiting_.size() + gated_.size(); }

  const Counts& counts() const { return counts_; }
  // Of shards that are active again, each once: nanoseconds since their server was found gone.
  std::vector<int64_t> TakeFailOverNs() { return std::exchange(fail_over_ns_, {}); }

 private:
  struct Joins {
    Epoch epoch = 0;
    v1::Member primary;
    std::vector<v1::Member> learners;
  };

  // Members that live and are to leave, of one epoch: what was said of them holds until the next.
  struct OutMember {
    v1::Member member;
    MemberOut why = MemberOut::kNo;
    std::string said;  // by its process
  };
  struct Outs {
    Epoch epoch = 0;
    std::vector<OutMember> members;
  };

  void NoteOut(const v1::ShardRecord& record, OutMember out);
  // nullptr: nothing was said of it in this epoch.
  const OutMember* FindOut(const v1::ShardRecord& record, const v1::Member& member) const;
  void Mark(const ClusterState& state, const v1::ShardRecord& record);
  void MarkWaiting();
  void MarkGated(size_t count);
  void Forget(uint64_t packed);  // the shard is no more
  void NoteRecord(int64_t now_ns, const v1::ShardRecord& record);
  void LookAt(uint64_t packed, MembershipBatch* batch);
  // Drops or makes the shard's goal where that comes first; true: a goal was written.
  bool SettleGoal(const v1::ShardRecord& record, MembershipBatch* batch);
  bool DrainGoal(const v1::ShardRecord& record, MembershipBatch* batch);
  ShardWish WishOf(const v1::ShardRecord& record, const ClusterState& state, int64_t now_ns) const;
  ServerId RefillPlace(const v1::ShardRecord& record, const std::vector<ServerId>& members,
                       MembershipBatch* batch);
  // Why the copy cannot begin now, or empty.
  std::string Gate(const v1::ShardRecord& record, const Member& learner,
                   const std::vector<ServerId>& readers, const MembershipBatch& batch) const;
  void Take(const v1::ShardRecord& record, ShardDecision decision, MembershipBatch* batch);
  // The members that are gone, or are to leave, have been left out.
  void NoteFailOver(const v1::ShardRecord& record, const ShardDecision& decision,
                    MembershipBatch* batch);
  // Counts the copies lost that the decision leaves out; what is to be told of them.
  std::string NoteBackoff(const v1::ShardRecord& record, const ShardDecision& decision,
                          int64_t now_ns, const ClusterState& state);
  void CountSenders(int64_t now_ns, const ClusterState& state);
  // Of the rows that the learner is still to get; 0: not known.
  uint64_t BytesLeft(const v1::ShardRecord& record, const v1::Member& learner) const;
  // Whether a copy to the learner is under way.
  bool Copying(int64_t now_ns, const v1::ShardRecord& record, const v1::Member& learner) const;

  const MembershipOptions options_;
  const Leases* const leases_;
  absl::btree_set<uint64_t> urgent_;
  absl::btree_set<uint64_t> look_;
  absl::btree_map<uint64_t, std::string> waiting_;  // for what
  std::set<std::pair<int, uint64_t>> gated_;        // copies to begin: rank, shard
  absl::flat_hash_map<uint64_t, std::string> gate_why_;
  uint64_t next_waiting_ = 0;  // where Tick goes on
  absl::btree_set<uint64_t> with_learners_;
  absl::flat_hash_map<uint64_t, int64_t> learner_since_ns_;
  absl::flat_hash_map<uint64_t, Joins> joins_;
  absl::flat_hash_map<uint64_t, Outs> outs_;
  absl::flat_hash_map<uint64_t, ServerId> lost_;  // who is to have its copy back
  ReplicaBackoff backoff_;
  absl::flat_hash_map<uint64_t, int64_t> failing_since_ns_;
  std::vector<int64_t> fail_over_ns_;
  absl::btree_set<ServerId> senders_;
  uint64_t limits_version_ = 1;
  Counts counts_;
};

}  // namespace hotbed

#endif  // HOTBED_PLANNER_COORDINATOR_MEMBERSHIP_MEMBERSHIP_H_
