#include "planner/torchrec/rank_topology.h"

#include <algorithm>
#include <limits>
#include <string>
#include <unordered_map>

#include "absl/strings/str_cat.h"

namespace hotbed::torchrec {
namespace {

constexpr double kGibPerMs = 1024.0 * 1024.0 * 1024.0;
constexpr uint64_t kDefaultHbm = uint64_t{32} << 30;
// One less than what a saturated size would be, so that such a size never fits.
constexpr uint64_t kCapacityMax = std::numeric_limits<int64_t>::max() - 1;

double Given(double bandwidth, double fallback) { return bandwidth > 0 ? bandwidth : fallback; }

bool NoHostNamed(const std::vector<InputServer>& servers) {
  return std::all_of(servers.begin(), servers.end(),
                     [](const InputServer& server) { return server.host == server.name; });
}

// Servers that take part, by host in order of appearance.
std::vector<std::vector<uint32_t>> GroupByHost(const Topology& topology) {
  const bool one_host = NoHostNamed(topology.servers);
  std::vector<std::vector<uint32_t>> hosts;
  std::unordered_map<std::string, size_t> index;
  for (uint32_t i = 0; i < topology.servers.size(); ++i) {
    const InputServer& server = topology.servers[i];
    if (server.draining) continue;
    const auto [at, fresh] = index.try_emplace(one_host ? "" : server.host, hosts.size());
    if (fresh) hosts.emplace_back();
    hosts[at->second].push_back(i);
  }
  return hosts;
}

PlanError UnequalHosts(const Topology& topology, const std::vector<uint32_t>& first,
                       const std::vector<uint32_t>& other) {
  PlanError error;
  error.kind = PlanErrorKind::kInput;
  error.limit = first.size();
  error.message = absl::StrCat(
      "strategy torchrec needs hosts with equally many servers that are not draining: host '",
      topology.servers[first[0]].host, "' has ", first.size(), ", host '",
      topology.servers[other[0]].host, "' has ", other.size(),
      "; add or leave out servers, or plan with strategy cost");
  return error;
}

}  // namespace

double RankTopology::CollectiveBandwidth(uint32_t world, uint32_t local,
                                         Collective collective) const {
  // One network card a device: all of a host's take part.
  if (collective == Collective::kAllReduce) return inter_host * local;
  return world <= local ? intra_host : inter_host;
}

std::vector<double> RankTopology::UnevenMemory() const {
  std::vector<double> memory;
  const bool cuda = device == PlannerDevice::kCuda;
  bool even = true;
  for (const Storage& rank : capacity) {
    memory.push_back(static_cast<double>(cuda ? rank.hbm : rank.ddr));
    even = even && memory.back() == memory.front();
  }
  return even ? std::vector<double>() : memory;
}

PlanResult<RankTopology> BuildRankTopology(const PlannerInput& input) {
  const Topology& given = input.topology;
  const std::vector<std::vector<uint32_t>> hosts = GroupByHost(given);
  if (hosts.empty()) {
    PlanError error;
    error.message = "every server is draining: none is left to plan for; add servers";
    return error;
  }
  RankTopology topology;
  topology.device = given.device;
  topology.ranks_per_host = static_cast<uint32_t>(hosts[0].size());
  const bool cuda = given.device == PlannerDevice::kCuda;
  const bool no_device_bytes =
      std::all_of(given.servers.begin(), given.servers.end(),
                  [](const InputServer& server) { return server.device_bytes == 0; });
  for (const std::vector<uint32_t>& host : hosts) {
    if (host.size() != hosts[0].size()) return UnequalHosts(given, hosts[0], host);
    for (const uint32_t i : host) {
      const InputServer& server = given.servers[i];
      const uint64_t hbm = no_device_bytes ? kDefaultHbm : server.device_bytes;
      topology.server_of_rank.push_back(i);
      topology.capacity.push_back({.hbm = cuda ? std::min(hbm, kCapacityMax) : 0,
                                   .ddr = std::min(server.host_bytes, kCapacityMax)});
    }
  }
  topology.ranks = static_cast<uint32_t>(topology.server_of_rank.size());
  const Bandwidths& bandwidth = given.bandwidth;
  topology.memory.hbm = Given(bandwidth.device, 897 * kGibPerMs / 1000);
  topology.memory.ddr = Given(bandwidth.host, 51 * kGibPerMs / 1000);
  topology.memory.hbm_to_ddr = Given(bandwidth.device_host, 32 * kGibPerMs / 1000);
  topology.intra_host = Given(bandwidth.intra_host, 600 * kGibPerMs / 1000);
  topology.inter_host = Given(bandwidth.inter_host, 12.5 * kGibPerMs / 1000);
  return topology;
}

}  // namespace hotbed::torchrec
