#include "server/cluster/load_report.h"

#include <algorithm>
#include <tuple>
#include <utility>

namespace hotbed {
namespace {

// The observations after `before`.
LatencyHistogram::Snapshot Since(const LatencyHistogram::Snapshot& before,
                                 const LatencyHistogram::Snapshot& now) {
  LatencyHistogram::Snapshot since = now;
  if (before.cumulative.size() != now.cumulative.size()) return since;
  since.count -= before.count;
  since.sum_seconds -= before.sum_seconds;
  for (size_t i = 0; i < since.cumulative.size(); ++i) {
    since.cumulative[i].second -= before.cumulative[i].second;
  }
  return since;
}

}  // namespace

void LoadReport::Measure(const HostStatus& status, const LatencyHistogram::Snapshot& pulls) {
  const LatencyHistogram::Snapshot since = Since(pulls_, pulls);
  pull_p99_us_ = since.count == 0 ? 0 : static_cast<uint64_t>(since.Quantile(0.99) * 1e6);
  pulls_ = pulls;

  std::vector<std::tuple<uint64_t, uint64_t, ShardId>> shards;  // rows since, bytes
  absl::flat_hash_map<ShardId, uint64_t> totals;
  for (const ShardStatus& shard : status.shards) {
    const uint64_t total = shard.rows_pulled + shard.rows_pushed;
    const auto before = totals_.find(shard.shard);
    const uint64_t since_rows =
        before == totals_.end() || before->second > total ? total : total - before->second;
    totals[shard.shard] = total;
    shards.emplace_back(since_rows, shard.bytes, shard.shard);
  }
  totals_.swap(totals);
  const size_t count = std::min(shards.size(), kShardsMax);
  std::partial_sort(shards.begin(), shards.begin() + static_cast<ptrdiff_t>(count), shards.end(),
                    [](const auto& a, const auto& b) { return b < a; });
  busiest_.clear();
  for (size_t i = 0; i < count; ++i) busiest_.push_back(std::get<2>(shards[i]));
}

void LoadReport::AddTables(const HostStatus& status, int64_t now_ns, v1::ServerLoad* load) {
  absl::flat_hash_map<uint32_t, v1::TableLoad> tables;
  absl::flat_hash_map<uint32_t, Accesses> totals;
  for (const ShardStatus& shard : status.shards) {
    v1::TableLoad& table = tables[shard.shard.table];
    table.set_table(shard.shard.table);
    table.set_rows_resident(table.rows_resident() + shard.store.rows_resident);
    table.set_hot_bytes(table.hot_bytes() + shard.store.hot_bytes);
    table.set_device_bytes(table.device_bytes() + shard.store.device_bytes);
    table.set_rows_expired_total(table.rows_expired_total() + shard.rows_expired);
    table.set_rows_evicted_total(table.rows_evicted_total() + shard.rows_evicted);
    totals[shard.shard.table].hits += shard.store.hits;
    totals[shard.shard.table].misses += shard.store.misses;
  }
  std::vector<v1::TableLoad> loads;
  for (auto& [id, table] : tables) {
    const Accesses now = totals[id], then = at_window_before_[id];
    // A shard that has left took its counts with it.
    const bool grew = now.hits >= then.hits && now.misses >= then.misses;
    table.set_hits(grew ? now.hits - then.hits : now.hits);
    table.set_misses(grew ? now.misses - then.misses : now.misses);
    loads.push_back(std::move(table));
  }
  const size_t count = std::min(loads.size(), kTablesMax);
  std::partial_sort(loads.begin(), loads.begin() + static_cast<ptrdiff_t>(count), loads.end(),
                    [](const v1::TableLoad& a, const v1::TableLoad& b) {
                      return std::pair(b.hot_bytes(), a.table()) <
                             std::pair(a.hot_bytes(), b.table());
                    });
  for (size_t i = 0; i < count; ++i) *load->add_tables() = std::move(loads[i]);
  if (window_ns_ == 0 || now_ns - window_ns_ >= kWindowNs) {
    at_window_before_ = std::exchange(at_window_, std::move(totals));
    window_ns_ = now_ns;
  }
}

void LoadReport::Fill(const HostStatus& status, const LatencyHistogram::Snapshot& pulls,
                      int64_t now_ns, v1::ServerLoad* load) {
  if (measured_ns_ == 0 || now_ns - measured_ns_ >= kIntervalNsMin) {
    Measure(status, pulls);
    measured_ns_ = now_ns;
  }
  absl::flat_hash_map<ShardId, const ShardStatus*> by_id;
  uint64_t rows_resident = 0, rows_pulled = 0, rows_pushed = 0, bytes_held = 0;
  for (const ShardStatus& shard : status.shards) {
    rows_resident += shard.store.rows_resident;
    rows_pulled += shard.rows_pulled;
    rows_pushed += shard.rows_pushed;
    bytes_held += shard.bytes;
    by_id[shard.shard] = &shard;
  }
  AddTables(status, now_ns, load);
  load->set_rows_resident(rows_resident);
  load->set_rows_pulled_total(rows_pulled);
  load->set_rows_pushed_total(rows_pushed);
  load->set_hot_bytes(status.numbers["hot_bytes"]);
  load->set_host_bytes_limit(status.numbers["host_bytes_limit"]);
  if (status.device_error.empty()) {
    load->set_device_bytes_limit(status.device_numbers["device_bytes_limit"]);
  }
  load->set_spill_bytes(status.numbers["spill_bytes"]);
  load->set_log_bytes(status.numbers["log_bytes"]);
  load->set_read_only(status.read_only);
  load->set_pull_p99_us(pull_p99_us_);
  load->set_bytes_held(bytes_held);
  if (status.free_bytes.has_value()) load->set_free_bytes(*status.free_bytes);
  for (const ShardId id : busiest_) {
    const auto it = by_id.find(id);
    if (it == by_id.end()) continue;  // dropped since
    v1::ShardLoad* const shard = load->add_shards();
    shard->set_shard(id.packed());
    shard->set_rows_pulled_total(it->second->rows_pulled);
    shard->set_rows_pushed_total(it->second->rows_pushed);
    shard->set_bytes(it->second->bytes);
    shard->set_primary(it->second->primary);
    shard->set_applied_lsn(it->second->applied_lsn);
  }
}

}  // namespace hotbed
