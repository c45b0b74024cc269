#include "planner/cost/greedy.h"

#include <algorithm>
#include <tuple>

namespace hotbed {
namespace {

constexpr uint32_t kProbes = 8;  // servers tried if time is not a plain sum

// The order of candidates; less is better.
using Rank = std::tuple<uint32_t, int64_t, uint64_t, uint32_t>;

class Choice {
 public:
  Choice(PlacementState& state, uint32_t unit, GreedyAim aim)
      : state_(state), unit_(unit), aim_(aim) {}

  // Returns true when no later server, none of which is faster now, can be better.
  bool Try(uint32_t server) {
    if (best_ != kNobody && conflicts_ == 0 && aim_ == GreedyAim::kTime &&
        state_.Ticks(server) >= std::get<1>(rank_)) {
      return true;
    }
    if (!state_.MayPlace(unit_, server)) return false;
    const uint32_t conflicts = state_.ZoneConflicts(unit_, server);
    const int64_t ticks = state_.TicksChanged(server, unit_, kNobody);
    const uint64_t left = state_.Free(server) - state_.problem().units[unit_].bytes;
    const Rank rank = aim_ == GreedyAim::kTime
                          ? Rank{conflicts, ticks, state_.Used(server), server}
                          : Rank{conflicts, static_cast<int64_t>(left >> 1), 0, server};
    if (best_ == kNobody || rank < rank_) {
      rank_ = rank;
      best_ = server;
      conflicts_ = conflicts;
    }
    if (aim_ != GreedyAim::kTime || conflicts > 0) return false;
    return ++probes_ >= kProbes || state_.StaysFast(unit_, server);
  }

  uint32_t best() const { return best_; }

 private:
  PlacementState& state_;
  const uint32_t unit_;
  const GreedyAim aim_;
  Rank rank_;
  uint32_t best_ = kNobody;
  uint32_t conflicts_ = 0;
  uint32_t probes_ = 0;
};

}  // namespace

std::vector<uint32_t> GreedyOrder(const Problem& problem, GreedyAim aim) {
  double time = 1;
  double room = 1;
  for (const Unit& unit : problem.units) time += static_cast<double>(unit.ticks);
  for (const ProblemServer& server : problem.servers) {
    if (server.usable) room += static_cast<double>(server.capacity.Total());
  }
  struct Key {
    uint64_t kind;
    uint32_t host_group;
    double weight;
    uint32_t unit;
  };
  std::vector<Key> keys;
  keys.reserve(problem.units.size());
  for (uint32_t u = 0; u < problem.units.size(); ++u) {
    const Unit& unit = problem.units[u];
    const double bytes = static_cast<double>(unit.bytes) / room;
    const double ticks = static_cast<double>(unit.ticks) / time;
    Key key{problem.servers.size() + 2, kNobody, std::max(bytes, ticks), u};
    if (aim == GreedyAim::kRoom) key.weight = bytes;
    if (unit.host_group != kNobody) {
      key.kind = problem.servers.size() + 1;
      key.host_group = unit.host_group;
    }
    if (!problem.allowed[unit.allowed].all) {
      key.kind = unit.fixed ? 0 : problem.allowed[unit.allowed].servers.size();
    }
    keys.push_back(key);
  }
  std::sort(keys.begin(), keys.end(), [](const Key& a, const Key& b) {
    return std::tie(a.kind, a.host_group, b.weight, a.unit) <
           std::tie(b.kind, b.host_group, a.weight, b.unit);
  });
  std::vector<uint32_t> order;
  order.reserve(keys.size());
  for (const Key& key : keys) order.push_back(key.unit);
  return order;
}

uint32_t ChooseServer(PlacementState& state, uint32_t unit, GreedyAim aim) {
  const Problem& problem = state.problem();
  const AllowedServers& allowed = problem.allowed[problem.units[unit].allowed];
  Choice choice(state, unit, aim);
  if (!allowed.all && allowed.servers.size() * 4 <= problem.servers.size()) {
    std::vector<std::pair<int64_t, uint32_t>> servers;
    for (const uint32_t s : allowed.servers) servers.emplace_back(state.Ticks(s), s);
    std::sort(servers.begin(), servers.end());
    for (const auto& [ticks, server] : servers) {
      if (choice.Try(server)) break;
    }
    return choice.best();
  }
  for (const auto& [ticks, used, server] : state.BySpeed()) {
    if (choice.Try(server)) break;
  }
  return choice.best();
}

namespace {

constexpr size_t kRoomMovesMax = 16;  // units that one makes move

// Moves the `candidates` in their order off `server`, each that finds another place, until `enough`
// bytes are free; takes all back and returns nothing where they don't suffice.
std::vector<std::pair<uint32_t, uint32_t>> MoveOff(PlacementState& state, uint32_t server,
                                                   const std::vector<uint32_t>& candidates,
                                                   uint64_t enough) {
  std::vector<std::pair<uint32_t, uint32_t>> moved;
  for (const uint32_t v : candidates) {
    const uint64_t free = state.Free(server);
    if (free >= enough || moved.size() >= kRoomMovesMax) break;
    state.Occupy(server, free, 1);  // else `v` might choose the server that it is to leave
    const uint32_t to = ChooseServer(state, v, GreedyAim::kRoom);
    state.Occupy(server, free, -1);
    if (to == kNobody) continue;
    state.Move(v, to);
    moved.emplace_back(v, to);
  }
  if (state.Free(server) >= enough) return moved;
  for (auto it = moved.rbegin(); it != moved.rend(); ++it) state.Move(it->first, server);
  return {};
}

}  // namespace

MadeRoom MakeRoom(PlacementState& state, uint32_t unit, const std::vector<bool>& locked) {
  const Problem& problem = state.problem();
  const uint64_t bytes = problem.units[unit].bytes;
  const uint32_t from = state.ServerOf(unit);
  for (const auto& [ticks, used, server] : PlacementState::Order(state.BySpeed())) {
    const uint64_t free = state.Free(server);
    if (server == from || free >= bytes || !state.RulesAllow(unit, server)) continue;
    if (problem.servers[server].capacity.Total() < bytes) continue;
    std::vector<std::pair<uint64_t, uint32_t>> by_size;
    for (const uint32_t v : state.UnitsOn(server)) {
      if (problem.units[v].fixed || (!locked.empty() && locked[v])) continue;
      by_size.emplace_back(problem.units[v].bytes, v);
    }
    std::sort(by_size.begin(), by_size.end());
    const auto enough =
        std::lower_bound(by_size.begin(), by_size.end(), std::make_pair(bytes - free, uint32_t{0}));
    std::vector<uint32_t> candidates;
    for (auto it = enough; it != by_size.end(); ++it) candidates.push_back(it->second);
    for (auto it = enough; it != by_size.begin(); --it) candidates.push_back(std::prev(it)->second);
    MadeRoom made{server, MoveOff(state, server, candidates, bytes)};
    if (!made.moved.empty()) return made;
  }
  return {};
}

uint32_t PlaceGreedily(PlacementState& state, const std::vector<uint32_t>& units, GreedyAim aim) {
  for (const uint32_t unit : units) {
    uint32_t server = ChooseServer(state, unit, aim);
    if (server == kNobody) server = MakeRoom(state, unit, {}).server;
    if (server == kNobody) return unit;
    state.Place(unit, server);
  }
  return kNobody;
}

}  // namespace hotbed
