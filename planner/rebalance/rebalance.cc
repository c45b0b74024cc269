#include "planner/rebalance/rebalance.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "planner/cost/greedy.h"
#include "planner/cost/solve.h"
#include "planner/rebalance/current_placement.h"
#include "planner/rebalance/must_move.h"

namespace hotbed {
namespace {

constexpr int kDialSteps = 8;
constexpr uint32_t kTargets = 4;    // fastest servers tried for a voluntary move
constexpr int64_t kSwapWorth = 20;  // a swap relieves at least this part of the slowest's time

class Rebalancing {
 public:
  Rebalancing(const PlannerInput& input, PlacementState& state, int64_t lower_bound)
      : input_(input),
        problem_(state.problem()),
        state_(state),
        lower_bound_(lower_bound),
        current_(CurrentUnits(input, state.problem())),
        locked_(state.problem().units.size(), false),
        forced_(state.problem().units.size(), false) {
    budget_.evaluations_max = input.options.evaluations_max;
  }

  PlanResult<std::vector<PlannedMove>> Run() {
    LoadCurrent();
    FindForced();
    std::optional<PlanError> error = MoveForced();
    if (!error.has_value()) error = CheckMoveBytes();
    if (!error.has_value()) error = PlaceNew();
    if (!error.has_value()) error = CheckRoom();
    if (error.has_value()) return *std::move(error);
    Relieve();
    return std::move(moves_);
  }

 private:
  const std::string& ServerName(uint32_t s) const { return input_.topology.servers[s].name; }
  const std::string& TableName(uint32_t u) const {
    return input_.tables[problem_.units[u].table].name;
  }

  void LoadCurrent() {
    for (uint32_t u = 0; u < current_.size(); ++u) {
      if (current_[u].server != kNobody) {
        state_.Place(u, current_[u].server);
        continue;
      }
      ForScattered(u, 1);
    }
  }

  void ForScattered(uint32_t u, int sign) {
    const std::vector<uint32_t>& servers = current_[u].shard_servers;
    for (uint32_t i = 0; i < servers.size(); ++i) {
      if (servers[i] == kNobody) continue;
      state_.Occupy(servers[i], problem_.shards[problem_.units[u].shard_first + i].bytes, sign);
    }
  }

  void FindForced() {
    reasons_ = MustMove(input_, state_, current_);
    for (uint32_t u = 0; u < current_.size(); ++u) forced_[u] = !reasons_[u].empty();
    LetHostGroupsChoose();
  }

  // A leaving unit has no part in the choice of its group's host any more, but still occupies room.
  void LetHostGroupsChoose() {
    for (uint32_t u = 0; u < current_.size(); ++u) {
      if (problem_.units[u].host_group == kNobody || !forced_[u]) continue;
      if (state_.ServerOf(u) == kNobody) continue;
      state_.Remove(u);
      ForScattered(u, 1);
    }
    for (uint32_t u = 0; u < current_.size(); ++u) {
      const uint32_t server = state_.ServerOf(u);
      // Placed again, it says which host its group has.
      if (problem_.units[u].host_group != kNobody && server != kNobody) state_.Move(u, server);
    }
  }

  std::optional<PlanError> MoveForced() {
    std::vector<uint32_t> open;
    for (const uint32_t u : GreedyOrder(problem_, GreedyAim::kTime)) {
      if (forced_[u]) open.push_back(u);
    }
    // A unit without room may find some once others have moved.
    while (!open.empty()) {
      std::vector<uint32_t> left;
      for (const uint32_t u : open) {
        if (locked_[u]) continue;  // has made room for another
        const uint32_t target = TargetOf(u);
        if (target == kNobody) {
          left.push_back(u);
        } else {
          MoveUnit(u, target);
        }
      }
      if (left.size() == open.size() && !left.empty()) {
        const uint32_t target = RoomFor(left.front());
        if (target == kNobody) return NoRoomError(input_, state_, left.front());
        MoveUnit(left.front(), target);
        left.erase(left.begin());
      }
      open = std::move(left);
    }
    return std::nullopt;
  }

  // A scattered unit has room where some of it is already.
  uint32_t TargetOf(uint32_t u) {
    const CurrentUnit& now = current_[u];
    if (now.is_new || now.server != kNobody) return ChooseServer(state_, u, GreedyAim::kTime);
    uint32_t best = kNobody;
    uint64_t most = 0;
    for (uint32_t i = 0; i < now.shard_servers.size(); ++i) {
      const uint32_t s = now.shard_servers[i];
      if (s == kNobody) continue;
      const uint64_t there = BytesThere(u, s);
      if (there > most && state_.MayPlace(u, s, there)) {
        best = s;
        most = there;
      }
    }
    return best != kNobody ? best : ChooseServer(state_, u, GreedyAim::kTime);
  }

  uint64_t BytesThere(uint32_t u, uint32_t server) const {
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < current_[u].shard_servers.size(); ++i) {
      if (current_[u].shard_servers[i] != server) continue;
      bytes += problem_.shards[problem_.units[u].shard_first + i].bytes;
    }
    return bytes;
  }

  uint32_t RoomFor(uint32_t u) {
    const MadeRoom room = MakeRoom(state_, u, locked_);
    if (room.server == kNobody) return kNobody;
    // They have moved in the state; units of a new table are nowhere yet, so placing them is no
    // move.
    for (const auto& [unit, to] : room.moved) {
      reasons_[unit] =
          absl::StrCat("makes room for ", TableName(u), " on ", ServerName(room.server));
      if (!current_[unit].is_new) Record(unit, to);
    }
    return room.server;
  }

  void MoveUnit(uint32_t u, uint32_t target) {
    if (current_[u].is_new) {
      if (state_.ServerOf(u) != kNobody) state_.Remove(u);
      state_.Place(u, target);
      return;
    }
    if (state_.ServerOf(u) != kNobody) {
      state_.Remove(u);
    } else {
      ForScattered(u, -1);
    }
    state_.Place(u, target);
    Record(u, target);
  }

  // The moves of its shards, from where they are.
  void Record(uint32_t u, uint32_t target) {
    locked_[u] = true;
    const Unit& unit = problem_.units[u];
    for (uint32_t i = 0; i < unit.shard_limit - unit.shard_first; ++i) {
      const uint32_t from = current_[u].shard_servers[i];
      if (from == target) continue;
      const ProblemShard& shard = problem_.shards[unit.shard_first + i];
      moves_.push_back({TableName(u), shard.range.row_first, shard.range.row_limit,
                        shard.range.column_first, shard.range.column_limit,
                        from == kNobody ? std::string() : ServerName(from), ServerName(target),
                        shard.bytes, reasons_[u]});
      moved_bytes_ += shard.bytes;
    }
  }

  std::optional<PlanError> CheckMoveBytes() const {
    const std::optional<uint64_t> most = input_.options.move_bytes_max;
    if (!most.has_value() || moved_bytes_ <= *most) return std::nullopt;
    PlanError error;
    error.kind = PlanErrorKind::kStrictConstraints;
    error.limit = *most;
    error.missing_bytes = moved_bytes_ - *most;
    error.message = absl::StrCat("what has to move (", moves_.front().table,
                                 " first: ", moves_.front().reason, ") is ", moved_bytes_,
                                 " bytes, move_bytes_max is ", *most, ": ", *error.missing_bytes,
                                 " bytes too little; raise it, or drain fewer servers at a time");
    return error;
  }

  std::optional<PlanError> PlaceNew() {
    for (const uint32_t u : GreedyOrder(problem_, GreedyAim::kTime)) {
      if (!current_[u].is_new) continue;
      uint32_t target = ChooseServer(state_, u, GreedyAim::kTime);
      if (target == kNobody) target = RoomFor(u);
      if (target == kNobody) return NoRoomError(input_, state_, u);
      MoveUnit(u, target);
    }
    return CheckMoveBytes();
  }

  // Units that cannot move (replicas on every server) may still exceed a capacity that has shrunk.
  std::optional<PlanError> CheckRoom() const {
    for (uint32_t s = 0; s < problem_.servers.size(); ++s) {
      const uint64_t room = problem_.servers[s].capacity.Total();
      if (!problem_.servers[s].usable || state_.Used(s) <= room) continue;
      PlanError error;
      error.kind = PlanErrorKind::kInsufficientStorage;
      error.limit = room;
      error.missing_bytes = state_.Used(s) - room;
      error.message = absl::StrCat(
          ServerName(s), " has ", room, " bytes and must hold ", state_.Used(s), ": ",
          *error.missing_bytes,
          " bytes are missing there; add host or spill bytes, or have fewer data_parallel tables");
      return error;
    }
    return std::nullopt;
  }

  int64_t Times(double factor) const {
    return static_cast<int64_t>(static_cast<double>(lower_bound_) * factor);
  }

  void Relieve() {
    const int64_t before = state_.SlowestTicks();
    if (before <= Times(kGoodEnough)) return;
    const size_t moves_before = moves_.size();
    // Where bytes are limited, all servers get faster together: else the limit might be spent on
    // some of the slowest, and the others would stay slow.
    const int steps = input_.options.move_bytes_max.has_value() ? kDialSteps : 1;
    for (int i = 1; i <= steps; ++i) {
      aim_ = before - (before - Times(kAimedAt)) / steps * i;
      while (!budget_.Spent() && state_.SlowestTicks() > aim_) {
        if (!RelieveSlowest() && !SwapSlowest()) break;
      }
    }
    const double wanted = static_cast<double>(before) * kWorthMoving;
    if (static_cast<double>(state_.SlowestTicks()) <= wanted) return;
    // Not worth it: put the units back.
    for (auto it = undo_.rbegin(); it != undo_.rend(); ++it) state_.Move(it->first, it->second);
    moves_.resize(moves_before);
  }

  // Moves units off the slowest server until it is at the aim; false where none could.
  bool RelieveSlowest() {
    const uint32_t slowest = std::get<2>(*state_.BySpeed().rbegin());
    struct Candidate {
      uint32_t unit;
      int64_t relief;
      bool tried;
    };
    std::vector<Candidate> candidates;
    for (const uint32_t u : state_.UnitsOn(slowest)) {
      if (problem_.units[u].fixed || locked_[u]) continue;
      ++budget_.evaluations;
      const int64_t relief = state_.Ticks(slowest) - state_.TicksChanged(slowest, kNobody, u);
      if (relief > 0) candidates.push_back({u, relief, false});
    }
    bool any = false;
    while (!budget_.Spent() && state_.Ticks(slowest) > aim_) {
      const double need = static_cast<double>(state_.Ticks(slowest) - aim_);
      Candidate* best = nullptr;
      double best_density = 0;
      for (Candidate& c : candidates) {
        if (c.tried) continue;
        const double density =
            std::min(need, static_cast<double>(c.relief)) / (1 + BytesToMove(c.unit));
        if (best == nullptr || density > best_density ||
            (density == best_density && c.unit < best->unit)) {
          best = &c;
          best_density = density;
        }
      }
      if (best == nullptr) break;
      best->tried = true;
      any = TryRelief(best->unit, slowest) || any;
    }
    return any;
  }

  // Where no single unit can leave the slowest server, it may change places with a lighter one.
  bool SwapSlowest() {
    const uint64_t left = input_.options.move_bytes_max.value_or(UINT64_MAX) - moved_bytes_;
    const SlowestSwap swap = FindSwap(state_, locked_, left, budget_);
    if (swap.unit == kNobody) return false;
    const uint32_t slowest = state_.ServerOf(swap.unit);
    const int64_t before = state_.Ticks(slowest);
    if (before - swap.slower < before / kSwapWorth) return false;
    const std::string reason =
        absl::StrFormat("a swap that relieves %s, the slowest: %.4g to %.4g ms",
                        ServerName(slowest), problem_.Ms(before), problem_.Ms(swap.slower));
    std::pair<uint32_t, uint32_t> moves[] = {{swap.unit, swap.server}, {swap.other, slowest}};
    if (swap.other_first) std::swap(moves[0], moves[1]);
    for (const auto& [unit, target] : moves) {
      undo_.emplace_back(unit, state_.ServerOf(unit));
      reasons_[unit] = reason;
      MoveUnit(unit, target);
    }
    return true;
  }

  double BytesToMove(uint32_t u) const {
    return current_[u].is_new ? 0 : static_cast<double>(problem_.units[u].bytes);
  }

  bool TryRelief(uint32_t u, uint32_t slowest) {
    const uint64_t bytes = current_[u].is_new ? 0 : problem_.units[u].bytes;
    const std::optional<uint64_t> most = input_.options.move_bytes_max;
    if (most.has_value() && bytes > *most - moved_bytes_) return false;
    const int64_t before = state_.Ticks(slowest);
    const int64_t here = state_.TicksChanged(slowest, kNobody, u);
    uint32_t target = kNobody;
    int64_t least = before;
    uint32_t tried = 0;
    for (const auto& [ticks, used, s] : state_.BySpeed()) {
      if (tried >= kTargets || ticks >= least) break;
      if (s == slowest || !state_.MayPlace(u, s)) continue;
      if (state_.ZoneConflicts(u, s) > state_.ZoneConflicts(u, slowest)) continue;
      ++tried;
      ++budget_.evaluations;
      const int64_t there = state_.TicksChanged(s, u, kNobody);
      if (there < least) {
        least = there;
        target = s;
      }
    }
    // A move that only passes the load on is none.
    if (target == kNobody || (least > aim_ && least > here + (before - here) / 2)) {
      return false;
    }
    undo_.emplace_back(u, slowest);
    reasons_[u] = absl::StrFormat("relieves %s, the slowest: %.4g to %.4g ms", ServerName(slowest),
                                  problem_.Ms(before), problem_.Ms(here));
    MoveUnit(u, target);
    return true;
  }

  const PlannerInput& input_;
  const Problem& problem_;
  PlacementState& state_;
  const int64_t lower_bound_;
  std::vector<CurrentUnit> current_;
  std::vector<bool> locked_;  // moved already
  std::vector<bool> forced_;
  std::vector<std::string> reasons_;
  std::vector<PlannedMove> moves_;
  uint64_t moved_bytes_ = 0;
  std::vector<std::pair<uint32_t, uint32_t>> undo_;  // voluntary: unit, where it was
  int64_t aim_ = 0;  // ticks that the slowest server should come down to
  SearchBudget budget_;
};

}  // namespace

PlanResult<std::vector<PlannedMove>> Rebalance(const PlannerInput& input, PlacementState& state,
                                               int64_t lower_bound) {
  return Rebalancing(input, state, lower_bound).Run();
}

}  // namespace hotbed
