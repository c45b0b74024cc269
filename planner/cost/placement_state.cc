#include "planner/cost/placement_state.h"

#include <algorithm>

namespace hotbed {

PlacementState::PlacementState(const Problem& problem)
    : problem_(problem),
      servers_(problem.servers.size()),
      server_of_(problem.units.size(), kNobody),
      position_(problem.units.size(), 0),
      host_free_(problem.servers.size(), 0) {
  std::set<uint32_t> zones;
  for (uint32_t s = 0; s < servers_.size(); ++s) {
    const ProblemServer& server = problem.servers[s];
    servers_[s].base = servers_[s].ticks = server.load;
    if (!server.usable) continue;
    by_speed_.emplace(servers_[s].ticks, 0, s);
    if (server.zone != 0) zones.insert(server.zone);
    const uint64_t room = server.capacity.Total();
    uint64_t& host = host_free_[server.host];
    host = host > UINT64_MAX - room ? UINT64_MAX : host + room;
  }
  zones_differ_ = zones.size() > 1;
  for (const Unit& unit : problem.units) {
    if (unit.host_group == kNobody) continue;
    if (unit.host_group >= host_groups_.size()) host_groups_.resize(unit.host_group + 1);
    host_groups_[unit.host_group].bytes += unit.bytes;
  }
}

uint64_t PlacementState::Free(uint32_t server) const {
  const uint64_t total = problem_.servers[server].capacity.Total();
  const uint64_t used = servers_[server].used;
  return used >= total ? 0 : total - used;
}

bool PlacementState::SharesHost(const Unit& unit, uint32_t index, uint32_t server) const {
  const uint32_t host = problem_.servers[server].host;
  for (uint32_t u = unit.group_first; u < unit.group_limit; ++u) {
    const uint32_t other = server_of_[u];
    if (u != index && other != kNobody && problem_.servers[other].host == host) return true;
  }
  return false;
}

bool PlacementState::FitsHostGroup(const Unit& unit, uint32_t index, uint32_t server) const {
  const HostGroup& group = host_groups_[unit.host_group];
  const uint32_t others = group.placed - (server_of_[index] != kNobody ? 1 : 0);
  const uint32_t host = problem_.servers[server].host;
  return others > 0 ? group.host == host : host_free_[host] >= group.bytes;
}

bool PlacementState::RulesAllow(uint32_t unit, uint32_t server) const {
  const Unit& u = problem_.units[unit];
  if (!problem_.Allows(u, server)) return false;
  if (!u.fixed && u.group_limit - u.group_first > 1 && SharesHost(u, unit, server)) return false;
  return u.host_group == kNobody || FitsHostGroup(u, unit, server);
}

bool PlacementState::MayPlace(uint32_t unit, uint32_t server, uint64_t vacated) const {
  const uint64_t bytes = problem_.units[unit].bytes;
  const uint64_t total = problem_.servers[server].capacity.Total();
  const uint64_t used = servers_[server].used - vacated;
  return used <= total && bytes <= total - used && RulesAllow(unit, server);
}

uint32_t PlacementState::ZoneConflicts(uint32_t unit, uint32_t server) const {
  const uint32_t zone = problem_.servers[server].zone;
  const Unit& u = problem_.units[unit];
  if (!zones_differ_ || zone == 0 || u.fixed) return 0;
  uint32_t conflicts = 0;
  for (uint32_t i = u.group_first; i < u.group_limit; ++i) {
    const uint32_t other = server_of_[i];
    if (i != unit && other != kNobody && problem_.servers[other].zone == zone) ++conflicts;
  }
  return conflicts;
}

uint64_t PlacementState::FastBytes(uint32_t server) const {
  const TierCapacity& capacity = problem_.servers[server].capacity;
  // Without a device nothing is lost in host memory; with one, host memory is slower.
  return capacity.device > 0 ? capacity.device : problem_.device ? 0 : capacity.host;
}

bool PlacementState::StaysFast(uint32_t unit, uint32_t server) const {
  return problem_.units[unit].bytes + servers_[server].used <= FastBytes(server);
}

int64_t PlacementState::TicksOf(const ServerState& state, uint32_t server) const {
  if (state.used <= FastBytes(server)) return state.base;
  return state.base + state.tiers.PenaltyTicks(problem_.servers[server].capacity);
}

void PlacementState::ChangeTiers(ServerState& server, const Unit& unit, int sign) {
  for (uint32_t h = unit.heat_first; h < unit.heat_limit; ++h) {
    server.tiers.Change(problem_.heat[h], unit.heat_fraction, sign);
  }
}

int64_t PlacementState::TicksChanged(uint32_t server, uint32_t added, uint32_t removed) {
  ServerState& state = servers_[server];
  int64_t base = state.base;
  uint64_t used = state.used;
  if (removed != kNobody) {
    base -= problem_.units[removed].ticks;
    used -= problem_.units[removed].bytes;
  }
  if (added != kNobody) {
    base += problem_.units[added].ticks;
    used += problem_.units[added].bytes;
  }
  if (used <= FastBytes(server)) return base;
  // Integers: taking it back leaves the tiers as they were.
  if (removed != kNobody) ChangeTiers(state, problem_.units[removed], -1);
  if (added != kNobody) ChangeTiers(state, problem_.units[added], 1);
  const int64_t penalty = state.tiers.PenaltyTicks(problem_.servers[server].capacity);
  if (added != kNobody) ChangeTiers(state, problem_.units[added], -1);
  if (removed != kNobody) ChangeTiers(state, problem_.units[removed], 1);
  return base + penalty;
}

void PlacementState::Apply(uint32_t unit, uint32_t server, int sign) {
  const Unit& u = problem_.units[unit];
  ServerState& state = servers_[server];
  const bool usable = problem_.servers[server].usable;
  if (usable) by_speed_.erase({state.ticks, state.used, server});
  state.base += sign * u.ticks;
  state.used = sign > 0 ? state.used + u.bytes : state.used - u.bytes;
  ChangeTiers(state, u, sign);
  state.ticks = TicksOf(state, server);
  if (usable) by_speed_.emplace(state.ticks, state.used, server);
  const uint32_t host = problem_.servers[server].host;
  host_free_[host] = sign > 0 ? host_free_[host] - u.bytes : host_free_[host] + u.bytes;
  if (u.host_group == kNobody) return;
  host_groups_[u.host_group].placed += sign;
  if (sign > 0) host_groups_[u.host_group].host = host;
}

void PlacementState::Place(uint32_t unit, uint32_t server) {
  Apply(unit, server, 1);
  server_of_[unit] = server;
  position_[unit] = static_cast<uint32_t>(servers_[server].units.size());
  servers_[server].units.push_back(unit);
}

void PlacementState::Remove(uint32_t unit) {
  const uint32_t server = server_of_[unit];
  Apply(unit, server, -1);
  std::vector<uint32_t>& units = servers_[server].units;
  position_[units.back()] = position_[unit];
  units[position_[unit]] = units.back();
  units.pop_back();
  server_of_[unit] = kNobody;
}

void PlacementState::Move(uint32_t unit, uint32_t server) {
  Remove(unit);
  Place(unit, server);
}

void PlacementState::Occupy(uint32_t server, uint64_t bytes, int sign) {
  ServerState& state = servers_[server];
  const bool usable = problem_.servers[server].usable;
  if (usable) by_speed_.erase({state.ticks, state.used, server});
  state.used = sign > 0 ? state.used + bytes : state.used - bytes;
  if (usable) by_speed_.emplace(state.ticks, state.used, server);
}

}  // namespace hotbed
