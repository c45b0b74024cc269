#include "planner/coordinator/balance/rebalance_moves.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "planner/plan_by_cost.h"

namespace hotbed {
namespace {

// The coordinator does nothing else while it plans; this many take some tens of milliseconds.
constexpr uint64_t kEvaluationsMax = 20000;

// Maps the names in the problem to ids and indices in the view.
class ViewIndex {
 public:
  explicit ViewIndex(const ClusterView& view) : view_(view) {
    const PlannerOutput live = LivePlan({view.servers, {}});
    for (size_t s = 0; s < view.servers.size(); ++s) {
      servers_.emplace(live.servers[s].name, &view.servers[s]);
      by_id_.emplace(view.servers[s].id, &view.servers[s]);
    }
    for (uint32_t t = 0; t < view.tables.size(); ++t) {
      tables_.emplace(view.tables[t].spec.name, t);
    }
  }

  const ClusterServer* Server(const std::string& name) const {
    const auto it = servers_.find(name);
    return it == servers_.end() ? nullptr : it->second;
  }
  const ClusterServer* Server(ServerId id) const {
    const auto it = by_id_.find(id);
    return it == by_id_.end() ? nullptr : it->second;
  }
  bool Stays(ServerId id) const {
    const ClusterServer* const server = Server(id);
    return server != nullptr && server->reachable && !server->draining;
  }

  // The table, and its shards within the move's range.
  std::pair<uint32_t, std::vector<uint32_t>> ShardsOf(const PlannedMove& move) const {
    std::vector<uint32_t> found;
    const auto table = tables_.find(move.table);
    if (table == tables_.end()) return {0, found};
    const std::vector<ClusterShard>& shards = view_.tables[table->second].shards;
    const auto first =
        std::partition_point(shards.begin(), shards.end(), [&](const ClusterShard& s) {
          return std::tie(s.range.column_first, s.range.first) <
                 std::tie(move.column_first, move.row_first);
        });
    for (auto it = first;
         it != shards.end() && it->range.column_first == move.column_first &&
         it->range.column_limit == move.column_limit && it->range.limit <= move.row_limit;
         ++it) {
      found.push_back(static_cast<uint32_t>(it - shards.begin()));
    }
    return {table->second, found};
  }

 private:
  const ClusterView& view_;
  std::map<std::string, const ClusterServer*> servers_;
  absl::flat_hash_map<ServerId, const ClusterServer*> by_id_;
  absl::flat_hash_map<std::string, uint32_t> tables_;
};

// Applies the move to the holders; false if it does not concern them.
bool Replace(const ViewIndex& index, const ClusterServer& from, ServerId to,
             std::vector<ServerId>* holders) {
  const auto leaving = std::find(holders->begin(), holders->end(), from.id);
  if (leaving == holders->end()) return false;
  if (std::find(holders->begin(), holders->end(), to) != holders->end()) return false;
  const auto heir = std::find_if(holders->begin(), holders->end(),
                                 [&](ServerId s) { return s != from.id && index.Stays(s); });
  if (leaving == holders->begin() && from.draining && heir != holders->end()) {
    std::iter_swap(holders->begin(), heir);
    *heir = to;
    return true;
  }
  *leaving = to;
  return true;
}

}  // namespace

std::set<ServerId> HoldersIn(const ClusterView& view) {
  std::set<ServerId> holders;
  for (const ClusterTable& table : view.tables) {
    for (const ClusterShard& shard : table.shards) {
      holders.insert(shard.primary);
      holders.insert(shard.backups.begin(), shard.backups.end());
    }
  }
  return holders;
}

RebalanceWave WaveOf(const ClusterView& view, const std::vector<PlannedMove>& moves,
                     uint32_t moves_max, const std::string& reason) {
  const ViewIndex index(view);
  RebalanceWave wave;
  std::map<std::pair<uint32_t, uint32_t>, WantedShard> wanted;  // by table and index
  for (const PlannedMove& move : moves) {
    const ClusterServer* const from = index.Server(move.from);
    const ClusterServer* const to = index.Server(move.to);
    if (from == nullptr || to == nullptr) continue;
    const auto [t, shards] = index.ShardsOf(move);
    if (wave.moves + shards.size() > moves_max) {
      wave.cut_short = true;
      break;
    }
    for (const uint32_t i : shards) {
      const ClusterTable& table = view.tables[t];
      WantedShard& goal = wanted[{t, i}];
      if (goal.servers.empty()) goal.servers = HoldersOf(table.shards[i]);
      if (!Replace(index, *from, to->id, &goal.servers)) continue;
      goal.shard = table.IdOf(i);
      goal.reason = reason;
      wave.bytes += BytesOf(table.spec, table.shards[i]);
      ++wave.moves;
    }
  }
  for (auto& [at, goal] : wanted) {
    if (goal.shard.table != 0) wave.goals.push_back(std::move(goal));
  }
  return wave;
}

std::vector<WantedShard> SwitchPrimaries(const ClusterView& view, double aim, uint32_t switches_max,
                                         const std::string& reason, LoadBoard* board) {
  std::vector<std::tuple<double, uint32_t, uint32_t>> order;
  const double mean = board->Mean();
  for (uint32_t t = 0; t < view.tables.size(); ++t) {
    for (uint32_t i = 0; i < view.tables[t].shards.size(); ++i) {
      const double pulls = board->PrimaryLoad(t, i);
      if (pulls > mean / 1000 && !view.tables[t].shards[i].backups.empty()) {
        order.emplace_back(-pulls, t, i);
      }
    }
  }
  std::sort(order.begin(), order.end());
  std::set<ServerId> usable;
  for (const ClusterServer& server : view.servers) {
    if (server.usable) usable.insert(server.id);
  }
  std::vector<WantedShard> goals;
  for (const auto& [negative, t, i] : order) {
    if (goals.size() >= switches_max) break;
    const ClusterShard& shard = view.tables[t].shards[i];
    if (board->Load(shard.primary) <= aim * mean) continue;
    std::vector<ServerId> holders = HoldersOf(shard);
    auto best = holders.begin();
    for (auto it = holders.begin() + 1; it != holders.end(); ++it) {
      if (usable.count(*it) > 0 && board->Load(*it) < board->Load(*best)) best = it;
    }
    // A target above the aim would only be the next to give the load away.
    if (best == holders.begin() || board->Load(*best) - negative > aim * mean) continue;
    const std::vector<ServerId> before = holders;
    std::iter_swap(holders.begin(), best);
    board->Change(t, i, before, holders);
    goals.push_back({view.tables[t].IdOf(i), holders, reason});
  }
  return goals;
}

absl::StatusOr<std::vector<PlannedMove>> MovesFor(const ClusterView& view) {
  PlannerInput input = ClusterProblem(view);
  input.options.evaluations_max = kEvaluationsMax;
  PlanResult<PlannerOutput> planned = PlanCluster(input);
  if (!planned.ok()) return ToStatus(planned.error());
  return std::move(planned.value().moves);
}

absl::StatusOr<RebalanceWave> PlanDrain(const ClusterView& view) {
  const std::set<ServerId> holders = HoldersIn(view);
  std::set<std::string> draining;
  const PlannerOutput live = LivePlan({view.servers, {}});
  for (size_t s = 0; s < view.servers.size(); ++s) {
    const ClusterServer& server = view.servers[s];
    if (!server.draining || !server.reachable || holders.count(server.id) == 0) continue;
    draining.insert(live.servers[s].name);
  }
  RebalanceWave wave;
  if (!draining.empty()) {
    absl::StatusOr<std::vector<PlannedMove>> moves = MovesFor(view);
    if (!moves.ok()) return moves.status();
    // Moves off a draining server, and those that make room for them, go first.
    const auto last = std::find_if(moves->rbegin(), moves->rend(), [&](const PlannedMove& move) {
      return draining.count(move.from) > 0;
    });
    moves->erase(last.base(), moves->end());
    const std::string reason = absl::StrCat("drain of ", absl::StrJoin(draining, ", "));
    wave = WaveOf(view, *moves, UINT32_MAX, reason);
    wave.reason = reason;
  }
  wave.cause = "drain";
  return wave;
}

}  // namespace hotbed
