#include "planner/coordinator/membership/busy_shards.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_format.h"
#include "planner/coordinator/membership/asked_cuts.h"

namespace hotbed {
namespace {

bool SameRows(const ShardRange& a, const ShardRange& b) {
  return a.first == b.first && a.limit == b.limit;
}

}  // namespace

void BusyShards::Tick(int64_t now_ns, const ClusterState& state, const Leases& leases) {
  if (window_ns_ != 0 && now_ns - window_ns_ < kWindowNs) return;
  const double seconds = static_cast<double>(now_ns - window_ns_) / 1e9;
  window_ns_ = now_ns;
  absl::flat_hash_map<uint64_t, Measured> measured;
  for (const auto& [server, info] : state.servers()) {
    const Leases::Lease* const lease = leases.Find(server);
    if (lease == nullptr || !leases.Held(server)) continue;
    const Member process{server, lease->incarnation};
    for (const v1::ShardLoad& load : lease->load.shards()) {
      const ShardRecord* const record = state.FindVisibleShard(load.shard());
      if (record == nullptr || !(record->primary == process)) continue;
      const v1::TableSpec& table = state.tables().at(record->shard.table);
      if (!table.hashed() || table.vocabulary() != 0) continue;
      const uint64_t rows = load.rows_pulled_total() + load.rows_pushed_total();
      Measured now{.range = record->range, .primary = process, .rows = rows, .bytes = load.bytes()};
      const auto before = measured_.find(load.shard());
      if (before != measured_.end() && SameRows(before->second.range, record->range) &&
          before->second.primary == process && before->second.rows <= rows) {
        now.rows_per_s = static_cast<double>(rows - before->second.rows) / seconds;
        const auto limit = static_cast<double>(rows_per_s_max_);
        const bool busy = rows_per_s_max_ > 0 && now.rows_per_s > limit;
        const bool calm = rows_per_s_max_ == 0 || now.rows_per_s <= kCalmShare / 2 * limit;
        now.windows = busy ? before->second.windows + 1 : 0;
        now.calm_windows = calm ? before->second.calm_windows + 1 : 0;
      }
      measured[load.shard()] = now;
    }
  }
  measured_ = std::move(measured);
}

const BusyShards::Split* BusyShards::LastOf(const ShardRecord& record) const {
  for (auto split = splits_.rbegin(); split != splits_.rend(); ++split) {
    if (split->table == record.shard.table && split->range.first <= record.range.first &&
        record.range.limit <= split->range.limit) {
      return &*split;
    }
  }
  return nullptr;
}

void BusyShards::NoteSplit(int64_t now_ns, const ShardRecord& record, double rows_per_s) {
  const Split* const last = LastOf(record);
  const bool helped = last == nullptr || rows_per_s <= kHelpedShare * last->rows_per_s;
  const int64_t pause_ns = helped ? kFirstPauseNs : std::min(2 * last->pause_ns, kPauseMaxNs);
  std::erase_if(splits_, [&](const Split& split) {
    const bool same = split.table == record.shard.table && SameRows(split.range, record.range);
    return same || now_ns - split.not_before_ns > kPauseMaxNs;
  });
  splits_.push_back({record.shard.table, record.range, rows_per_s, now_ns + pause_ns, pause_ns});
}

void BusyShards::NoteSplit(int64_t now_ns, const ShardRecord& record) {
  const auto measured = measured_.find(record.shard.packed());
  NoteSplit(now_ns, record, measured == measured_.end() ? 0 : measured->second.rows_per_s);
}

std::vector<v1::CutShardRequest> BusyShards::Take(int64_t now_ns, const ClusterState& state,
                                                  size_t count) {
  std::vector<std::pair<double, uint64_t>> busy;  // rows per second and packed shard
  for (const auto& [packed, shard] : measured_) {
    const ShardRecord* const record = state.FindVisibleShard(packed);
    if (shard.windows < kWindows || record == nullptr || !SameRows(record->range, shard.range)) {
      continue;
    }
    const Split* const last = LastOf(*record);
    if (last != nullptr && now_ns < last->not_before_ns) continue;
    if (state.FindGoal(packed) == nullptr && PlanCut(state, packed, 0).ok()) {
      busy.emplace_back(shard.rows_per_s, packed);
    }
  }
  std::sort(busy.rbegin(), busy.rend());
  busy.resize(std::min(busy.size(), count));
  std::vector<v1::CutShardRequest> cuts;
  for (const auto& [rows_per_s, packed] : busy) {
    NoteSplit(now_ns, *state.FindVisibleShard(packed), rows_per_s);
    v1::CutShardRequest& cut = cuts.emplace_back();
    cut.set_shard(packed);
    cut.set_reason(absl::StrFormat("%.0f rows per second over %d s, above %d", rows_per_s,
                                   kWindows * kWindowNs / 1'000'000'000, rows_per_s_max_));
  }
  return cuts;
}

const BusyShards::Measured* BusyShards::Calm(int64_t now_ns, const ShardRecord& record) const {
  const auto it = measured_.find(record.shard.packed());
  if (it == measured_.end() || it->second.calm_windows < kWindows) return nullptr;
  if (!SameRows(it->second.range, record.range)) return nullptr;
  const Split* const last = LastOf(record);
  const bool split = last != nullptr && now_ns - last->not_before_ns <= kPauseMaxNs;
  return split ? nullptr : &it->second;
}

std::vector<v1::CutShardRequest> BusyShards::SmallNeighbours(int64_t now_ns,
                                                             const ClusterState& state,
                                                             uint64_t bytes_max) const {
  std::vector<v1::CutShardRequest> merges;
  for (const auto& [id, table] : state.tables()) {
    if (!table.hashed()) continue;
    std::vector<const ShardRecord*> shards = state.ShardsOfTable(id);
    std::sort(shards.begin(), shards.end(), [](const ShardRecord* a, const ShardRecord* b) {
      return a->range.first < b->range.first;
    });
    size_t left = shards.size();
    for (size_t i = 1; i < shards.size() && left > kShardsMin; ++i) {
      const Measured* const lower = Calm(now_ns, *shards[i - 1]);
      const Measured* const upper = Calm(now_ns, *shards[i]);
      if (lower == nullptr || upper == nullptr || lower->bytes + upper->bytes > bytes_max ||
          !PlanMerge(state, shards[i - 1]->shard.packed(), shards[i]->shard.packed()).ok()) {
        continue;
      }
      v1::CutShardRequest& merge = merges.emplace_back();
      merge.set_shard(shards[i - 1]->shard.packed());
      merge.set_merge_with(shards[i]->shard.packed());
      merge.set_reason(absl::StrFormat("%d and %d MiB, together at most %d MiB", lower->bytes >> 20,
                                       upper->bytes >> 20, bytes_max >> 20));
      --left;
      ++i;  // one merge at a time
    }
  }
  return merges;
}

}  // namespace hotbed
