#include "planner/coordinator/membership/moves_view.h"

#include <algorithm>
#include <string>
#include <vector>

#include "absl/container/btree_set.h"
#include "absl/strings/str_cat.h"
#include "config/units.h"
#include "planner/coordinator/membership/membership_batch.h"
#include "proto/convert.h"

namespace hotbed {
namespace {

constexpr int kMovesListed = 10000;

// The learner that the shard's move or refill is about; nullptr: none. A read replica counts only
// while rows are in flight to it.
const Member* LearnerOf(const Leases& leases, const ShardRecord& record,
                        const v1::ShardGoal* goal) {
  for (const Member& learner : record.learners) {
    if (goal != nullptr) {
      const auto& wanted = goal->servers();
      if (std::count(wanted.begin(), wanted.end(), learner.server) > 0) return &learner;
    } else if (!Contains(record.readers, learner.server) ||
               leases.ProgressOf(record, learner) != nullptr) {
      return &learner;
    }
  }
  return nullptr;
}

// Notes why a transfer takes longer than its bytes at the rate limit.
void SetNote(const v1::TransferProgress& transfer, const v1::TransferLimits& limits,
             v1::ShardMove* move) {
  if (transfer.passes() < 2) return;
  std::string note =
      absl::StrCat("pass ", transfer.passes(), " over its rows: pushes change ",
                   FormatBytes(transfer.changed_bytes_per_s()), "/s of them meanwhile");
  if (transfer.beyond_rate() && limits.bytes_per_s() != 0) {
    absl::StrAppend(&note, ", too much for the ", FormatBytes(limits.bytes_per_s()),
                    "/s that all transfers may take; it goes on beyond that (raise it with "
                    "--bandwidth)");
  }
  move->set_waits_for(note);
}

}  // namespace

std::vector<uint64_t> GoalsToTakeBack(const ClusterState& state, uint64_t number, size_t limit) {
  std::vector<uint64_t> out;
  for (const auto& [packed, goal] : state.goals()) {
    if (out.size() == limit) break;
    if (number != 0 && goal.number() != number) continue;
    auto record = state.shards().find(packed);
    const bool joined = record != state.shards().end() && TargetsOf(goal, record->second).empty();
    if (!joined) out.push_back(packed);
  }
  return out;
}

v1::ListMovesReply ListMoves(const ClusterState& state, const Membership& membership,
                             const Leases& leases, const v1::ListMovesRequest& request) {
  v1::ListMovesReply reply;
  ShardBytes bytes(&leases);
  absl::btree_set<uint64_t> shards = membership.transfers().with_learners();
  for (const auto& [packed, goal] : state.goals()) shards.insert(packed);
  uint64_t total = 0;
  for (const uint64_t packed : shards) {
    auto it = state.shards().find(packed);
    if (it == state.shards().end()) continue;
    const ShardRecord& record = it->second;
    const v1::ShardGoal* const goal = state.FindGoal(packed);
    if (request.number() != 0 && (goal == nullptr || goal->number() != request.number())) continue;
    const Member* const learner = LearnerOf(leases, record, goal);
    if (goal == nullptr && learner == nullptr) continue;
    v1::ShardMove move;
    if (goal != nullptr) *move.mutable_goal() = *goal;
    move.mutable_goal()->set_shard(packed);
    *move.mutable_record() = ToProto(record);
    move.set_bytes_total(bytes.Of(record));
    if (learner != nullptr) {
      const v1::TransferProgress* const progress = leases.ProgressOf(record, *learner);
      const bool joined = membership.reports().Joined(record, *learner);
      move.set_step(joined ? "joining" : "copying");
      if (progress != nullptr) {
        SetNote(*progress, state.move_control().limits(), &move);
        move.set_bytes_copied(progress->bytes_copied());
        move.set_bytes_total(progress->bytes_total());
        reply.set_bytes_per_s(reply.bytes_per_s() + progress->bytes_per_s());
      } else if (joined) {
        move.set_bytes_copied(move.bytes_total());
      }
    } else if (goal != nullptr && !TargetsOf(*goal, record).empty()) {
      move.set_step("waiting");
    } else {
      move.set_bytes_copied(move.bytes_total());
      const bool there = goal != nullptr && record.primary.server == goal->servers(0);
      move.set_step(there ? "dropping" : "switching");
    }
    std::string waits_for = membership.WaitsFor(packed);
    if (!waits_for.empty() && !move.waits_for().empty()) waits_for += ", ";
    move.set_waits_for(waits_for + move.waits_for());
    const uint64_t left = move.bytes_total() - std::min(move.bytes_copied(), move.bytes_total());
    reply.set_bytes_left(reply.bytes_left() + left);
    if (++total <= kMovesListed) *reply.add_moves() = std::move(move);
  }
  reply.set_moves_total(total);
  reply.set_done_total(membership.counts().moves);
  *reply.mutable_limits() = state.move_control().limits();
  reply.set_paused(reply.limits().paused());
  return reply;
}

}  // namespace hotbed
