// A transaction of Membership while it is being built: records, goals, and the events that describe
// them; events of one kind and reason are joined into one. Thread-compatible.
#ifndef HOTBED_PLANNER_COORDINATOR_MEMBERSHIP_MEMBERSHIP_BATCH_H_
#define HOTBED_PLANNER_COORDINATOR_MEMBERSHIP_MEMBERSHIP_BATCH_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "planner/coordinator/state/cluster_state.h"
#include "planner/coordinator/state/event_log.h"
#include "planner/coordinator/state/operation.h"

namespace hotbed {

class MembershipBatch {
 public:
  // `state` must outlive it and not change.
  MembershipBatch(const ClusterState* state, int64_t now_ns, int64_t unix_ms)
      : state_(state), now_ns_(now_ns), unix_ms_(unix_ms), txn_(state), events_(state, unix_ms) {}

  const ClusterState& state() const { return *state_; }
  int64_t now_ns() const { return now_ns_; }
  int64_t unix_ms() const { return unix_ms_; }

  // Whether the changes of one more shard fit in any case.
  bool HasRoom() const;
  void PutRecord(const ShardRecord& record);
  void PutGoal(const v1::ShardGoal& goal);
  void DeleteGoal(uint64_t packed);
  void Note(const std::string& kind, const std::string& reason, uint64_t packed);
  // nullopt if nothing was put or noted.
  std::optional<Transaction> Finish();

  // Snapshot transfers in flight, by server; the caller adds those that this batch begins.
  absl::flat_hash_map<ServerId, size_t> transfers_from;
  absl::flat_hash_map<ServerId, size_t> transfers_to;
  absl::flat_hash_map<ServerId, uint64_t> bytes_to;  // still to be sent, as far as known
  // By server: shards that a goal promises to it while it is no member yet. Counted at the first
  // call.
  const absl::flat_hash_map<ServerId, uint64_t>& Promised();
  // Servers to which `transfers_max` transfers or more are in flight.
  absl::flat_hash_set<ServerId> BusyTargets(size_t transfers_max) const;

 private:
  struct Group {
    uint64_t shards = 0;
    uint64_t first = 0;
    std::string names;
  };

  const ClusterState* const state_;
  const int64_t now_ns_;
  const int64_t unix_ms_;
  Transaction txn_;
  EventWriter events_;
  std::map<std::pair<std::string, std::string>, Group> groups_;  // by kind and reason
  std::optional<absl::flat_hash_map<ServerId, uint64_t>> promised_;
};

// The servers of the record's members, the primary first.
std::vector<ServerId> MemberServers(const ShardRecord& record);
// A goal of now, of request `number`.
v1::ShardGoal MakeGoal(ShardId shard, const std::vector<ServerId>& servers,
                       const std::string& reason, uint64_t number, int64_t unix_ms);
// The goal's servers that are not members of the record.
std::vector<ServerId> TargetsOf(const v1::ShardGoal& goal, const ShardRecord& record);
// The record's members that the goal does not name.
std::vector<ServerId> SourcesOf(const v1::ShardGoal& goal, const ShardRecord& record);

}  // namespace hotbed

#endif  // HOTBED_PLANNER_COORDINATOR_MEMBERSHIP_MEMBERSHIP_BATCH_H_
