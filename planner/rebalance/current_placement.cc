#include "planner/rebalance/current_placement.h"

#include <algorithm>
#include <set>
#include <tuple>
#include <unordered_map>
#include <utility>

namespace hotbed {
namespace {

// The current holders of a shard.
struct Holders {
  uint32_t primary = kNobody;
  std::vector<uint32_t> replicas;
  std::string gone;
};

class CurrentPlacement {
 public:
  CurrentPlacement(const PlannerInput& input, const Problem& problem)
      : input_(input), problem_(problem), units_(problem.units.size()) {
    std::unordered_map<std::string, uint32_t> by_name;
    for (uint32_t s = 0; s < input.topology.servers.size(); ++s) {
      by_name.emplace(input.topology.servers[s].name, s);
    }
    for (const PlacedServer& server : input.current->servers) {
      const auto it = by_name.find(server.name);
      server_of_.push_back(it == by_name.end() ? kNobody : it->second);
    }
    for (const PlacedTable& table : input.current->tables) tables_.emplace(table.name, &table);
  }

  std::vector<CurrentUnit> Find() {
    for (uint32_t t = 0; t < input_.tables.size(); ++t) {
      const ProblemTable& table = problem_.tables[t];
      const auto it = tables_.find(input_.tables[t].name);
      if (it == tables_.end()) {
        for (uint32_t u = table.unit_first; u < table.unit_limit; ++u) units_[u].is_new = true;
        continue;
      }
      first_ = table.shard_first;
      FindHolders(*it->second, table);
      for (uint32_t u = table.unit_first; u < table.unit_limit;) {
        const uint32_t limit = problem_.units[u].group_limit;
        AssignGroup(u, limit);
        u = limit;
      }
    }
    return std::move(units_);
  }

 private:
  // The table's shards are in the order of columns, then rows, as they were cut.
  void FindHolders(const PlacedTable& placed, const ProblemTable& table) {
    holders_.assign(table.shard_limit - table.shard_first, {});
    const auto begin = problem_.shards.begin() + table.shard_first;
    const auto end = problem_.shards.begin() + table.shard_limit;
    for (const PlacedRange& range : placed.ranges) {
      const auto first =
          std::lower_bound(begin, end, range, [](const ProblemShard& shard, const PlacedRange& r) {
            return std::tie(shard.range.column_first, shard.range.row_first) <
                   std::tie(r.column_first, r.row_first);
          });
      for (auto it = first;
           it != end && it->range.column_first == range.column_first &&
           it->range.column_limit == range.column_limit && it->range.row_limit <= range.row_limit;
           ++it) {
        AddHolder(holders_[it - begin], range);
      }
    }
  }

  void AddHolder(Holders& holders, const PlacedRange& range) {
    const uint32_t server = server_of_[range.server];
    if (server == kNobody) {
      holders.gone = input_.current->servers[range.server].name;
    } else if (range.role == Role::kPrimary) {
      holders.primary = server;
    } else {
      holders.replicas.push_back(server);
    }
  }

  // A primary that cannot stay swaps roles with a replica that can. Replicas that can stay come
  // first, since some of the others may be surplus.
  void Promote(const Unit& primary, Holders& holders) const {
    std::stable_partition(holders.replicas.begin(), holders.replicas.end(),
                          [&](uint32_t s) { return problem_.servers[s].usable; });
    const uint32_t now = holders.primary;
    const bool bound = primary.host_group != kNobody;  // to the host of its table's other shards
    if (now != kNobody && (bound || problem_.Allows(primary, now))) return;
    auto other = std::find_if(holders.replicas.begin(), holders.replicas.end(),
                              [&](uint32_t s) { return problem_.Allows(primary, s); });
    if (other == holders.replicas.end()) {
      if (now != kNobody || holders.replicas.empty()) return;
      other = holders.replicas.begin();
    }
    holders.primary = *other;
    holders.replicas.erase(other);
    if (now != kNobody) holders.replicas.push_back(now);
  }

  void AssignGroup(uint32_t first, uint32_t limit) {
    const Unit& front = problem_.units[first];
    for (uint32_t s = front.shard_first; s < front.shard_limit; ++s) {
      Holders& holders = holders_[s - first_];
      if (!front.fixed) Promote(front, holders);
      std::vector<uint32_t> fixed;
      if (front.fixed) fixed = FixedHolders(first, limit, holders);
      for (uint32_t u = first; u < limit; ++u) {
        uint32_t server = kNobody;
        if (front.fixed) {
          server = fixed[u - first];
        } else if (u == first) {
          server = holders.primary;
        } else if (u - first <= holders.replicas.size()) {
          server = holders.replicas[u - first - 1];
        }
        units_[u].shard_servers.push_back(server);
        if (server == kNobody) units_[u].gone = holders.gone;
      }
    }
    for (uint32_t u = first; u < limit; ++u) {
      const std::vector<uint32_t>& servers = units_[u].shard_servers;
      const bool together = std::all_of(servers.begin(), servers.end(),
                                        [&](uint32_t s) { return s == servers.front(); });
      if (together) units_[u].server = servers.front();
    }
  }

  // By unit of a fixed group: a replica that each server is to have is there already, or comes from
  // a server that is not to have one any more.
  std::vector<uint32_t> FixedHolders(uint32_t first, uint32_t limit, const Holders& holders) const {
    std::set<uint32_t> having(holders.replicas.begin(), holders.replicas.end());
    if (holders.primary != kNobody) having.insert(holders.primary);
    std::vector<uint32_t> servers(limit - first, kNobody);
    for (uint32_t u = first; u < limit; ++u) {
      const uint32_t at = problem_.allowed[problem_.units[u].allowed].servers.front();
      if (having.erase(at) > 0) servers[u - first] = at;
    }
    for (uint32_t& server : servers) {
      if (server != kNobody || having.empty()) continue;
      server = *having.begin();
      having.erase(having.begin());
    }
    return servers;
  }

  const PlannerInput& input_;
  const Problem& problem_;
  std::vector<uint32_t> server_of_;  // by server of the current plan
  std::unordered_map<std::string, const PlacedTable*> tables_;
  uint32_t first_ = 0;
  std::vector<Holders> holders_;  // of the current table's shards
  std::vector<CurrentUnit> units_;
};

}  // namespace

std::vector<CurrentUnit> CurrentUnits(const PlannerInput& input, const Problem& problem) {
  return CurrentPlacement(input, problem).Find();
}

}  // namespace hotbed
