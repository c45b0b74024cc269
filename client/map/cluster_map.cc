#include "client/map/cluster_map.h"

#include <algorithm>
#include <utility>

#include "absl/status/statusor.h"
#include "common/tables/session_of_lane.h"
#include "proto/convert.h"
#include "row_math/position.h"

namespace hotbed {
namespace {

bool IndexesInBounds(const ShardRecord& record) {
  const std::vector<ShardLane> lanes = record.Lanes();
  return record.shard.index < kShardNumbersMax &&
         std::all_of(lanes.begin(), lanes.end(),
                     [](const ShardLane& lane) { return lane.index < kShardNumbersMax; });
}

bool SameRange(const ShardRange& a, const ShardRange& b) {
  return a.first == b.first && a.limit == b.limit && a.column_first == b.column_first &&
         a.column_limit == b.column_limit;
}

// The number of shards per column slice, if the shards, in this order, tile the table slice by
// slice without a hole and every slice is cut at the same positions; otherwise 0.
uint32_t RangesThatTile(const TableSpec& spec, const std::vector<ShardRange>& shards) {
  const uint64_t space = spec.hashed ? uint64_t{kBuckets} : spec.rows;
  uint64_t ranges = 0;
  uint64_t next = 0;
  for (; ranges < shards.size() && next < space; ++ranges) {
    const ShardRange& range = shards[ranges];
    if (range.first != next || range.limit <= next) return 0;
    next = range.limit;
  }
  if (next != space || ranges == 0 || ranges * spec.column_slices != shards.size()) return 0;
  uint32_t column = 0;
  for (uint64_t i = 0; i < shards.size(); ++i) {
    const ShardRange& range = shards[i];
    const ShardRange& first_of_slice = shards[i / ranges * ranges];
    const ShardRange& in_first_slice = shards[i % ranges];
    if (range.column_first != column || range.column_limit <= column ||
        range.column_limit != first_of_slice.column_limit || range.first != in_first_slice.first ||
        range.limit != in_first_slice.limit) {
      return 0;
    }
    if ((i + 1) % ranges == 0) column = range.column_limit;
  }
  return column == spec.dim ? static_cast<uint32_t>(ranges) : 0;
}

// Orders the shards and makes the locator. False: they do not tile the table.
bool LayOut(TableRoute* route) {
  const std::vector<ShardRecord>& shards = route->shards;
  route->order.clear();
  for (uint32_t i = 0; i < shards.size(); ++i) {
    if (shards[i].epoch != 0) route->order.push_back(i);
  }
  std::sort(route->order.begin(), route->order.end(), [&shards](uint32_t a, uint32_t b) {
    return std::pair(shards[a].range.column_first, shards[a].range.first) <
           std::pair(shards[b].range.column_first, shards[b].range.first);
  });
  std::vector<ShardRange> ranges;
  for (const uint32_t index : route->order) ranges.push_back(shards[index].range);
  const uint32_t in_slice = RangesThatTile(route->spec, ranges);
  if (in_slice == 0) return false;
  ranges.resize(in_slice);
  route->locator = ShardLocator(route->spec.hashed, ranges);
  for (uint32_t i = static_cast<uint32_t>(route->cut_from.size()); i < shards.size(); ++i) {
    route->cut_from.push_back({.shard = i});
  }
  return true;
}

// The shard of the route that contained the range.
uint32_t HolderOf(const TableRoute& route, const ShardRange& range) {
  for (uint32_t i = 0; i < route.shards.size(); ++i) {
    const ShardRange& whole = route.shards[i].range;
    if (route.shards[i].epoch != 0 && whole.column_first == range.column_first &&
        whole.first <= range.first && range.limit <= whole.limit) {
      return i;
    }
  }
  return 0;
}

}  // namespace

void TableRoute::SetShard(const ShardRecord& record) {
  std::erase_if(records, [&](const auto& entry) {
    const ShardRange& range = entry.second.range;
    return entry.first != record.shard.index && entry.second.epoch < record.epoch &&
           range.column_first == record.range.column_first && range.first >= record.range.first &&
           range.first < record.range.limit;
  });
  records[record.shard.index] = record;
  for (const ShardLane& lane : record.Lanes()) {
    if (lane.index >= shards.size()) {
      shards.resize(lane.index + 1);
      targets.resize(lane.index + 1);
    }
    ShardRecord& of_lane = shards[lane.index];
    of_lane = record;
    of_lane.lanes.clear();
    of_lane.shard.index = lane.index;
    of_lane.range.first = lane.first;
    of_lane.range.limit = lane.limit;
    targets[lane.index] = {record.primary.server, record.epoch, record.shard.index};
  }
}

bool TableRoute::HasRangeOf(const ShardRecord& record) const {
  const auto known = records.find(record.shard.index);
  return known != records.end() && SameRange(known->second.range, record.range) &&
         known->second.Lanes() == record.Lanes();
}

const TableRoute* ClusterMap::Table(TableId table) const {
  const auto it = tables_.find(table);
  return it == tables_.end() ? nullptr : it->second.get();
}

const TableRoute* ClusterMap::Table(const std::string& name) const {
  for (const auto& [id, route] : tables_) {
    if (route->spec.name == name) return route.get();
  }
  return nullptr;
}

const ServerAddress* ClusterMap::Server(ServerId server) const {
  const auto it = servers_.find(server);
  return it == servers_.end() ? nullptr : &it->second;
}

const ShardRecord* ClusterMap::Shard(ShardId shard) const {
  const TableRoute* route = Table(shard.table);
  return route == nullptr || shard.index >= route->shards.size() ? nullptr
                                                                 : &route->shards[shard.index];
}

std::vector<TableSpec> ClusterMap::Specs() const {
  std::vector<TableSpec> specs;
  for (const auto& [id, route] : tables_) specs.push_back(route->spec);
  std::sort(specs.begin(), specs.end(),
            [](const TableSpec& a, const TableSpec& b) { return a.id < b.id; });
  return specs;
}

void ClusterMap::CountLimits() {
  message_bytes_max_ = 0;
  for (const auto& [id, server] : servers_) {
    if (server.message_bytes_max == 0) continue;
    message_bytes_max_ = message_bytes_max_ == 0
                             ? server.message_bytes_max
                             : std::min(message_bytes_max_, server.message_bytes_max);
  }
}

bool ClusterMapHolder::IsAhead(TableId table, bool dropped, uint64_t revision) const {
  const auto it = ahead_.find(table);
  return it != ahead_.end() && it->second.dropped == dropped && revision < it->second.revision;
}

void ClusterMapHolder::NoteAhead(const MapUpdate& update) {
  if (update.tables_revision <= map_->plan_revision_) return;
  for (const TableSpec& spec : update.tables) ahead_[spec.id] = {update.tables_revision, false};
  for (TableId table : update.tables_dropped) ahead_[table] = {update.tables_revision, true};
}

void ClusterMapHolder::Apply(const MapUpdate& update) {
  absl::MutexLock lock(&mu_);
  const uint64_t revision = std::max(update.plan_revision, update.tables_revision);
  // Ignores a map that was requested before the current one.
  if (revision != 0 && revision < map_->plan_revision_) return;
  NoteAhead(update);
  auto next = std::make_shared<ClusterMap>(*map_);
  if (!update.cluster_id.empty()) next->cluster_id_ = update.cluster_id;
  next->plan_revision_ = std::max(next->plan_revision_, update.plan_revision);
  absl::flat_hash_map<TableId, const TableSpec*> specs;
  for (const TableSpec& spec : update.tables) {
    if (!IsAhead(spec.id, /*dropped=*/true, revision)) specs[spec.id] = &spec;
  }
  absl::flat_hash_map<TableId, std::vector<const ShardRecord*>> records;
  for (const ShardRecord& record : update.shards) {
    if (IsAhead(record.shard.table, /*dropped=*/true, revision)) continue;
    records[record.shard.table].push_back(&record);
  }
  for (const auto& [table, spec] : specs) records.try_emplace(table);
  if (!update.delta) {
    for (auto it = next->tables_.begin(); it != next->tables_.end();) {
      const auto table = it++;
      const bool stays =
          specs.contains(table->first) || IsAhead(table->first, /*dropped=*/false, revision);
      if (!stays) next->tables_.erase(table);
    }
    next->servers_.clear();
  }
  for (const auto& [table, list] : records) {
    const auto spec = specs.find(table);
    MergeTable(next.get(), spec == specs.end() ? nullptr : spec->second, table, list);
  }
  for (const ServerAddress& server : update.servers) next->servers_[server.server] = server;
  next->CountLimits();
  for (TableId table : update.tables_dropped) next->tables_.erase(table);
  map_ = std::move(next);
  absl::erase_if(ahead_, [this](const auto& entry) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    return entry.second.revision <= map_->plan_revision_;
  });
}

// Takes over the records if they show other cuts or merges of the table, and all of them together;
// `route` is a copy of `before`. True: lanes were cut.
bool ClusterMapHolder::TakeCuts(const TableRoute& before,
                                const std::vector<const ShardRecord*>& records, TableRoute* route) {
  bool cut = false;
  for (const ShardRecord* record : records) {
    const auto known = before.records.find(record->shard.index);
    const bool is_new = known == before.records.end() && IndexesInBounds(*record);
    cut |= is_new || (known != before.records.end() && record->IsNewerThan(known->second) &&
                      !before.HasRangeOf(*record));
  }
  if (!cut) return false;
  std::vector<const ShardRecord*> by_epoch = records;  // merged shards replace their parts
  std::sort(by_epoch.begin(), by_epoch.end(),
            [](const ShardRecord* a, const ShardRecord* b) { return a->epoch < b->epoch; });
  for (const ShardRecord* record : by_epoch) {
    const auto known = route->records.find(record->shard.index);
    const bool news = known == route->records.end() || record->IsNewerThan(known->second);
    if (news && IndexesInBounds(*record)) route->SetShard(*record);
  }
  if (!LayOut(route)) {
    const TableSpec spec = route->spec;
    *route = before;
    route->spec = spec;
    return false;
  }
  for (size_t i = before.shards.size(); i < route->shards.size(); ++i) {
    const uint32_t whole = HolderOf(before, route->shards[i].range);
    route->cut_from[i] = {whole, before.shards[whole].epoch};
  }
  return route->order != before.order;
}

void ClusterMapHolder::MergeTable(ClusterMap* next, const TableSpec* spec, TableId table,
                                  const std::vector<const ShardRecord*>& records) {
  const auto known = next->tables_.find(table);
  if (known != next->tables_.end()) {
    auto route = std::make_shared<TableRoute>(*known->second);
    if (spec != nullptr) route->spec = *spec;  // only its `changes` can differ
    if (TakeCuts(*known->second, records, route.get())) ++next->cuts_;
    for (const ShardRecord* record : records) {
      if (!route->HasRangeOf(*record)) continue;
      if (record->IsNewerThan(route->records.at(record->shard.index))) route->SetShard(*record);
    }
    known->second = std::move(route);
    return;
  }
  if (spec == nullptr) return;
  // The coordinator shows a table together with all its shards.
  auto route = std::make_shared<TableRoute>();
  route->spec = *spec;
  for (const ShardRecord* record : records) {
    if (!IndexesInBounds(*record)) return;
    route->SetShard(*record);
  }
  if (!LayOut(route.get())) return;
  next->tables_[table] = std::move(route);
}

size_t ClusterMapHolder::ApplyRecords(absl::Span<const ShardRecord> records) {
  absl::MutexLock lock(&mu_);
  absl::flat_hash_map<TableId, std::shared_ptr<TableRoute>> changed;
  size_t news = 0;
  for (const ShardRecord& record : records) {
    const auto known = map_->tables_.find(record.shard.table);
    if (known == map_->tables_.end()) continue;
    const auto mine = changed.find(record.shard.table);
    const TableRoute& now = mine == changed.end() ? *known->second : *mine->second;
    if (!now.HasRangeOf(record)) continue;
    if (!record.IsNewerThan(now.records.at(record.shard.index))) continue;
    std::shared_ptr<TableRoute>& route = changed[record.shard.table];
    if (route == nullptr) route = std::make_shared<TableRoute>(*known->second);
    route->SetShard(record);
    ++news;
  }
  if (news == 0) return 0;
  auto next = std::make_shared<ClusterMap>(*map_);
  for (auto& [table, route] : changed) next->tables_[table] = std::move(route);
  map_ = std::move(next);
  return news;
}

size_t ClusterMapHolder::ApplyRecordsOf(const v1::ReplyHeader& header, uint32_t first,
                                        uint32_t count) {
  std::vector<ShardRecord> records;
  for (const v1::SegmentReply& segment : header.exceptions()) {
    const bool asked = segment.segment() >= first && segment.segment() - first < count;
    if (!asked || !segment.has_record()) continue;
    absl::StatusOr<ShardRecord> record = FromProto(segment.record());
    if (record.ok()) records.push_back(*std::move(record));
  }
  return records.empty() ? 0 : ApplyRecords(records);
}

}  // namespace hotbed
