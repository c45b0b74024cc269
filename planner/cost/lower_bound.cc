#include "planner/cost/lower_bound.h"

#include <algorithm>
#include <cmath>
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

double WorkBound(const Problem& problem) {
  const Spilling spilling = SpillingOf(problem);
  const MostTime most(problem);
  double work = spilling.least;
  for (const Unit& unit : problem.units) work += static_cast<double>(unit.ticks);
  std::vector<std::pair<double, double>> servers;
  for (const ProblemServer& server : problem.servers) {
    if (!server.usable) continue;
    const double room = static_cast<double>(server.capacity.Total());
    servers.emplace_back(static_cast<double>(server.load), most.In(room) + spilling.most);
  }
  return FillServers(servers, work * (1 - kSafety));
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

int64_t LowerBoundTicks(const Problem& problem) {
  const double work = std::max(WorkBound(problem), PinnedBound(problem));
  return std::max(static_cast<int64_t>(std::floor(work)), LargeUnitsBound(problem));
}

}  // namespace hotbed
