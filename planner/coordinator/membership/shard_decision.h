// What is next for one shard: the coordinator's rules of membership, as a pure function
// (reliability page, sections 3.4 and 3.5; docs/protocol.md). The coordinator commits what comes
// out by compare-and-set; the simulation of tests/sim drives the same code.
//
// Safe whatever the arguments say: liveness, join reports and goals decide when something happens,
// never whether it may. A decision of a stale record fails its compare.
#ifndef HOTBED_PLANNER_COORDINATOR_MEMBERSHIP_SHARD_DECISION_H_
#define HOTBED_PLANNER_COORDINATOR_MEMBERSHIP_SHARD_DECISION_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "common/ids.h"
#include "common/shard_record.h"

namespace hotbed {

// What is wanted of a shard.
struct ShardWish {
  uint32_t copies = 1;  // members, of the table's durability class
  // Members wanted, the primary first; empty: whoever it is, refilled to `copies`. Servers that are
  // not live are passed over while they are not.
  std::vector<ServerId> servers;
  // Read copies: learners that stay, unless a member is missing and `refill` names their server.
  std::vector<ServerId> readers;
  // The log of a member is on its disk before it acknowledges (all classes but `checkpoint`), so a
  // member that comes back as a new process holds all that it acknowledged.
  bool survives_restart = true;
};

enum class MemberOut : uint8_t {
  kNo,
  kReplicaLost,  // it said itself that its copy is damaged, or differs from its primary's
  kSilent,       // its primary, which counts on it, does not hear of it, and so commits nothing
};

// What is known of servers now. All are asked of servers that the record or the wish names, and of
// candidates for a refill.
struct ServerView {
  // The incarnation that is alive; 0: none.
  absl::FunctionRef<Incarnation(ServerId)> live;
  // That the server may still come back soon with what it holds: nothing new is begun elsewhere.
  absl::FunctionRef<bool(ServerId)> awaited;
  // Where a copy that is missing may go, given who is a member; 0: nowhere.
  absl::FunctionRef<ServerId(const std::vector<ServerId>& members)> refill;
  // A learner that the primary said is in its acknowledging set, in this epoch.
  absl::FunctionRef<bool(Epoch, const Member&)> join_ready;
  // Why a member that lives is to leave, as was said in this epoch: it counts as gone.
  absl::FunctionRef<MemberOut(Epoch, const Member&)> out;
};

enum class ShardStep : uint8_t {
  kNone,         // nothing to do, or something is waited for
  kFailOver,     // members that are gone, or are to, leave; another is primary if it was one
  kTakeBase,     // nobody of an epoch that never was active: the last active one's members
  kTakeBack,     // nobody is left: a member that came back with its log
  kDropLearner,  // it died, or is not wanted any more; a new epoch, see shard_decision.cc
  kAddLearner,
  kLetJoin,  // a read copy is to become a member: the primary may count on it from now on
  kJoin,     // the learner becomes a member
  kSwitch,   // another member becomes primary; the old one stays a member for now
  kDropMember,
};

struct ShardDecision {
  ShardStep step = ShardStep::kNone;
  // What to write; its revision is the store's to give. The first of a new epoch's base was
  // primary.
  ShardRecord next;
  std::string reason;  // of a step: for the event log; of kNone: what is waited for, or empty
};

ShardDecision DecideShard(const ShardRecord& record, const ShardWish& wish, const ServerView& view);

// The rule that the change of a record from `before` to `after` breaks, in words; empty: none.
// `before` of epoch 0: the shard is new.
//   - The primary is a member, and no server holds two replicas.
//   - The epoch stays or rises by one. Within an epoch primary and members stay, and an active
//     record stays active.
//   - A new epoch is not active, and its base are the members of the last active epoch.
//   - A member of a new epoch was a member or learner before, or of the base if the epoch before
//     was never active; or it is alone, a later process of a server that was one of them.
// DecideShard never returns a step that breaks a rule; it ends the process instead.
std::string BrokenRule(const ShardRecord& before, const ShardRecord& after);

}  // namespace hotbed

#endif  // HOTBED_PLANNER_COORDINATOR_MEMBERSHIP_SHARD_DECISION_H_
