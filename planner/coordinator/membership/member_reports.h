// Reports of live processes about the members of shards. A report holds for the epoch it names,
// and servers repeat every report, so nothing here has to outlive this process. Two kinds:
//
//   joins     a primary says that a learner is in its acknowledging set: it may become a member
//   leaving   a process says that its own replica is lost, or a primary says that it does not hear
//             of a member that it counts on: the member counts as gone although its process lives
//
// Pure; thread-compatible.
#ifndef HOTBED_PLANNER_COORDINATOR_MEMBERSHIP_MEMBER_REPORTS_H_
#define HOTBED_PLANNER_COORDINATOR_MEMBERSHIP_MEMBER_REPORTS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
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
  };
  static constexpr size_t kSaidBytesMax = 300;

  Changed OnHeartbeat(const ClusterState& state, const v1::HeartbeatRequest& request);
  // Drops the reports of epochs before the record's.
  void OnRecord(const ShardRecord& record);
  void Forget(uint64_t shard);
  void ForgetLeaving() { leaving_.clear(); }

  // Whether the primary of the record's epoch counts the learner in its acknowledging set.
  bool Joined(const ShardRecord& record, const Member& learner) const;
  // nullptr: nothing was said of the member in the record's epoch.
  const Leaving* FindLeaving(const ShardRecord& record, const Member& member) const;
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

  absl::flat_hash_map<uint64_t, Joins> joins_;             // by packed shard
  absl::flat_hash_map<uint64_t, LeavingOfEpoch> leaving_;  // by packed shard
};

}  // namespace hotbed

#endif  // HOTBED_PLANNER_COORDINATOR_MEMBERSHIP_MEMBER_REPORTS_H_
