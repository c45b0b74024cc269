// Shards that leave this server: their rows are deleted, and the catalog forgets them.
#include <algorithm>

#include "common/log.h"
#include "common/status_macros.h"
#include "server/host/assignments.h"

namespace hotbed {

void Assignments::DropLeft(ShardList left) {
  for (auto& shard : left) {
    HOTBED_LOG(Info) << shard->id().ToString() << " has left this server, its rows are deleted";
    left_ns_.erase(shard->id());
    shard->Close();
    dropping_.push_back(std::move(shard));
  }
}

void Assignments::DropKeptLeft(int64_t now_ns) {
  absl::MutexLock lock(&mu_);
  if (left_ns_.empty() || closed_) return;
  ShardList left;
  Map map = *wiring_.directory->Hold();
  for (auto it = left_ns_.begin(); it != left_ns_.end();) {
    const auto entry = map.find(it->first);
    const bool held = entry != map.end() && entry->second.shard != nullptr;
    if (held && now_ns - it->second < wiring_.keep_left_ns) {
      ++it;
      continue;
    }
    if (held) left.push_back(std::exchange(entry->second.shard, nullptr));
    left_ns_.erase(it++);
  }
  if (left.empty()) return;
  wiring_.directory->Publish(std::move(map));
  DropLeft(std::move(left));
}

// Rows are deleted and flushed without the lock: assignments do not wait for the disk.
void Assignments::FinishDrops() {
  ShardList idle;
  const std::shared_ptr<const Catalog> catalog = wiring_.data->catalog();
  {
    absl::MutexLock lock(&mu_);
    if (dropping_.empty()) return AddMissing();
    for (const auto& shard : dropping_) {
      if (shard->idle() && !catalog->IsCutFrom(shard->id())) idle.push_back(shard);
    }
    if (idle.empty()) return;
    if (const absl::Status marked = MarkDropped(idle); !marked.ok()) {
      HOTBED_LOG_EVERY_S(Warning, 10) << "cannot drop shards yet: " << marked;
      return;
    }
  }
  ShardList deleted;
  for (const auto& shard : idle) {
    shard->ReleaseStore();
    DropPartsOfMerge(*catalog, *shard);
    const absl::Status status = wiring_.tiers->DeleteShard(shard->spilled());
    if (status.ok()) {
      deleted.push_back(shard);
    } else {
      HOTBED_LOG_EVERY_S(Warning, 10)
          << "cannot delete " << shard->id().ToString() << ": " << status;
    }
  }
  if (deleted.empty()) return;
  // The spill tier has no log of its own. Once the catalog does not name a shard, nothing would
  // delete rows that a kill brings back.
  if (const absl::Status flushed = wiring_.tiers->Flush(); !flushed.ok()) {
    HOTBED_LOG_EVERY_S(Warning, 10) << "cannot finish drops yet: " << flushed;
    return;
  }
  absl::MutexLock lock(&mu_);
  ForgetDropped(deleted);
  AddMissing();
}

// Files go at once, and after a kill the shard must not seem to be complete.
absl::Status Assignments::MarkDropped(const ShardList& shards) {
  const std::shared_ptr<const Catalog> catalog = wiring_.data->catalog();
  const bool marked = std::all_of(shards.begin(), shards.end(), [&](const auto& shard) {
    return !catalog->shards.contains(shard->id()) || catalog->installing.contains(shard->id());
  });
  if (marked) return absl::OkStatus();
  return wiring_.data->ChangeCatalog([&](Catalog* changed) {
    for (const auto& shard : shards) {
      if (changed->shards.contains(shard->id())) changed->installing.insert(shard->id());
    }
  });
}

void Assignments::ForgetDropped(const ShardList& deleted) {
  for (const auto& shard : deleted) {
    if (shard->logged()) wiring_.log->ForgetShard(shard->id());
    std::erase(dropping_, shard);
  }
  wiring_.data->ForgetInCatalog([&](Catalog* catalog) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    for (const auto& shard : deleted) catalog->Forget(shard->id());
    ForgetDroppedTables(catalog);
  });
}

void Assignments::ForgetDroppedTables(Catalog* catalog) const {
  for (const TableId table : tables_dropped_) {
    const auto first = catalog->shards.lower_bound(ShardId{table, 0});
    if (first != catalog->shards.end() && first->first.table == table) continue;
    if (catalog->tables.erase(table) == 0) continue;
    if (const absl::Status s = wiring_.promises->ForgetTable(table); !s.ok()) {
      HOTBED_LOG(Warning) << "cannot forget the promises of table " << table << ": " << s;
    }
  }
}

// Opens the shards that were assigned again while their rows were being deleted, or whose snapshot
// transfer broke off.
void Assignments::AddMissing() {
  if (missing_.empty() || closed_) return;
  Map map = *wiring_.directory->Hold();
  const std::shared_ptr<const Catalog> catalog = wiring_.data->catalog();
  std::vector<ShardRecord> records;
  for (auto it = missing_.begin(); it != missing_.end();) {
    const auto entry = map.find(*it);
    const bool gone = entry == map.end() || entry->second.shard != nullptr;
    if (gone || !(catalog->shards.contains(*it) ||
                  catalog->HoldsUnderAnother(*it, entry->second.record->range))) {
      if (!gone) records.push_back(*entry->second.record);
      missing_.erase(it++);
    } else {
      ++it;
    }
  }
  if (records.empty()) return;
  const absl::Status added = AddShards(records, &map);
  if (!added.ok()) {
    HOTBED_LOG_EVERY_S(Warning, 10) << "cannot open a shard: " << added;
    for (const ShardRecord& record : records) missing_.insert(record.shard);
    return;
  }
  Told told;
  for (const ShardRecord& record : records) {
    if (map[record.shard].shard != nullptr) told.emplace_back(map[record.shard].shard, record);
  }
  wiring_.directory->Publish(std::move(map));
  TellShards(told);
}

// --- a damaged spill tier

// A server that takes over a shard asks the servers that its record names, in any incarnation. A
// learner may be counted on until it is taken out of its epoch (Shard::ReplicaLost).
bool Assignments::NothingDependsOnTier() const {
  if (!installing_.empty()) return false;
  const Member self = wiring_.data->self();
  const Map& map = wiring_.directory->Current();
  const std::shared_ptr<const Catalog> catalog = wiring_.data->catalog();
  for (const auto& [id, range] : catalog->shards) {
    const auto is_it = [held = id](const auto& shard) { return shard->id() == held; };
    const bool dropping = std::any_of(dropping_.begin(), dropping_.end(), is_it);
    const auto it = map.find(id);
    if (dropping || it == map.end()) continue;  // dropped, or known to no coordinator any more
    const ShardRecord& record = it->second.record;
    if (!record.active || ContainsServer(record.members, self.server) ||
        record.FindPassedOver(self.server) != nullptr) {
      return false;
    }
    const std::shared_ptr<Shard>& shard = it->second.shard;
    if (shard != nullptr && ContainsServer(record.learners, self.server) &&
        (!shard->refused() || shard->ReplicaLost(record, self))) {
      return false;
    }
  }
  return true;
}

// The catalog says first that nothing here is complete: after a kill in between, no shard may seem
// to be there without its rows.
absl::StatusOr<std::optional<ShardList>> Assignments::CloseAllUnlessNeeded() {
  absl::MutexLock lock(&mu_);
  if (closed_ || !NothingDependsOnTier()) return std::nullopt;
  HOTBED_RETURN_IF_ERROR(wiring_.data->ChangeCatalog([](Catalog* catalog) {
    for (const auto& [id, range] : catalog->shards) catalog->installing.insert(id);
  }));
  const ServerId self = wiring_.data->self().server;
  Map map = *wiring_.directory->Hold();
  for (auto& [id, entry] : map) {
    if (ContainsServer(entry.record->learners, self)) missing_.insert(id);
    if (entry.shard == nullptr) continue;
    entry.shard->Close();
    left_ns_.erase(id);
    dropping_.push_back(std::exchange(entry.shard, nullptr));
  }
  wiring_.directory->Publish(std::move(map));
  return dropping_;
}

absl::Status Assignments::ForgetAll(const ShardList& closed) {
  absl::MutexLock lock(&mu_);
  HOTBED_RETURN_IF_ERROR(
      wiring_.data->ChangeCatalog([&](Catalog* catalog) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
        const std::set<ShardId> gone = catalog->installing;
        for (const ShardId id : gone) catalog->Forget(id);
        ForgetDroppedTables(catalog);
      }));
  for (const auto& shard : closed) {
    if (shard->logged()) wiring_.log->ForgetShard(shard->id());
    std::erase(dropping_, shard);
  }
  AddMissing();
  return absl::OkStatus();
}

}  // namespace hotbed
