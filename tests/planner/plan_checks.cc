#include "tests/planner/plan_checks.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "absl/numeric/int128.h"
#include "absl/strings/str_cat.h"

namespace hotbed {
namespace {

using Key = std::tuple<uint64_t, uint64_t, uint32_t, uint32_t>;

Key KeyOf(const PlacedRange& r) {
  return {r.row_first, r.row_limit, r.column_first, r.column_limit};
}

std::string Words(const PlacedTable& table, const PlacedRange& r) {
  return absl::StrCat(table.name, " rows [", r.row_first, ", ", r.row_limit, ") columns [",
                      r.column_first, ", ", r.column_limit, ") on server ", r.server);
}

bool Overlap(const PlacedRange& a, const PlacedRange& b) {
  return a.row_first < b.row_limit && b.row_first < a.row_limit &&
         a.column_first < b.column_limit && b.column_first < a.column_limit;
}

const TableConstraint* ConstraintOf(const PlannerInput& input, uint32_t table) {
  for (const TableConstraint& c : input.options.constraints) {
    if (c.table == table) return &c;
  }
  return nullptr;
}

uint64_t RowsOf(const InputTable& table) { return table.hashed ? 65536 : table.rows; }

std::string CheckTiling(const InputTable& table, const PlacedTable& placed) {
  absl::uint128 area = 0;
  std::vector<PlacedRange> primaries;
  for (const PlacedRange& r : placed.ranges) {
    if (r.row_first >= r.row_limit || r.column_first >= r.column_limit ||
        r.row_limit > RowsOf(table) || r.column_limit > table.dim) {
      return "empty or outside: " + Words(placed, r);
    }
    if (r.role != Role::kPrimary) continue;
    primaries.push_back(r);
    area += absl::uint128(r.row_limit - r.row_first) * (r.column_limit - r.column_first);
  }
  for (size_t i = 0; i < primaries.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      if (Overlap(primaries[i], primaries[j])) return "owned twice: " + Words(placed, primaries[i]);
    }
  }
  if (area != absl::uint128(RowsOf(table)) * table.dim) return "not all owned: " + placed.name;
  return "";
}

std::string CheckReplicas(const PlannerInput& input, uint32_t t, const PlacedTable& placed) {
  std::map<Key, std::vector<const PlacedRange*>> members;
  for (const PlacedRange& r : placed.ranges) members[KeyOf(r)].push_back(&r);
  for (const auto& [key, ranges] : members) {
    std::set<std::string> hosts;
    size_t primaries = 0;
    size_t backups = 0;
    size_t replicas = 0;
    std::string primary_host;
    for (const PlacedRange* r : ranges) {
      hosts.insert(input.topology.servers[r->server].host);
      primaries += r->role == Role::kPrimary;
      backups += r->role == Role::kBackup;
      replicas += r->role == Role::kReplica;
      if (r->role == Role::kPrimary) primary_host = input.topology.servers[r->server].host;
    }
    if (primaries != 1) return "not one primary: " + Words(placed, *ranges[0]);
    if (placed.sharding == Sharding::kDataParallel) {
      size_t others = 0;
      for (const InputServer& s : input.topology.servers) {
        others += !s.draining && s.host != primary_host;
      }
      if (replicas != others || backups != 0) return "replicas: " + Words(placed, *ranges[0]);
      continue;
    }
    if (backups + 1 != input.tables[t].replicas) return "replicas: " + Words(placed, *ranges[0]);
    if (hosts.size() != ranges.size()) return "replicas share a host: " + Words(placed, *ranges[0]);
  }
  return "";
}

}  // namespace

std::string CheckCapacities(const PlannerInput& input, const PlannerOutput& plan) {
  std::vector<absl::uint128> used(input.topology.servers.size(), 0);
  for (const PlacedTable& table : plan.tables) {
    for (const PlacedRange& r : table.ranges) used[r.server] += r.bytes;
  }
  for (size_t s = 0; s < used.size(); ++s) {
    const InputServer& server = input.topology.servers[s];
    const TierBytes& tiers = plan.servers[s].bytes;
    const bool cuda = input.topology.device == PlannerDevice::kCuda;
    if (used[s] != absl::uint128(tiers.device) + tiers.host + tiers.spill) {
      return absl::StrCat(server.name, ": the tiers are not the sum of the ranges");
    }
    if (tiers.device > (cuda ? server.device_bytes : 0) || tiers.host > server.host_bytes ||
        tiers.spill > server.spill_bytes) {
      return absl::StrCat(server.name, ": above a capacity");
    }
    if (server.draining && used[s] > 0) return server.name + ": drains and is not empty";
  }
  return "";
}

std::string CheckOwners(const PlannerInput& input, const PlannerOutput& plan) {
  if (plan.tables.size() != input.tables.size()) return "tables are missing";
  for (uint32_t t = 0; t < plan.tables.size(); ++t) {
    std::string breach = CheckTiling(input.tables[t], plan.tables[t]);
    if (breach.empty()) breach = CheckReplicas(input, t, plan.tables[t]);
    if (!breach.empty()) return breach;
  }
  return "";
}

std::string CheckConstraints(const PlannerInput& input, const PlannerOutput& plan) {
  for (uint32_t t = 0; t < plan.tables.size(); ++t) {
    const PlacedTable& placed = plan.tables[t];
    const InputTable& table = input.tables[t];
    const bool row_state = table.optimizer == PlannerOptimizer::kRowwiseAdagrad ||
                           table.weight == PlannerWeight::kInt8;
    const TableConstraint* const c = ConstraintOf(input, t);
    std::set<uint32_t> servers;
    for (const PlacedRange& r : placed.ranges) {
      const bool cut = r.column_limit - r.column_first < table.dim;
      if (cut && row_state && table.row_statistics == RowStatistics::kRow) {
        return "columns cut: " + Words(placed, r);
      }
      if (r.role == Role::kPrimary) servers.insert(r.server);
    }
    if (c == nullptr) continue;
    for (const uint32_t s : servers) {
      const auto& pins = c->servers;
      if (!pins.empty() && std::find(pins.begin(), pins.end(), s) == pins.end()) {
        return absl::StrCat(placed.name, " is not pinned to server ", s);
      }
    }
    if (c->sharding.empty()) continue;
    if (std::find(c->sharding.begin(), c->sharding.end(), placed.sharding) == c->sharding.end()) {
      return placed.name + " has a sharding that it may not have";
    }
    std::set<std::string> hosts;
    for (const uint32_t s : servers) hosts.insert(input.topology.servers[s].host);
    if (placed.sharding == Sharding::kTableWise && servers.size() > 1)
      return placed.name + " split";
    if ((placed.sharding == Sharding::kTableRowWise ||
         placed.sharding == Sharding::kTableColumnWise) &&
        hosts.size() > 1) {
      return placed.name + " is on several hosts";
    }
  }
  return "";
}

std::string CheckShards(const PlannerInput& input, const PlannerOutput& plan) {
  for (uint32_t t = 0; t < plan.tables.size(); ++t) {
    std::set<Key> shards;
    uint64_t bytes = 0;
    uint64_t rows_a_shard = 0;
    for (const PlacedRange& r : plan.tables[t].ranges) {
      if (r.role != Role::kPrimary) continue;
      shards.insert(KeyOf(r));
      // The limits are about weights and state: the index entry of a hashed row (14 bytes) aside.
      const uint64_t rows = r.elements / (r.column_limit - r.column_first);
      const uint64_t stored = r.bytes - (input.tables[t].hashed ? 14 * rows : 0);
      bytes += stored;
      rows_a_shard = std::max(rows_a_shard, r.row_limit - r.row_first);
      if (stored > (uint64_t{256} << 20)) return "too large: " + Words(plan.tables[t], r);
    }
    if (shards.size() > 1024) return plan.tables[t].name + ": too many shards";
    if (bytes > (uint64_t{1} << 20) + 4096 && shards.size() < 8 && rows_a_shard > 1) {
      return plan.tables[t].name + ": too few shards";
    }
  }
  return "";
}

namespace {

// The current plan while its moves are executed: who holds which shard of which table.
class Execution {
 public:
  Execution(const PlannerInput& input, const PlannerOutput& plan) : input_(input), plan_(plan) {
    for (const InputServer& server : input.topology.servers) {
      const bool cuda = input.topology.device == PlannerDevice::kCuda;
      room_[server.name] =
          server.host_bytes + server.spill_bytes + (cuda ? server.device_bytes : 0);
    }
    for (const PlacedTable& table : plan.tables) {
      for (const PlacedRange& r : table.ranges) {
        wanted_[{table.name, KeyOf(r)}].insert(plan.servers[r.server].name);
      }
    }
    LoadCurrent();
  }

  std::string Run() {
    std::set<std::tuple<std::string, Key, std::string>> moved;
    for (const PlannedMove& move : plan_.moves) {
      const Key key{move.row_first, move.row_limit, move.column_first, move.column_limit};
      const std::string words = absl::StrCat(move.table, " row ", move.row_first, " from ",
                                             move.from, " to ", move.to, ": ", move.reason);
      auto& holders = holders_[{move.table, key}];
      if (move.from.empty() == holders.empty() && move.from.empty() && !lost_.count(move.table)) {
        return "from nowhere: " + words;
      }
      if (!move.from.empty() && holders.erase(move.from) == 0) return "not there: " + words;
      if (!holders.insert(move.to).second) return "there already: " + words;
      if (!moved.insert({move.table, key, move.to}).second) return "twice: " + words;
      if (!move.from.empty() && moved.count({move.table, key, move.from}) > 0) {
        return "moved on: " + words;
      }
      if (move.reason.empty()) return "no reason: " + words;
      used_[move.to] += move.bytes;
      if (used_[move.to] > room_[move.to]) return "no room: " + words;
      if (!move.from.empty()) used_[move.from] -= move.bytes;
    }
    for (const auto& [shard, servers] : holders_) {
      if (servers != wanted_[shard]) return "not where the plan says: " + shard.first;
    }
    return "";
  }

 private:
  // Only kept ranges count: dropped tables, servers that are gone and surplus replicas are out.
  void LoadCurrent() {
    std::map<std::string, size_t> replicas;
    for (const InputTable& table : input_.tables) replicas[table.name] = table.replicas;
    for (const PlacedTable& table : input_.current->tables) {
      if (replicas.count(table.name) == 0) continue;
      for (const PlacedRange& r : table.ranges) {
        const std::string& server = input_.current->servers[r.server].name;
        if (IsDroppedReplica(table, r, server)) continue;
        if (room_.count(server) == 0) {
          lost_.insert(table.name);
          holders_[{table.name, KeyOf(r)}];
          continue;
        }
        holders_[{table.name, KeyOf(r)}].insert(server);
        used_[server] += r.bytes;
      }
    }
  }

  // A replica of a table on every server that is no longer wanted goes nowhere.
  bool IsDroppedReplica(const PlacedTable& table, const PlacedRange& r,
                        const std::string& server) const {
    for (const PlacedTable& planned : plan_.tables) {
      if (planned.name != table.name) continue;
      const auto it = wanted_.find({table.name, KeyOf(r)});
      const bool replicated =
          planned.sharding == Sharding::kDataParallel || table.sharding == Sharding::kDataParallel;
      const bool moves =
          std::any_of(plan_.moves.begin(), plan_.moves.end(), [&](const PlannedMove& move) {
            return move.table == table.name && move.row_first == r.row_first &&
                   move.column_first == r.column_first && move.from == server;
          });
      return replicated && !moves && it != wanted_.end() && it->second.count(server) == 0;
    }
    return false;
  }

  const PlannerInput& input_;
  const PlannerOutput& plan_;
  std::map<std::string, uint64_t> room_;
  std::map<std::string, uint64_t> used_;
  std::set<std::string> lost_;
  std::map<std::pair<std::string, Key>, std::set<std::string>> holders_;
  std::map<std::pair<std::string, Key>, std::set<std::string>> wanted_;
};

}  // namespace

std::string CheckMoves(const PlannerInput& input, const PlannerOutput& plan) {
  return Execution(input, plan).Run();
}

std::string CheckPlan(const PlannerInput& input, const PlannerOutput& plan) {
  std::string breach = CheckCapacities(input, plan);
  if (breach.empty()) breach = CheckOwners(input, plan);
  if (breach.empty()) breach = CheckConstraints(input, plan);
  if (breach.empty()) breach = CheckShards(input, plan);
  return breach;
}

}  // namespace hotbed
