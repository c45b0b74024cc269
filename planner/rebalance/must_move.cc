#include "planner/rebalance/must_move.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "absl/strings/str_cat.h"

namespace hotbed {
namespace {

class Breaches {
 public:
  Breaches(const PlannerInput& input, const PlacementState& state,
           const std::vector<CurrentUnit>& current)
      : input_(input),
        problem_(state.problem()),
        state_(state),
        current_(current),
        reasons_(current.size()) {}

  std::vector<std::string> Run() {
    FindForced();
    return std::move(reasons_);
  }

 private:
  const std::string& ServerName(uint32_t s) const { return input_.topology.servers[s].name; }
  const std::string& TableName(uint32_t u) const {
    return input_.tables[problem_.units[u].table].name;
  }

  void Force(uint32_t u, std::string reason) {
    if (!reasons_[u].empty()) return;
    reasons_[u] = std::move(reason);
  }

  void FindForced() {
    for (uint32_t u = 0; u < current_.size(); ++u) {
      const Unit& unit = problem_.units[u];
      const CurrentUnit& now = current_[u];
      if (now.is_new) continue;
      if (now.server == kNobody) {
        const bool nowhere = std::all_of(now.shard_servers.begin(), now.shard_servers.end(),
                                         [](uint32_t s) { return s == kNobody; });
        Force(u, !now.gone.empty() ? absl::StrCat(now.gone, " is gone")
                 : unit.fixed      ? absl::StrCat(TableName(u), " is copied to every server")
                 : nowhere         ? absl::StrCat(TableName(u), " has more replicas now")
                                   : absl::StrCat(TableName(u), " is to be on one server"));
      } else if (input_.topology.servers[now.server].unreachable) {
        continue;  // nobody can read it there
      } else if (!problem_.servers[now.server].usable) {
        Force(u, absl::StrCat(ServerName(now.server), " is draining"));
      } else if (!problem_.Allows(unit, now.server)) {
        Force(u, absl::StrCat(TableName(u), " is pinned to others than ", ServerName(now.server)));
      } else if (!unit.fixed && SharesHost(u)) {
        Force(u, absl::StrCat("another replica is on host ",
                              input_.topology.servers[now.server].host));
      }
    }
    GatherHostGroups();
    for (uint32_t s = 0; s < problem_.servers.size(); ++s) {
      if (problem_.servers[s].usable) ShedExcess(s);
    }
  }

  // Whether an earlier member of its group that stays is on its host.
  bool SharesHost(uint32_t u) const {
    const uint32_t host = problem_.servers[current_[u].server].host;
    for (uint32_t o = problem_.units[u].group_first; o < u; ++o) {
      const uint32_t server = current_[o].server;
      if (reasons_[o].empty() && server != kNobody && problem_.servers[server].host == host)
        return true;
    }
    return false;
  }

  // Units of a host group leave for the host that has most of the group's bytes.
  void GatherHostGroups() {
    std::vector<std::vector<uint32_t>> groups;
    for (uint32_t u = 0; u < current_.size(); ++u) {
      const uint32_t group = problem_.units[u].host_group;
      if (group == kNobody || current_[u].server == kNobody) continue;
      if (group >= groups.size()) groups.resize(group + 1);
      groups[group].push_back(u);
    }
    std::vector<uint64_t> bytes(problem_.servers.size(), 0);
    for (const std::vector<uint32_t>& units : groups) {
      uint32_t best = kNobody;
      for (const uint32_t u : units) {
        const ProblemServer& server = problem_.servers[current_[u].server];
        if (!server.usable) continue;
        bytes[server.host] += problem_.units[u].bytes;
        if (best == kNobody || bytes[server.host] > bytes[best]) best = server.host;
      }
      for (const uint32_t u : units) bytes[problem_.servers[current_[u].server].host] = 0;
      for (const uint32_t u : units) {
        if (best != kNobody && problem_.servers[current_[u].server].host != best) {
          Force(u, absl::StrCat(TableName(u), " is to be on one host"));
        }
      }
    }
  }

  void ShedExcess(uint32_t s) {
    const uint64_t room = problem_.servers[s].capacity.Total();
    uint64_t stays = state_.Used(s);
    std::vector<std::pair<uint64_t, uint32_t>> units;
    for (const uint32_t u : state_.UnitsOn(s)) {
      if (!reasons_[u].empty()) {
        stays -= problem_.units[u].bytes;
      } else if (!problem_.units[u].fixed) {
        units.emplace_back(problem_.units[u].bytes, u);
      }
    }
    std::sort(units.begin(), units.end());
    while (stays > room && !units.empty()) {
      auto it = std::lower_bound(units.begin(), units.end(), std::make_pair(stays - room, 0u));
      if (it == units.end()) --it;
      stays -= it->first;
      Force(it->second, absl::StrCat(ServerName(s), " is above its capacity"));
      units.erase(it);
    }
  }

  const PlannerInput& input_;
  const Problem& problem_;
  const PlacementState& state_;
  const std::vector<CurrentUnit>& current_;
  std::vector<std::string> reasons_;
};

}  // namespace

std::vector<std::string> MustMove(const PlannerInput& input, const PlacementState& state,
                                  const std::vector<CurrentUnit>& current) {
  return Breaches(input, state, current).Run();
}

}  // namespace hotbed
