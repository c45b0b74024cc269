#include "planner/cost/branch_search.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "planner/cost/greedy.h"

namespace hotbed {
namespace {

class Branches {
 public:
  Branches(PlacementState& state, PlacementScore limit, bool any, SearchBudget& budget)
      : state_(state), problem_(state.problem()), any_(any), budget_(budget), best_(limit) {
    order_ = GreedyOrder(problem_, any ? GreedyAim::kRoom : GreedyAim::kTime);
    rest_.assign(order_.size() + 1, 0);
    for (size_t i = order_.size(); i-- > 0;) {
      rest_[i] = rest_[i + 1] + problem_.units[order_[i]].ticks;
    }
    result_.complete = true;
    result_.server_of.assign(problem_.units.size(), kNobody);
    FindAlike();
  }

  BranchResult Run() {
    Descend(0, 0);
    return std::move(result_);
  }

 private:
  // Two empty servers are interchangeable where nothing tells them apart.
  void FindAlike() {
    std::vector<uint32_t> on_host(problem_.servers.size(), 0);
    bool plain = problem_.allowed.size() == 1;
    for (const ProblemServer& server : problem_.servers) {
      if (++on_host[server.host] > 1 || server.zone != 0) plain = false;
    }
    alike_ = plain;
  }

  bool Alike(uint32_t a, uint32_t b) const {
    const ProblemServer& x = problem_.servers[a];
    const ProblemServer& y = problem_.servers[b];
    return alike_ && state_.UnitsOn(a).empty() && state_.UnitsOn(b).empty() &&
           std::tie(x.capacity.device, x.capacity.host, x.capacity.spill, x.load) ==
               std::tie(y.capacity.device, y.capacity.host, y.capacity.spill, y.load);
  }

  bool CanBeat(size_t depth, uint64_t conflicts) const {
    int64_t sum = rest_[depth];
    for (const auto& [ticks, used, server] : state_.BySpeed()) sum += ticks;
    const int64_t average = (sum + problem_.usable - 1) / problem_.usable;
    return PlacementScore{conflicts, std::max(average, state_.SlowestTicks())} < best_;
  }

  void Descend(size_t depth, uint64_t conflicts) {
    if (!CanBeat(depth, conflicts)) return;
    if (depth == order_.size()) {
      best_ = {conflicts, state_.SlowestTicks()};
      result_.found = true;
      for (uint32_t u = 0; u < problem_.units.size(); ++u) {
        result_.server_of[u] = state_.ServerOf(u);
      }
      return;
    }
    const uint32_t unit = order_[depth];
    std::vector<uint32_t> tried;
    for (const auto& place : PlacementState::Order(state_.BySpeed())) {
      const uint32_t server = std::get<2>(place);
      if (any_ && result_.found) return;
      if (!state_.MayPlace(unit, server)) continue;
      const bool seen = std::any_of(tried.begin(), tried.end(),
                                    [&](uint32_t other) { return Alike(other, server); });
      if (seen) continue;
      tried.push_back(server);
      if (budget_.Spent()) {
        result_.complete = false;
        return;
      }
      ++budget_.evaluations;
      // A conflict counts for both of its members, as in ScoreOf.
      const uint64_t added = 2 * state_.ZoneConflicts(unit, server);
      state_.Place(unit, server);
      Descend(depth + 1, conflicts + added);
      state_.Remove(unit);
    }
  }

  PlacementState& state_;
  const Problem& problem_;
  const bool any_;
  SearchBudget& budget_;
  PlacementScore best_;
  bool alike_ = false;
  std::vector<uint32_t> order_;
  std::vector<int64_t> rest_;  // ticks of the units from a depth on
  BranchResult result_;
};

}  // namespace

BranchResult SearchAll(PlacementState& state, PlacementScore limit, bool any,
                       SearchBudget& budget) {
  return Branches(state, limit, any, budget).Run();
}

}  // namespace hotbed
