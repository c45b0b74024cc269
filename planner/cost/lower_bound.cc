#include "planner/cost/lower_bound.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>
#include <vector>

namespace hotbed {
namespace {

constexpr uint32_t kPinnedSetsMax = 64;
constexpr uint32_t kRoundsMax = 8;  // k of bound 3
constexpr double kSafety = 1e-9;    // relative: the sums of doubles here are rounded

// The least sum of `values` that must stay outside of `room` bytes, with the highest values per
// byte inside.
double LeastOutside(std::vector<std::pair<double, double>>& bytes_and_value, double room) {
  std::sort(bytes_and_value.begin(), bytes_and_value.end(),
            [](const auto& a, const auto& b) { return a.second * b.first > b.second * a.first; });
  double outside = 0;
  for (const auto& [bytes, value] : bytes_and_value) {
    const double inside = std::min(room, bytes);
    room -= inside;
    outside += value * ((bytes - inside) / bytes);
  }
  return outside;
}

// Spilling, over all units: the least in all and the most.
struct Spilling {
  double least = 0;
  double most = 0;
};

Spilling SpillingOf(const Problem& problem) {
  double device = 0;
  double memory = 0;
  double needed = 0;
  for (const ProblemServer& server : problem.servers) {
    if (!server.usable) continue;
    device += static_cast<double>(server.capacity.device);
    memory +=
        static_cast<double>(server.capacity.device) + static_cast<double>(server.capacity.host);
  }
  for (const Unit& unit : problem.units) needed += static_cast<double>(unit.bytes);
  Spilling spilling;
  std::vector<std::pair<double, double>> host;
  std::vector<std::pair<double, double>> spill;
  const bool all_fits = needed <= device;
  for (const Unit& unit : problem.units) {
    for (uint32_t h = unit.heat_first; h < unit.heat_limit; ++h) {
      const HeatEntry& entry = problem.heat[h];
      const double f = unit.heat_fraction;
      spilling.most += (entry.host_extra + entry.spill_extra) * f;
      if (entry.bytes * f <= 0) continue;
      if (!all_fits && device > 0) host.emplace_back(entry.bytes * f, entry.host_extra * f);
      if (!all_fits && device <= 0) spilling.least += entry.host_extra * f;
      if (needed > memory) spill.emplace_back(entry.bytes * f, entry.spill_extra * f);
    }
  }
  spilling.least += LeastOutside(host, device) + LeastOutside(spill, memory);
  return spilling;
}

// Prefix sums of the units by time a byte, dearest first: the most time that some bytes can hold.
class MostTime {
 public:
  explicit MostTime(const Problem& problem) {
    std::vector<uint32_t> order(problem.units.size());
    for (uint32_t u = 0; u < order.size(); ++u) order[u] = u;
    const auto density = [&](uint32_t u) {
      return static_cast<double>(problem.units[u].ticks) /
             static_cast<double>(std::max<uint64_t>(1, problem.units[u].bytes));
    };
    std::sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) {
      const double x = density(a);
      const double y = density(b);
      return x != y ? x > y : a < b;
    });
    for (const uint32_t u : order) {
      bytes_.push_back((bytes_.empty() ? 0.0 : bytes_.back()) +
                       static_cast<double>(problem.units[u].bytes));
      ticks_.push_back((ticks_.empty() ? 0.0 : ticks_.back()) +
                       static_cast<double>(problem.units[u].ticks));
    }
  }

  double In(double room) const {
    const size_t i = std::upper_bound(bytes_.begin(), bytes_.end(), room) - bytes_.begin();
    if (i == bytes_.size()) return bytes_.empty() ? 0 : ticks_.back();
    const double bytes = i == 0 ? 0 : bytes_[i - 1];
    const double ticks = i == 0 ? 0 : ticks_[i - 1];
    return ticks + (ticks_[i] - ticks) * (room - bytes) / (bytes_[i] - bytes);
  }

 private:
  std::vector<double> bytes_;
  std::vector<double> ticks_;
};

// The least T with sum min(max(0, T - load), most) >= work.
double FillServers(const std::vector<std::pair<double, double>>& load_and_most, double work) {
  double low = 0;
  double high = 0;
  for (const auto& [load, most] : load_and_most) high = std::max(high, load + most);
  high = std::min(high, 4e18);
  for (int i = 0; i < 100 && high - low > 0.25; ++i) {
    const double middle = (low + high) / 2;
    double taken = 0;
    for (const auto& [load, most] : load_and_most) {
      taken += std::min(std::max(0.0, middle - load), most);
    }
    (taken >= work ? high : low) = middle;
  }
  return low;
}

// Load of each server, and the most time that its room can take.
using LoadAndMost = std::vector<std::pair<double, double>>;

LoadAndMost LoadsOf(const Problem& problem, const Spilling& spilling) {
  const MostTime most(problem);
  LoadAndMost servers;
  for (const ProblemServer& server : problem.servers) {
    const double room = static_cast<double>(server.capacity.Total());
    servers.emplace_back(static_cast<double>(server.load), most.In(room) + spilling.most);
  }
  return servers;
}

double WorkBound(const Problem& problem, const Spilling& spilling, const LoadAndMost& loads) {
  double work = spilling.least;
  for (const Unit& unit : problem.units) work += static_cast<double>(unit.ticks);
  LoadAndMost servers;
  for (size_t s = 0; s < loads.size(); ++s) {
    if (problem.servers[s].usable) servers.push_back(loads[s]);
  }
  return FillServers(servers, work * (1 - kSafety));
}

// The time of the least replicas of all groups without the `outside` most costly ones, and of the
// units that are fixed on one of `servers`.
double LeastReplicas(const Problem& problem, uint32_t outside,
                     const std::vector<uint32_t>& servers) {
  std::vector<bool> inside(problem.servers.size(), false);
  for (const uint32_t s : servers) inside[s] = true;
  double work = 0;
  std::vector<int64_t> ticks;
  for (uint32_t u = 0; u < problem.units.size(); ++u) {
    const Unit& unit = problem.units[u];
    if (unit.fixed) {
      const uint32_t at = problem.allowed[unit.allowed].servers.front();
      work += inside[at] ? static_cast<double>(unit.ticks) : 0;
      continue;
    }
    if (u != unit.group_first || unit.group_limit - u <= outside) continue;
    ticks.clear();
    for (uint32_t i = u; i < unit.group_limit; ++i) ticks.push_back(problem.units[i].ticks);
    std::sort(ticks.begin(), ticks.end());
    for (size_t i = 0; i + outside < ticks.size(); ++i) work += static_cast<double>(ticks[i]);
  }
  return work;
}

// Parts 6 and 7; `domain_of` is by server. The servers are those of the largest bound.
std::pair<double, std::vector<uint32_t>> ApartBound(const Problem& problem,
                                                    const LoadAndMost& loads,
                                                    const std::vector<uint32_t>& domain_of) {
  std::map<uint32_t, std::vector<uint32_t>> servers_of;
  for (uint32_t s = 0; s < domain_of.size(); ++s) {
    if (problem.servers[s].usable) servers_of[domain_of[s]].push_back(s);
  }
  std::vector<std::vector<uint32_t>> domains;
  for (auto& [domain, servers] : servers_of) domains.push_back(std::move(servers));
  std::stable_sort(domains.begin(), domains.end(),
                   [](const auto& a, const auto& b) { return a.size() > b.size(); });
  uint32_t replicas = 1;
  for (const Unit& unit : problem.units) {
    if (!unit.fixed) replicas = std::max(replicas, unit.group_limit - unit.group_first);
  }
  std::pair<double, std::vector<uint32_t>> best;
  if (replicas > domains.size()) return best;  // the rule cannot be kept
  for (uint32_t j = 1; j < std::min<size_t>(replicas, domains.size()); ++j) {
    std::vector<uint32_t> left;
    LoadAndMost of_left;
    for (size_t d = j; d < domains.size(); ++d) {
      for (const uint32_t s : domains[d]) {
        left.push_back(s);
        of_left.push_back(loads[s]);
      }
    }
    const double bound = FillServers(of_left, LeastReplicas(problem, j, left) * (1 - kSafety));
    if (bound > best.first) best = {bound, std::move(left)};
  }
  return best;
}

double PinnedBound(const Problem& problem) {
  if (problem.allowed.size() == 1 || problem.allowed.size() > kPinnedSetsMax) return 0;
  std::vector<double> work(problem.allowed.size(), 0);
  for (const Unit& unit : problem.units) work[unit.allowed] += static_cast<double>(unit.ticks);
  double bound = 0;
  for (size_t i = 1; i < problem.allowed.size(); ++i) {
    const AllowedServers& set = problem.allowed[i];
    double inside = 0;
    for (size_t j = 1; j < problem.allowed.size(); ++j) {
      const auto& other = problem.allowed[j].servers;
      const bool within =
          std::all_of(other.begin(), other.end(), [&](uint32_t s) { return bool{set.holds[s]}; });
      if (within) inside += work[j];
    }
    std::vector<std::pair<double, double>> servers;
    for (const uint32_t s : set.servers) {
      servers.emplace_back(static_cast<double>(problem.servers[s].load), inside);
    }
    bound = std::max(bound, FillServers(servers, inside * (1 - kSafety)));
  }
  return bound;
}

int64_t LargeUnitsBound(const Problem& problem) {
  int64_t least_load = INT64_MAX;
  int64_t bound = 0;
  for (const ProblemServer& server : problem.servers) {
    if (!server.usable) continue;
    least_load = std::min(least_load, server.load);
    bound = std::max(bound, server.load);
  }
  std::vector<int64_t> ticks;
  ticks.reserve(problem.units.size());
  for (const Unit& unit : problem.units) {
    ticks.push_back(unit.ticks);
    const AllowedServers& allowed = problem.allowed[unit.allowed];
    int64_t load = allowed.all ? least_load : INT64_MAX;
    for (const uint32_t s : allowed.servers) load = std::min(load, problem.servers[s].load);
    bound = std::max(bound, load + unit.ticks);
  }
  std::sort(ticks.begin(), ticks.end(), std::greater<int64_t>());
  for (uint32_t k = 1; k <= kRoundsMax && size_t{k} * problem.usable < ticks.size(); ++k) {
    int64_t sum = least_load;
    for (uint32_t i = 0; i <= k; ++i) sum += ticks[size_t{k} * problem.usable - i];
    bound = std::max(bound, sum);
  }
  return bound;
}

}  // namespace

LowerBound LowerBoundOf(const Problem& problem, bool zones) {
  const Spilling spilling = SpillingOf(problem);
  const LoadAndMost loads = LoadsOf(problem, spilling);
  const double work = std::max(WorkBound(problem, spilling, loads), PinnedBound(problem));
  LowerBound bound;
  bound.ticks = std::max(static_cast<int64_t>(std::floor(work)), LargeUnitsBound(problem));
  const auto apart = [&](LowerBound::Part part, const std::vector<uint32_t>& domain_of) {
    auto [ticks, servers] = ApartBound(problem, loads, domain_of);
    if (static_cast<int64_t>(std::floor(ticks)) <= bound.ticks) return;
    bound = {static_cast<int64_t>(std::floor(ticks)), part, std::move(servers)};
  };
  std::vector<uint32_t> hosts;
  std::vector<uint32_t> zone_of;
  const uint32_t servers = static_cast<uint32_t>(problem.servers.size());
  for (uint32_t s = 0; s < servers; ++s) {
    const ProblemServer& server = problem.servers[s];
    hosts.push_back(server.host);
    zone_of.push_back(server.zone != 0 ? servers + server.zone : s);
  }
  apart(LowerBound::Part::kHosts, hosts);
  if (zones) apart(LowerBound::Part::kZones, zone_of);
  return bound;
}

}  // namespace hotbed
