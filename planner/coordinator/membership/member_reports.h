// Reports of live processes about the members of shards. A report holds for the epoch it names,
// and servers repeat every report, so nothing here has to outlive this process. Three kinds:
//
//   joins     a primary says that a learner is in its acknowledging set: it may become a member
//   held      a process says what its disk holds of a shard whose record names an earlier process
//             of its server; in any epoch, for what such a process holds does not change
//   leaving   a process says that its own replica is lost, or a primary says that it does not hear
//             of a member that it counts on: the member counts as gone although its process lives
//
// Pure; thread-compatible.
#ifndef HOTBED_PLANNER_COORDINATOR_MEMBERSHIP_MEMBER_REPORTS_H_
#define HOTBED_PLANNER_COORDINATOR_MEMBERSHIP_MEMBER_REPORTS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "common/ids.h"
#include "planner/coordinator/membership/shard_decision.h"
#include "planner/coordinator/state/cluster_state.h"
#include "proto/control.pb.h"

namespace hotbed {

class MemberReports {
 public:
  struct Leaving {
    Member member;
    MemberOut why = MemberOut::kNo;
    std::string said;  // by its process, at most kSaidBytesMax
  };
  // Packed ids of the shards about which a heartbeat reported something new.
  struct Changed {
    std::vector<uint64_t> joins;
    std::vector<uint64_t> leaving;
    std::vector<uint64_t> held;
  };
  static constexpr size_t kSaidBytesMax = 300;

  Changed OnHeartbeat(const ClusterState& state, const v1::HeartbeatRequest& request);
  // The replicas that the process names when it registers are all that its disk holds.
  void OnRegister(const ClusterState& state, const Member& process,
                  const google::protobuf::RepeatedPtrField<v1::HeldReplica>& held);
  // Drops the reports of epochs before the record's.
  void OnRecord(const ShardRecord& record);
  void Forget(uint64_t shard);
  // The state was read again: another coordinator may have written meanwhile.
  void OnLoaded() {
    leaving_.clear();
    held_.clear();
  }

  // Whether the primary of the record's epoch counts the learner in its acknowledging set.
  bool Joined(const ShardRecord& record, const Member& learner) const;
  // nullptr: nothing was said of the member in the record's epoch.
  const Leaving* FindLeaving(const ShardRecord& record, const Member& member) const;
  // The replica on the disk of a live process; nullopt: it has not said yet.
  std::optional<HeldReplica> Held(uint64_t shard, const Member& process) const;
  // The reason alone; kNo where FindLeaving finds nothing.
  MemberOut WhyLeaving(const ShardRecord& record, const Member& member) const;

 private:
  struct Joins {
    Epoch epoch = 0;
    Member primary;
    std::vector<Member> learners;
  };
  struct LeavingOfEpoch {
    Epoch epoch = 0;
    std::vector<Leaving> members;
  };

  // False: the member is none of the record's, or a report of equal or more weight is there.
  bool NoteLeaving(const ShardRecord& record, Leaving report);

  struct HeldOf {
    Incarnation incarnation = 0;
    bool all = false;  // shards that are not there, of other tables than these, are not held
    absl::flat_hash_map<uint64_t, HeldReplica> shards;  // by packed shard
    absl::flat_hash_set<TableId> tables;                // some shards of which are held
  };
  HeldOf& HeldBy(const Member& process);
  // False: it was known.
  bool NoteHeld(const v1::HeldReplica& message, HeldOf* of);

  absl::flat_hash_map<ServerId, HeldOf> held_;
  absl::flat_hash_map<uint64_t, Joins> joins_;             // by packed shard
  absl::flat_hash_map<uint64_t, LeavingOfEpoch> leaving_;  // by packed shard
};

}  // namespace hotbed

#endif  // HOTBED_PLANNER_COORDINATOR_MEMBERSHIP_MEMBER_REPORTS_H_
