// The shards of which not every replica that may count was heard of, for people: they have lost all
// members and wait for them, or went on without a member that may hold more.
//
// Nothing here is kept in the metadata store: another coordinator finds it again and starts
// counting the time from the start. Pure; thread-compatible.
#ifndef HOTBED_PLANNER_COORDINATOR_MEMBERSHIP_SHARD_DOUBTS_H_
#define HOTBED_PLANNER_COORDINATOR_MEMBERSHIP_SHARD_DOUBTS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/container/btree_map.h"
#include "planner/coordinator/membership/member_reports.h"
#include "planner/coordinator/state/cluster_state.h"
#include "proto/control.pb.h"

namespace hotbed {

class ShardDoubts {
 public:
  enum class News : uint8_t { kNone, kStopped, kHoldsMore };

  // No member lives; `text` says what is waited for. kStopped: that is new.
  News NoteStopped(const ShardRecord& record, const std::string& text, int64_t unix_ms);
  // Some member lives. kHoldsMore: a server that was passed over says so for the first time.
  News NoteServed(const ClusterState& state, const MemberReports& reports,
                  const ShardRecord& record, int64_t unix_ms);
  void Forget(uint64_t packed) { doubts_.erase(packed); }
  void Clear() { doubts_.clear(); }

  // Empty: there is no doubt.
  std::string TextOf(uint64_t packed) const;
  void List(v1::ListMovesReply* reply) const;

 private:
  absl::btree_map<uint64_t, v1::ShardDoubt> doubts_;  // by packed shard
};

}  // namespace hotbed

#endif  // HOTBED_PLANNER_COORDINATOR_MEMBERSHIP_SHARD_DOUBTS_H_
