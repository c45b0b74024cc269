// A cluster for tests of rebalancing: shards with loads that a trace sets, servers that count what
// they serve, and goals that are reached some time after they were wanted.
#ifndef HOTBED_TESTS_COORDINATOR_REBALANCE_RIG_H_
#define HOTBED_TESTS_COORDINATOR_REBALANCE_RIG_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "planner/coordinator/balance/rebalance_policy.h"
#include "planner/model/placement.h"

namespace hotbed {

class RebalanceRig {
 public:
  struct Rate {
    double pulled = 0;
    double pushed = 0;
  };
  // The rate of a shard at a time.
  using Trace = std::function<Rate(int64_t now_ms, ShardId shard)>;

  explicit RebalanceRig(RebalanceOptions options = {}) : policy(options) {}

  ClusterServer& AddServer(ServerId id, const std::string& domain = "") {
    ClusterServer& server = view.servers.emplace_back();
    server.id = id;
    server.name = absl::StrCat("s", id);
    server.host_bytes = uint64_t{1} << 34;
    server.failure_domain = domain.empty() ? server.name : domain;
    server.incarnation = 1;
    return server;
  }
  ClusterServer& Server(ServerId id) {
    for (ClusterServer& server : view.servers) {
      if (server.id == id) return server;
    }
    ADD_FAILURE() << "no server " << id;
    return view.servers.front();
  }

  // A table of equal shards on `servers`, by turns, each with its backups on the next ones.
  void AddTable(TableId id, uint32_t shards, const std::vector<ServerId>& servers,
                uint32_t replicas = 1, uint64_t rows = 1'000'000, bool hashed = false) {
    ClusterTable table;
    table.spec.id = id;
    table.spec.name = absl::StrCat("t", id);
    table.spec.rows = rows;
    table.spec.hashed = hashed;
    table.spec.dim = 16;
    table.spec.replicas = replicas;
    table.spec.durability = replicas > 1 ? Durability::kReplicated : Durability::kLog;
    const auto ranges = CutTable(table.spec, shards);
    ASSERT_TRUE(ranges.ok()) << ranges.status();
    ASSERT_EQ(ranges->size(), shards) << "choose as many as the table is cut into";
    for (const ShardRange& range : *ranges) {
      ClusterShard& shard = table.shards.emplace_back();
      const size_t at = table.shards.size() - 1;
      shard.range = range;
      shard.primary = servers[at % servers.size()];
      for (uint32_t c = 1; c < replicas; ++c) {
        shard.backups.push_back(servers[(at + c) % servers.size()]);
      }
    }
    view.tables.push_back(std::move(table));
  }

  // Runs the trace for so long, a look a second.
  void Run(int64_t ms, const Trace& trace) {
    for (const int64_t end = now_ms + ms; now_ms < end;) {
      now_ms += 1000;
      Serve(trace);
      if (!open.empty() && now_ms >= done_ms) Reach();
      std::optional<RebalanceWave> wave = policy.Tick(now_ms, view, open.size());
      if (!wave.has_value()) continue;
      ASSERT_TRUE(open.empty()) << "one wave at a time";
      ASSERT_EQ(wave->goals.empty(), wave->split.has_value());
      if (wave->split.has_value()) CutInTwo(*wave->split);
      ASSERT_FALSE(wave->reason.empty());
      CheckGoals(*wave);
      open = wave->goals;
      done_ms = now_ms + wave_takes_ms;
      moves += wave->moves;
      waves.push_back(*std::move(wave));
    }
  }

  // Primaries, by server.
  std::map<ServerId, int> Primaries() const {
    std::map<ServerId, int> primaries;
    for (const ClusterTable& table : view.tables) {
      for (const ClusterShard& shard : table.shards) ++primaries[shard.primary];
    }
    return primaries;
  }
  std::map<ServerId, int> Replicas() const {
    std::map<ServerId, int> replicas;
    for (const ClusterTable& table : view.tables) {
      for (const ClusterShard& shard : table.shards) {
        for (const ServerId s : HoldersOf(shard)) ++replicas[s];
      }
    }
    return replicas;
  }
  // Load of the busiest over the mean, of primaries' rows under the trace now.
  double Imbalance(const Trace& trace) const {
    std::map<ServerId, double> loads;
    for (const ClusterServer& server : view.servers) {
      if (server.usable) loads[server.id] = 0;
    }
    double sum = 0;
    for (const ClusterTable& table : view.tables) {
      for (uint32_t i = 0; i < table.shards.size(); ++i) {
        const Rate rate = trace(now_ms, {table.spec.id, i});
        const auto add = [&](ServerId s, double rows) {
          loads[s] += rows;
          sum += rows;
        };
        add(table.shards[i].primary, rate.pulled + rate.pushed);
        for (const ServerId s : table.shards[i].backups) add(s, rate.pushed);
      }
    }
    double most = 0;
    for (const auto& [server, load] : loads) most = std::max(most, load);
    return most / (sum / static_cast<double>(loads.size()));
  }

  ClusterView view;
  RebalancePolicy policy;
  int64_t now_ms = 1;
  int64_t wave_takes_ms = 15'000;
  std::vector<RebalanceWave> waves;
  uint32_t moves = 0;
  std::vector<WantedShard> open;
  int64_t done_ms = 0;
  size_t replicas_named_max = 1000;  // in a heartbeat

 private:
  // The last shard of its table, so that the order of the others stays.
  void CutInTwo(ShardId shard) {
    std::vector<ClusterShard>& shards = view.tables[shard.table - 1].shards;
    ASSERT_EQ(shard.index + 1, shards.size());
    ClusterShard upper = shards.back();
    upper.range.first += (upper.range.limit - upper.range.first) / 2;
    shards.back().range.limit = upper.range.first;
    shards.push_back(upper);
  }

  struct Counters {
    double pulled = 0;
    double pushed = 0;
  };

  void Serve(const Trace& trace) {
    for (ClusterServer& server : view.servers) server.replicas.clear();
    for (const ClusterTable& table : view.tables) {
      for (uint32_t i = 0; i < table.shards.size(); ++i) {
        const ShardId id{table.spec.id, i};
        const Rate rate = trace(now_ms, id);
        for (const ServerId s : HoldersOf(table.shards[i])) {
          ClusterServer& server = Server(s);
          if (!server.reachable) continue;
          const double pulled = s == table.shards[i].primary ? rate.pulled : 0;
          Counters& replica = replicas_[{s, id.packed()}];
          replica.pulled += pulled;
          replica.pushed += rate.pushed;
          Counters& all = servers_[s];
          all.pulled += pulled;
          all.pushed += rate.pushed;
          server.rows_pulled_total = static_cast<uint64_t>(all.pulled);
          server.rows_pushed_total = static_cast<uint64_t>(all.pushed);
          if (server.replicas.size() >= replicas_named_max) continue;
          server.replicas.push_back({id, static_cast<uint64_t>(replica.pulled),
                                     static_cast<uint64_t>(replica.pushed), 0});
        }
      }
    }
  }

  void Reach() {
    view = After(view, open);
    open.clear();
  }

  // A valid goal has as many replicas as there were, on live servers of distinct domains.
  void CheckGoals(const RebalanceWave& wave) {
    for (const WantedShard& goal : wave.goals) {
      std::set<std::string> domains;
      for (const ServerId s : goal.servers) {
        EXPECT_TRUE(Server(s).reachable) << s;
        EXPECT_FALSE(Server(s).draining) << s;
        domains.insert(Server(s).failure_domain);
      }
      EXPECT_EQ(domains.size(), goal.servers.size());
      for (const ClusterTable& table : view.tables) {
        if (table.spec.id != goal.shard.table) continue;
        const std::vector<ServerId> now = HoldersOf(table.shards[goal.shard.index]);
        EXPECT_EQ(goal.servers.size(), now.size());
        EXPECT_NE(goal.servers, now) << "nothing is asked for that is there already";
        for (const ServerId s : goal.servers) {
          const bool holds = std::find(now.begin(), now.end(), s) != now.end();
          EXPECT_TRUE(holds || Server(s).usable) << "a new replica on s" << s;
        }
      }
    }
  }

  std::map<std::pair<ServerId, uint64_t>, Counters> replicas_;
  std::map<ServerId, Counters> servers_;
};

}  // namespace hotbed

#endif  // HOTBED_TESTS_COORDINATOR_REBALANCE_RIG_H_
