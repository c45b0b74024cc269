#include "tests/planner/exhaustive_planner.h"

#include <algorithm>
#include <map>
#include <set>
#include <vector>

namespace hotbed {
namespace {

class Enumeration {
 public:
  explicit Enumeration(const Problem& problem)
      : problem_(problem), units_(problem.servers.size()), at_(problem.units.size(), kNobody) {
    std::set<uint32_t> zones;
    for (const ProblemServer& server : problem.servers) {
      if (server.usable && server.zone != 0) zones.insert(server.zone);
    }
    zones_matter_ = zones.size() > 1;
  }

  BestPlacement Run() {
    Descend(0, 0, 0);
    return best_;
  }

 private:
  bool May(uint32_t unit, uint32_t server) const {
    const Unit& u = problem_.units[unit];
    const ProblemServer& s = problem_.servers[server];
    const AllowedServers& allowed = problem_.allowed[u.allowed];
    if (!s.usable) return false;
    if (!allowed.all && std::find(allowed.servers.begin(), allowed.servers.end(), server) ==
                            allowed.servers.end()) {
      return false;
    }
    uint64_t used = u.bytes;
    for (const uint32_t other : units_[server]) used += problem_.units[other].bytes;
    if (used > s.capacity.device + s.capacity.host + s.capacity.spill) return false;
    for (uint32_t other = 0; other < unit; ++other) {
      const Unit& o = problem_.units[other];
      const bool same_host = problem_.servers[at_[other]].host == s.host;
      if (o.group_first == u.group_first && !u.fixed && same_host) return false;
      if (u.host_group != kNobody && o.host_group == u.host_group && !same_host) return false;
    }
    return true;
  }

  uint64_t Conflicts(uint32_t unit, uint32_t server) const {
    const uint32_t zone = problem_.servers[server].zone;
    uint64_t conflicts = 0;
    for (uint32_t other = 0; other < unit; ++other) {
      if (!zones_matter_ || zone == 0 || problem_.units[unit].fixed) continue;
      conflicts += problem_.units[other].group_first == problem_.units[unit].group_first &&
                   problem_.servers[at_[other]].zone == zone;
    }
    return conflicts;
  }

  // Time never falls by another unit, so a branch that is no better than the best one ends.
  bool Worse(uint64_t conflicts, double ms) const {
    if (!best_.feasible) return false;
    return conflicts != best_.zone_conflicts ? conflicts > best_.zone_conflicts : ms >= best_.ms;
  }

  void Descend(uint32_t unit, uint64_t conflicts, double slowest) {
    if (Worse(conflicts, slowest)) return;
    if (unit == problem_.units.size()) {
      double ms = 0;
      for (uint32_t s = 0; s < units_.size(); ++s) {
        if (problem_.servers[s].usable) ms = std::max(ms, ServerMs(problem_, s, units_[s]));
      }
      if (!Worse(conflicts, ms)) best_ = {true, conflicts, ms};
      return;
    }
    for (uint32_t s = 0; s < units_.size(); ++s) {
      if (!May(unit, s)) continue;
      at_[unit] = s;
      units_[s].push_back(unit);
      Descend(unit + 1, conflicts + Conflicts(unit, s),
              std::max(slowest, ServerMs(problem_, s, units_[s])));
      units_[s].pop_back();
    }
  }

  const Problem& problem_;
  bool zones_matter_ = false;
  std::vector<std::vector<uint32_t>> units_;
  std::vector<uint32_t> at_;
  BestPlacement best_;
};

}  // namespace

BestPlacement PlaceExhaustively(const Problem& problem) { return Enumeration(problem).Run(); }

double ServerMs(const Problem& problem, uint32_t server, const std::vector<uint32_t>& units) {
  struct Rows {
    double bytes = 0;
    double host = 0;
    double spill = 0;
  };
  const ProblemServer& s = problem.servers[server];
  double ticks = static_cast<double>(s.load);
  std::map<uint32_t, Rows> classes;
  for (const uint32_t u : units) {
    const Unit& unit = problem.units[u];
    ticks += static_cast<double>(unit.ticks);
    for (uint32_t h = unit.heat_first; h < unit.heat_limit; ++h) {
      Rows& rows = classes[problem.heat[h].heat];
      rows.bytes += problem.heat[h].bytes * unit.heat_fraction;
      rows.host += problem.heat[h].host_extra * unit.heat_fraction;
      rows.spill += problem.heat[h].spill_extra * unit.heat_fraction;
    }
  }
  double device = static_cast<double>(s.capacity.device);
  double host = static_cast<double>(s.capacity.host);
  for (auto it = classes.rbegin(); it != classes.rend(); ++it) {
    const double in_device = std::min(device, it->second.bytes);
    const double in_host = std::min(host, it->second.bytes - in_device);
    device -= in_device;
    host -= in_host;
    const double in_spill = it->second.bytes - in_device - in_host;
    ticks += it->second.host * (in_host + in_spill) / it->second.bytes;
    ticks += it->second.spill * in_spill / it->second.bytes;
  }
  return ticks / problem.ticks_per_ns / 1e6;
}

}  // namespace hotbed
