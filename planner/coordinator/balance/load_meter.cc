#include "planner/coordinator/balance/load_meter.h"

#include <algorithm>

#include "planner/model/placement.h"

namespace hotbed {
namespace {

using Rows = LoadSample::Rows;

// Counters never fall while a process lives, but a replica that came back may start from zero.
Rows Growth(const Rows& since, const Rows& until) {
  Rows grown;
  grown.pulled = until.pulled >= since.pulled ? until.pulled - since.pulled : until.pulled;
  grown.pushed = until.pushed >= since.pushed ? until.pushed - since.pushed : until.pushed;
  return grown;
}

Rows Less(Rows all, const Rows& part) {
  all.pulled -= std::min(all.pulled, part.pulled);
  all.pushed -= std::min(all.pushed, part.pushed);
  return all;
}

// The rows of one server: by replica that it reported in both samples, and the rest.
struct ServerGrowth {
  absl::flat_hash_map<uint64_t, Rows> replicas;
  Rows all;
  Rows rest;
  double rest_bytes = 0;  // of its primaries that it did not report
};

ServerGrowth GrowthOf(const LoadSample::Server& since, const LoadSample::Server& until) {
  ServerGrowth growth;
  growth.all = growth.rest = Growth(since.all, until.all);
  for (const auto& [shard, rows] : until.replicas) {
    const auto before = since.replicas.find(shard);
    if (before == since.replicas.end()) continue;
    const Rows grown = Growth(before->second, rows);
    growth.replicas.emplace(shard, grown);
    growth.rest = Less(growth.rest, grown);
  }
  return growth;
}

}  // namespace

uint64_t BytesOf(const TableSpec& spec, const ClusterShard& shard) {
  return shard.bytes > 0 ? shard.bytes : RangeBytes(spec, shard.range);
}

LoadSample SampleOf(int64_t now_ms, const ClusterView& view) {
  LoadSample sample;
  sample.at_ms = now_ms;
  for (const ClusterServer& server : view.servers) {
    if (!server.reachable) continue;
    LoadSample::Server& out = sample.servers[server.id];
    out.incarnation = server.incarnation;
    out.all = {server.rows_pulled_total, server.rows_pushed_total};
    for (const ReplicaLoad& replica : server.replicas) {
      out.replicas[replica.shard.packed()] = {replica.rows_pulled_total, replica.rows_pushed_total};
    }
  }
  return sample;
}

MeasuredLoads LoadsBetween(const LoadSample& since, const LoadSample& until,
                           const ClusterView& view) {
  MeasuredLoads loads;
  const double seconds = static_cast<double>(std::max<int64_t>(1, until.at_ms - since.at_ms)) / 1e3;
  std::map<ServerId, ServerGrowth> growth;
  for (const auto& [id, server] : until.servers) {
    const auto before = since.servers.find(id);
    if (before == since.servers.end() || before->second.incarnation != server.incarnation) continue;
    growth[id] = GrowthOf(before->second, server);
    const Rows& all = growth[id].all;
    loads.rows_per_s += static_cast<double>(all.pulled + all.pushed) / seconds;
  }
  const auto each = [&](const auto& visit) {
    for (uint32_t t = 0; t < view.tables.size(); ++t) {
      const ClusterTable& table = view.tables[t];
      for (uint32_t i = 0; i < table.shards.size(); ++i) {
        const auto server = growth.find(table.shards[i].primary);
        visit(t, i, table.IdOf(i).packed(), server == growth.end() ? nullptr : &server->second);
      }
    }
  };
  each([&](uint32_t t, uint32_t i, uint64_t packed, ServerGrowth* server) {
    if (server == nullptr || server->replicas.contains(packed)) return;
    server->rest_bytes += 1.0 + BytesOf(view.tables[t].spec, view.tables[t].shards[i]);
  });
  loads.pulled.resize(view.tables.size());
  loads.pushed.resize(view.tables.size());
  each([&](uint32_t t, uint32_t i, uint64_t packed, ServerGrowth* server) {
    const ClusterShard& shard = view.tables[t].shards[i];
    double pulled = 0;
    double pushed = 0;
    if (server != nullptr) {
      const auto named = server->replicas.find(packed);
      if (named != server->replicas.end()) {
        pulled = static_cast<double>(named->second.pulled);
        pushed = static_cast<double>(named->second.pushed);
      } else {
        const double part = (1.0 + BytesOf(view.tables[t].spec, shard)) / server->rest_bytes;
        pulled = part * static_cast<double>(server->rest.pulled);
        pushed = part * static_cast<double>(server->rest.pushed);
      }
    }
    loads.pulled[t].push_back(pulled / seconds);
    loads.pushed[t].push_back(pushed / seconds);
    for (const ServerId backup : shard.backups) {
      const auto other = growth.find(backup);
      if (other == growth.end()) continue;
      const auto named = other->second.replicas.find(packed);
      if (named == other->second.replicas.end() || named->second.pulled == 0) continue;
      loads.backup_pulls[packed][backup] = static_cast<double>(named->second.pulled) / seconds;
    }
  });
  return loads;
}

LoadBoard::LoadBoard(const ClusterView& view, const MeasuredLoads& loads, double rows_per_s_min) {
  idle_ = loads.rows_per_s < rows_per_s_min;
  for (const ClusterServer& server : view.servers) {
    if (server.usable) usable_.push_back(server.id);
  }
  double bytes = 0;
  for (const ClusterTable& table : view.tables) {
    for (const ClusterShard& shard : table.shards) {
      bytes += 1.0 + static_cast<double>(BytesOf(table.spec, shard));
    }
  }
  const double per_byte = (idle_ ? 1.0 : kIdleShare * loads.rows_per_s) / std::max(bytes, 1.0);
  for (uint32_t t = 0; t < view.tables.size(); ++t) {
    const ClusterTable& table = view.tables[t];
    pulled_.emplace_back();
    pushed_.emplace_back();
    members_.emplace_back();
    for (uint32_t i = 0; i < table.shards.size(); ++i) {
      const ClusterShard& shard = table.shards[i];
      const double size = per_byte * (1.0 + static_cast<double>(BytesOf(table.spec, shard)));
      pulled_[t].push_back(idle_ ? 0 : loads.pulled[t][i]);
      pushed_[t].push_back(idle_ ? 0 : loads.pushed[t][i]);
      members_[t].push_back(pushed_[t][i] + size);
      Add(t, i, HoldersOf(shard), 1);
      const auto pulls = loads.backup_pulls.find(table.IdOf(i).packed());
      if (idle_ || pulls == loads.backup_pulls.end()) continue;
      for (const auto& [server, rows] : pulls->second) loads_[server] += rows;
    }
  }
}

void LoadBoard::Add(uint32_t table, uint32_t shard, const std::vector<ServerId>& holders,
                    double sign) {
  if (holders.empty()) return;
  loads_[holders.front()] += sign * pulled_[table][shard];
  for (const ServerId holder : holders) loads_[holder] += sign * members_[table][shard];
}

void LoadBoard::Change(uint32_t table, uint32_t shard, const std::vector<ServerId>& from,
                       const std::vector<ServerId>& to) {
  Add(table, shard, from, -1);
  Add(table, shard, to, 1);
}

double LoadBoard::Load(ServerId server) const {
  const auto it = loads_.find(server);
  return it == loads_.end() ? 0 : it->second;
}

ServerId LoadBoard::BusiestServer() const {
  ServerId busiest = 0;
  for (const ServerId s : usable_) {
    if (busiest == 0 || Load(s) > Load(busiest)) busiest = s;
  }
  return busiest;
}

double LoadBoard::Busiest() const { return Load(BusiestServer()); }

double LoadBoard::Mean() const {
  double sum = 0;
  for (const ServerId s : usable_) sum += Load(s);
  return usable_.empty() ? 0 : sum / static_cast<double>(usable_.size());
}

double LoadBoard::Imbalance() const {
  const double mean = Mean();
  return mean > 0 ? Busiest() / mean : 0;
}

ClusterView LoadBoard::Weighed(ClusterView view) const {
  for (uint32_t t = 0; t < view.tables.size(); ++t) {
    for (uint32_t i = 0; i < view.tables[t].shards.size(); ++i) {
      ClusterShard& shard = view.tables[t].shards[i];
      shard.rows_pulled = pulled_[t][i] + (members_[t][i] - pushed_[t][i]);
      shard.rows_pushed = pushed_[t][i];
    }
  }
  return view;
}

}  // namespace hotbed
