#include "planner/cost/local_search.h"

#include <algorithm>
#include <tuple>
#include <utility>

namespace hotbed {
namespace {

constexpr uint32_t kTargets = 8;     // fastest servers tried
constexpr uint32_t kSwapWindow = 3;  // units of the other server on each side of the ideal size

struct Change {
  int64_t slower = 0;  // ticks of the slower of both servers after it
  uint64_t bytes = 0;  // that move
  uint32_t unit = kNobody;
  uint32_t other = kNobody;  // of a swap
  uint32_t server = kNobody;
  bool BetterThan(const Change& c) const {
    if (c.unit == kNobody) return true;
    return std::tie(slower, bytes, unit, other, server) <
           std::tie(c.slower, c.bytes, c.unit, c.other, c.server);
  }
};

class SlowestServer {
 public:
  // With `locked`, only swaps of two moves in a row are looked for, of other units.
  SlowestServer(PlacementState& state, SearchBudget& budget,
                const std::vector<bool>* locked = nullptr, uint64_t bytes_max = UINT64_MAX)
      : state_(state),
        problem_(state.problem()),
        budget_(budget),
        locked_(locked),
        bytes_max_(bytes_max) {
    slowest_ = std::get<2>(*state.BySpeed().rbegin());
    before_ = state.Ticks(slowest_);
    for (const auto& [ticks, used, server] : state.BySpeed()) {
      if (server != slowest_ && targets_.size() < kTargets) targets_.push_back(server);
    }
    units_ = BySize(slowest_);
  }

  Change Best() {
    for (const auto& [ticks, unit] : units_) {
      for (const uint32_t target : TargetsOf(unit)) TryMove(unit, target);
      TryRoles(unit);
    }
    if (best_.unit != kNobody) return best_;
    for (const uint32_t target : targets_) TrySwaps(target);
    return best_;
  }

  SlowestSwap BestSwap() {
    for (const uint32_t target : targets_) TrySwaps(target);
    if (best_.unit == kNobody) return {};
    return {best_.unit, best_.other, best_.server, state_.MayPlace(best_.other, slowest_),
            best_.slower};
  }

  void Execute(const Change& change) {
    if (change.other == kNobody) {
      state_.Move(change.unit, change.server);
      return;
    }
    state_.Remove(change.unit);
    state_.Move(change.other, slowest_);
    state_.Place(change.unit, change.server);
  }

 private:
  using Sized = std::vector<std::pair<int64_t, uint32_t>>;

  // Units that may move, largest first.
  Sized BySize(uint32_t server) const {
    Sized units;
    for (const uint32_t u : state_.UnitsOn(server)) {
      if (MayMove(u)) units.emplace_back(-problem_.units[u].ticks, u);
    }
    std::sort(units.begin(), units.end());
    return units;
  }

  bool MayMove(uint32_t unit) const {
    return !problem_.units[unit].fixed && (locked_ == nullptr || !(*locked_)[unit]);
  }

  // Whether the first of the two moves has room while the second has not begun. Host groups, which
  // move as one, are left out.
  bool MayFollow(uint32_t unit, uint32_t other, uint32_t target) const {
    const Unit& u = problem_.units[unit];
    const Unit& v = problem_.units[other];
    if (u.host_group != kNobody || v.host_group != kNobody) return false;
    if (u.bytes > bytes_max_ || v.bytes > bytes_max_ - u.bytes) return false;
    return state_.MayPlace(other, slowest_) || state_.MayPlace(unit, target);
  }

  // A pinned unit has its own servers, none of which may be among the fastest.
  std::vector<uint32_t> TargetsOf(uint32_t unit) const {
    const AllowedServers& allowed = problem_.allowed[problem_.units[unit].allowed];
    if (allowed.all) return targets_;
    return {allowed.servers.begin(),
            allowed.servers.begin() + std::min<size_t>(allowed.servers.size(), 4 * kTargets)};
  }

  void TryMove(uint32_t unit, uint32_t target) {
    if (budget_.Spent() || target == slowest_) return;
    if (state_.Ticks(target) + problem_.units[unit].ticks >= before_) return;
    if (!state_.MayPlace(unit, target)) return;
    if (state_.ZoneConflicts(unit, target) > state_.ZoneConflicts(unit, slowest_)) return;
    budget_.evaluations += 2;
    const int64_t with = state_.TicksChanged(target, unit, kNobody);
    const int64_t without = state_.TicksChanged(slowest_, kNobody, unit);
    Consider({std::max(with, without), problem_.units[unit].bytes, unit, kNobody, target});
  }

  // Two replicas of the same shards change places: hosts, zones and bytes stay as they are.
  void TryRoles(uint32_t unit) {
    const Unit& u = problem_.units[unit];
    for (uint32_t other = u.group_first; other < u.group_limit; ++other) {
      const Unit& v = problem_.units[other];
      const uint32_t target = state_.ServerOf(other);
      if (budget_.Spent() || other == unit || target == kNobody || v.ticks >= u.ticks ||
          u.host_group != kNobody || v.host_group != kNobody || !problem_.Allows(u, target) ||
          !problem_.Allows(v, slowest_)) {
        continue;
      }
      budget_.evaluations += 2;
      const int64_t there = state_.TicksChanged(target, unit, other);
      const int64_t here = state_.TicksChanged(slowest_, other, unit);
      Consider({std::max(there, here), u.bytes + v.bytes, unit, other, target});
    }
  }

  void TrySwaps(uint32_t target) {
    // Ideal is a unit smaller by half of the difference; times are negated.
    const int64_t half = (before_ - state_.Ticks(target)) / 2;
    TrySwapsNear(target, BySize(target),
                 [&](uint32_t u) { return half - problem_.units[u].ticks; });
    if (!state_.Spills(slowest_)) return;
    // Where memory is short, swap hot rows for colder ones of as many bytes.
    Sized by_bytes;
    for (const uint32_t u : state_.UnitsOn(target)) {
      if (MayMove(u)) by_bytes.emplace_back(problem_.units[u].bytes, u);
    }
    std::sort(by_bytes.begin(), by_bytes.end());
    TrySwapsNear(target, by_bytes,
                 [&](uint32_t u) { return static_cast<int64_t>(problem_.units[u].bytes); });
  }

  template <typename Ideal>
  void TrySwapsNear(uint32_t target, const Sized& others, const Ideal& ideal) {
    for (const auto& [ticks, unit] : units_) {
      const auto at =
          std::lower_bound(others.begin(), others.end(), std::make_pair(ideal(unit), uint32_t{0}));
      const auto begin = at - std::min<std::ptrdiff_t>(kSwapWindow, at - others.begin());
      const auto end = at + std::min<std::ptrdiff_t>(kSwapWindow, others.end() - at);
      for (auto it = begin; it != end; ++it) TrySwap(unit, it->second, target);
    }
  }

  void TrySwap(uint32_t unit, uint32_t other, uint32_t target) {
    const Unit& u = problem_.units[unit];
    const Unit& v = problem_.units[other];
    if (budget_.Spent() || u.group_first == v.group_first) return;
    if (u.host_group != kNobody && u.host_group == v.host_group) return;
    if (!state_.MayPlace(unit, target, v.bytes) || !state_.MayPlace(other, slowest_, u.bytes))
      return;
    if (locked_ != nullptr && !MayFollow(unit, other, target)) return;
    if (state_.ZoneConflicts(unit, target) > state_.ZoneConflicts(unit, slowest_)) return;
    if (state_.ZoneConflicts(other, slowest_) > state_.ZoneConflicts(other, target)) return;
    budget_.evaluations += 2;
    const int64_t there = state_.TicksChanged(target, unit, other);
    const int64_t here = state_.TicksChanged(slowest_, other, unit);
    Consider({std::max(there, here), u.bytes + v.bytes, unit, other, target});
  }

  void Consider(const Change& change) {
    if (change.slower < before_ && change.BetterThan(best_)) best_ = change;
  }

  PlacementState& state_;
  const Problem& problem_;
  SearchBudget& budget_;
  const std::vector<bool>* const locked_;  // or null
  const uint64_t bytes_max_;
  uint32_t slowest_ = 0;
  int64_t before_ = 0;
  std::vector<uint32_t> targets_;
  Sized units_;
  Change best_;
};

}  // namespace

void ImproveSlowest(PlacementState& state, int64_t target, SearchBudget& budget) {
  while (!budget.Spent() && state.SlowestTicks() > target) {
    SlowestServer slowest(state, budget);
    const Change change = slowest.Best();
    if (change.unit == kNobody) return;
    slowest.Execute(change);
  }
}

SlowestSwap FindSwap(PlacementState& state, const std::vector<bool>& locked, uint64_t bytes_max,
                     SearchBudget& budget) {
  return SlowestServer(state, budget, &locked, bytes_max).BestSwap();
}

PlacementScore ScoreOf(const PlacementState& state) {
  PlacementScore score;
  score.ticks = state.SlowestTicks();
  for (uint32_t u = 0; u < state.problem().units.size(); ++u) {
    if (state.ServerOf(u) != kNobody) score.conflicts += state.ZoneConflicts(u, state.ServerOf(u));
  }
  return score;
}

}  // namespace hotbed
