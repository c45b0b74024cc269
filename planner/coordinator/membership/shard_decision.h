// The next step of one shard: the coordinator's rules of membership, as a pure function
// (docs/protocol.md). The coordinator commits the result by compare-and-set; the simulation in
// tests/sim drives the same code.
//
// Safe whatever the arguments say: liveness, join reports and goals decide when a step happens,
// never whether it is allowed. A decision about a stale record fails its compare.
#ifndef HOTBED_PLANNER_COORDINATOR_MEMBERSHIP_SHARD_DECISION_H_
#define HOTBED_PLANNER_COORDINATOR_MEMBERSHIP_SHARD_DECISION_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "common/ids.h"
#include "common/tables/shard_record.h"

namespace hotbed {

// The placement wanted of a shard.
struct ShardWish {
  uint32_t replicas = 1;  // members, of the table's durability class
  // Members wanted, the primary first. Empty: any members, refilled to `replicas`. Servers that are
  // not live are passed over until they are.
  std::vector<ServerId> servers;
  // Servers of read replicas: learners that stay learners, unless a member is missing and `refill`
  // names their server.
  std::vector<ServerId> readers;
};

enum class MemberOut : uint8_t {
  kNo,
  kReplicaLost,  // it reported that its replica is damaged, or differs from its primary's
  kSilent,       // its primary, which waits for it, does not hear of it and so commits nothing
};

// Whether a live server is about to stop, and to come back.
enum class ServerStops : uint8_t {
  kNo,
  // It was told to, and others may be about to say the same: nothing is handed to it, and nothing
  // from it yet.
  kSoon,
  // It hands over: as long as another member of a shard stays, that one becomes primary, and this
  // one leaves, so that no push waits for it when it ends.
  kHandsOver,
};

// The report of a process about the replica that it found on its server's disk.
struct HeldReplica {
  bool nothing = false;  // no replica is there
  bool damaged = false;  // it cannot be used
  bool behind = false;   // its rows are newer than its log, which has lost its end
  LogEnd end{};
  // The epoch of which the process has been a member without a restart since, under an earlier
  // incarnation; 0: of none. It holds all that was acknowledged in it.
  Epoch member_of = 0;

  bool usable() const { return !nothing && !damaged; }
  friend bool operator==(const HeldReplica&, const HeldReplica&) = default;
};

// The present knowledge about servers. Called for servers that the record or the wish names, and
// for candidates of a refill.
struct ServerView {
  // The live incarnation; 0: none.
  absl::FunctionRef<Incarnation(ServerId)> live;
  // Whether the server is about to stop, or is gone and may come back soon, with its replicas:
  // until then no replacement is begun elsewhere.
  absl::FunctionRef<bool(ServerId)> awaited;
  // The server for a missing replica, given the members; 0: none.
  absl::FunctionRef<ServerId(const std::vector<ServerId>& members)> refill;
  // Whether the primary reported in this epoch that the learner is in its acknowledging set.
  absl::FunctionRef<bool(Epoch, const Member&)> join_ready;
  // Why a live member is to leave, as reported in this epoch; it then counts as gone.
  absl::FunctionRef<MemberOut(Epoch, const Member&)> out;
  // The replica on the disk of a live process that is no member; nullopt: it has not said yet.
  absl::FunctionRef<std::optional<HeldReplica>(const Member&)> held;
  // Whether the live server has waited long enough for the other members of a shard that has lost
  // all of them.
  absl::FunctionRef<bool(ServerId)> waited;
  // Whether the live server is about to stop.
  absl::FunctionRef<ServerStops(ServerId)> stops;
};

enum class ShardStep : uint8_t {
  kNone,         // nothing to do, or waiting
  kFailOver,     // members that are gone or leaving are left out, with a new primary if needed
  kTakeBase,     // no member of a never active epoch is left: back to the last active one's
  kTakeBack,     // no member is left: takes the one that came back with the most
  kHeard,        // a server that was passed over holds no more than the one that was taken
  kDropLearner,  // it died or is no longer wanted; begins a new epoch, see shard_decision.cc
  kAddLearner,
  kLetJoin,  // a read replica is to become a member: the primary may count on it from now on
  kJoin,     // the learner becomes a member
  kSwitch,   // another member becomes primary; the old primary stays a member for now
  kDropMember,
};

struct ShardDecision {
  ShardStep step = ShardStep::kNone;
  // The record to write; the store sets its revision. The first of a new epoch's base was the
  // primary.
  ShardRecord next;
  std::string reason;    // for the event log; with kNone: what the shard waits for, or empty
  bool stopped = false;  // kNone: no member lives, and nobody can take over yet
};

ShardDecision DecideShard(const ShardRecord& record, const ShardWish& wish, const ServerView& view);

// A person's choice. Where no member of the shard lives: goes on with the replica of `server`
// (kTakeBack), whatever it holds; servers that were not heard of stay passed over. Where one does:
// `server` has to be its primary's, and the servers that were passed over are given up (kHeard).
//   FailedPrecondition  the server is down or is none of those asked, or there is nothing to choose
absl::StatusOr<ShardDecision> ChooseReplica(const ShardRecord& record, ServerId server,
                                            const ServerView& view);

// The rule that the change of a record from `before` to `after` breaks, in words; empty: none.
// `before` of epoch 0: the shard is new.
//   - The primary is a member, and no server holds two replicas.
//   - The epoch stays or rises by one. Within an epoch primary and members stay, and an active
//     record stays active.
//   - A new epoch is not active, and its base are the members of the last active epoch.
//   - A member of a new epoch was a member or learner before, or of the base if the epoch before
//     was never active; or it is alone, a later process of a server that was one of them or was
//     passed over.
//   - A server that was passed over is neither member nor learner.
// DecideShard never returns a step that breaks a rule; it ends the process instead.
std::string BrokenRule(const ShardRecord& before, const ShardRecord& after);

}  // namespace hotbed

#endif  // HOTBED_PLANNER_COORDINATOR_MEMBERSHIP_SHARD_DECISION_H_
