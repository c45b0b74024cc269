// What the coordinator tells the shard host: identity, assignments, drops.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/blocking_counter.h"
#include "common/log.h"
#include "common/status_macros.h"
#include "server/host/shard_host_impl.h"

namespace hotbed {
namespace {}  // namespace

// --- identity

ShardHost::Identity ShardHostImpl::identity() const {
  absl::MutexLock lock(&identity_mu_);
  return {identity_.server, identity_.cluster_id};
}

absl::Status ShardHostImpl::SetIdentity(const Identity& identity) {
  absl::MutexLock lock(&identity_mu_);
  if (identity_.server == identity.server && identity_.cluster_id == identity.cluster_id) {
    return absl::OkStatus();
  }
  if (identity_.server != 0 || !identity_.cluster_id.empty()) {
    return absl::FailedPreconditionError(
        absl::StrCat(options_.data_dir, " belongs to server ", identity_.server, " of cluster ",
                     identity_.cluster_id, ", not to server ", identity.server, " of cluster ",
                     identity.cluster_id, "; give this server another --data-dir"));
  }
  IdentityFile changed = identity_;
  changed.server = identity.server;
  changed.cluster_id = identity.cluster_id;
  HOTBED_RETURN_IF_ERROR(changed.Save(PathOf("IDENTITY"), files_));
  identity_ = std::move(changed);
  return absl::OkStatus();
}

void ShardHostImpl::SetIncarnation(Incarnation incarnation) {
  absl::MutexLock lock(&identity_mu_);
  incarnation_ = incarnation;
}

// --- assignment

absl::Status ShardHostImpl::ApplyAssignment(const std::vector<TableSpec>& tables,
                                            const std::vector<ShardRecord>& records,
                                            const std::vector<TableId>& tables_dropped) {
  absl::Status opened;
  {
    absl::MutexLock control(&control_mu_);
    if (shut_down_) return absl::FailedPreconditionError("the shard host is shutting down");
    ShardMap map = Map();
    DropTables(tables_dropped, &map);
    const absl::Status kept = LearnTables(tables, map);
    const absl::Status added = AddShards(records, &map);
    LearnRecords(records, /*all=*/added.ok(), std::move(map));
    opened = added.ok() ? kept : added;  // an error: the coordinator's link comes again
  }
  HOTBED_RETURN_IF_ERROR(KeepPromises());
  HOTBED_RETURN_IF_ERROR(opened);
  HOTBED_RETURN_IF_ERROR(SweepWhereLost());
  CallListener();
  return absl::OkStatus();
}

// Of tables that are held here the shards and the catalog learn what has changed. A catalog that
// cannot be written keeps nobody from serving: the coordinator tells all tables again at each
// start, before it hands out any epoch, and what was pushed carries in the log what it was resolved
// to.
absl::Status ShardHostImpl::LearnTables(const std::vector<TableSpec>& tables, const ShardMap& map) {
  Catalog changed = catalog_;
  bool differs = false;
  for (const TableSpec& table : tables) {
    if (tables_dropped_.contains(table.id)) continue;
    const auto [known, added] = tables_.try_emplace(table.id, table);
    const bool news = !added && known->second.changes != table.changes;
    known->second = table;
    const auto held = changed.tables.find(table.id);
    if (held == changed.tables.end() || held->second.changes == table.changes) continue;
    held->second.changes = table.changes;
    differs = true;
    if (!news) continue;
    for (const auto& [id, entry] : map) {
      if (id.table == table.id && entry.shard != nullptr) entry.shard->LearnChanges(table.changes);
    }
    const TableChange* const last = table.changes.empty() ? nullptr : &table.changes.back();
    HOTBED_LOG(Info) << "table " << table.name << " (id " << table.id << ") has "
                     << table.changes.size() << " changes"
                     << (last == nullptr ? ""
                                         : absl::StrCat(", the last from step ", last->at_step,
                                                        " on: ", ChangeText(*last)));
  }
  if (!differs) return absl::OkStatus();
  HOTBED_RETURN_IF_ERROR(changed.Save(PathOf("CATALOG"), files_));
  catalog_ = std::move(changed);
  return absl::OkStatus();
}

absl::Status ShardHostImpl::SaveCatalog(Catalog changed) {
  HOTBED_RETURN_IF_ERROR(changed.Save(PathOf("CATALOG"), files_));
  catalog_ = std::move(changed);
  return absl::OkStatus();
}

// Opens the shards that are assigned here for the first time, in whatever role: without rows. On an
// error none of them is open: the same assignment may come again. A copy that is still
// being deleted, or is on its way here, is opened when that is over.
absl::Status ShardHostImpl::AddShards(const std::vector<ShardRecord>& records, ShardMap* map) {
  const Identity self = identity();
  Catalog changed = catalog_;
  std::vector<const ShardRecord*> added;
  for (const ShardRecord& record : records) {
    if (tables_dropped_.contains(record.shard.table)) continue;
    const auto it = map->find(record.shard);
    if (it != map->end() && it->second.shard != nullptr) continue;
    if (!record.Names(self.server)) continue;
    if (catalog_.shards.contains(record.shard)) {
      missing_.insert(record.shard);
      continue;
    }
    const auto table = tables_.find(record.shard.table);
    if (table == tables_.end()) {
      return absl::InvalidArgumentError(absl::StrCat(
          record.shard.ToString(), " is assigned here, and its table is not described"));
    }
    changed.tables[table->first] = table->second;
    changed.shards[record.shard] = record.range;
    added.push_back(&record);
  }
  if (added.empty()) return absl::OkStatus();
  // The log may hold records of a copy that was here before.
  HOTBED_ASSIGN_OR_RETURN(const LogPosition end, log_->End());
  for (const ShardRecord* record : added) changed.log_from[record->shard] = end;
  HOTBED_RETURN_IF_ERROR(SaveCatalog(std::move(changed)));
  for (const ShardRecord* record : added) {
    auto shard = MakeShard(tables_.at(record->shard.table), record->shard, record->range);
    shard->FinishReplay();
    (*map)[record->shard].shard = std::move(shard);
  }
  return absl::OkStatus();
}

// The map first: what a shard answers from now on names the record that the map has. Not `all`: of
// what could not be opened nothing is known; those that are open must not wait for it.
void ShardHostImpl::LearnRecords(const std::vector<ShardRecord>& records, bool all, ShardMap map) {
  const ServerId self = identity().server;
  std::vector<std::pair<std::shared_ptr<Shard>, ShardRecord>> told;
  std::vector<std::shared_ptr<Shard>> left;
  for (const ShardRecord& record : records) {
    if (tables_dropped_.contains(record.shard.table)) continue;
    if (!all && !IsOpen(map, record.shard)) continue;
    Entry& entry = map[record.shard];
    if (!record.IsNewerThan(entry.record)) continue;
    entry.record = record;
    if (record.Names(self)) left_ns_.erase(record.shard);
    if (entry.shard == nullptr) continue;
    told.emplace_back(entry.shard, record);
    // Whoever has the shard now has all of it: this epoch is active, and did without this copy.
    if (!record.active || record.Names(self)) continue;
    if (MayReturn(record) && !entry.shard->refused()) {
      left_ns_.try_emplace(record.shard, clock_->NowNs());
      continue;
    }
    left.push_back(std::move(entry.shard));
    entry.shard = nullptr;
  }
  Publish(std::move(map));
  TellShards(told);
  DropLeft(std::move(left));
}

bool ShardHostImpl::MayReturn(const ShardRecord& record) const {
  const auto table = tables_.find(record.shard.table);
  return table != tables_.end() && table->second.durability == Durability::kReplicated &&
         record.members.size() < table->second.copies;
}

void ShardHostImpl::DropLeft(std::vector<std::shared_ptr<Shard>> left) {
  for (auto& shard : left) {
    HOTBED_LOG(Info) << shard->id().ToString() << " has left this server, its copy is deleted";
    left_ns_.erase(shard->id());
    shard->Close();
    dropping_.push_back(std::move(shard));
  }
}

void ShardHostImpl::DropKeptLeft(int64_t now_ns) {
  absl::MutexLock control(&control_mu_);
  if (left_ns_.empty() || shut_down_) return;
  std::vector<std::shared_ptr<Shard>> left;
  ShardMap map = Map();
  for (auto it = left_ns_.begin(); it != left_ns_.end();) {
    const auto entry = map.find(it->first);
    const bool held = entry != map.end() && entry->second.shard != nullptr;
    if (held && now_ns - it->second < options_.keep_left_ms * 1'000'000) {
      ++it;
      continue;
    }
    if (held) left.push_back(std::exchange(entry->second.shard, nullptr));
    left_ns_.erase(it++);
  }
  if (left.empty()) return;
  Publish(std::move(map));
  DropLeft(std::move(left));
}

// All at once, then waits for all.
void ShardHostImpl::TellShards(
    const std::vector<std::pair<std::shared_ptr<Shard>, ShardRecord>>& told) {
  if (told.empty()) return;
  const Member self = Self();
  absl::BlockingCounter left(static_cast<int>(told.size()));
  for (const auto& [shard, record] : told) {
    shard->LearnRecord(self, record, [&left](Epoch) { left.DecrementCount(); });
  }
  left.Wait();
}

absl::Status ShardHostImpl::KeepPromises() {
  absl::MutexLock keeping(&keep_mu_);
  std::vector<PromiseFile::Promise> batch;
  {
    absl::MutexLock lock(&promise_mu_);
    for (const auto& [shard, epoch] : unpromised_) batch.push_back({shard, epoch});
  }
  if (batch.empty()) return absl::OkStatus();
  HOTBED_RETURN_IF_ERROR(promises_->Raise(batch));
  const ShardMap& map = Map();
  std::vector<std::pair<std::shared_ptr<Shard>, Epoch>> kept;
  for (const PromiseFile::Promise& promise : batch) {
    const auto it = map.find(promise.shard);
    if (it != map.end() && it->second.shard != nullptr) {
      kept.emplace_back(it->second.shard, promise.epoch);
    }
  }
  {
    absl::MutexLock lock(&promise_mu_);
    for (const PromiseFile::Promise& promise : batch) {
      const auto it = unpromised_.find(promise.shard);
      if (it != unpromised_.end() && it->second <= promise.epoch) unpromised_.erase(it);
    }
  }
  if (kept.empty()) return absl::OkStatus();
  absl::BlockingCounter left(static_cast<int>(kept.size()));
  for (const auto& [shard, epoch] : kept) {
    shard->PromiseDurable(epoch, [&left] { left.DecrementCount(); });
  }
  left.Wait();
  log_->Commit();
  return absl::OkStatus();
}

// Shards whose log ends before what their rows carry, and which nobody else can complete.
absl::Status ShardHostImpl::SweepWhereLost() {
  std::vector<std::shared_ptr<Shard>> lost;
  for (const auto& [id, entry] : Map()) {
    if (entry.shard != nullptr && entry.shard->wants_sweep()) lost.push_back(entry.shard);
  }
  if (lost.empty()) return absl::OkStatus();
  HOTBED_LOG(Warning) << lost.size() << " shards, " << lost[0]->id().ToString()
                      << " the first, go on above what their rows carry: the end of their log was "
                      << "lost with a power loss, and some updates with it";
  return SweepShards(lost);
}

// The shards are gone for requests at once; the upkeep deletes their rows when nobody uses them.
void ShardHostImpl::DropTables(const std::vector<TableId>& tables, ShardMap* map) {
  for (const TableId table : tables) {
    if (!tables_dropped_.insert(table).second) continue;
    tables_.erase(table);
    for (auto it = map->begin(); it != map->end();) {
      if (it->first.table != table) {
        ++it;
        continue;
      }
      {
        absl::MutexLock lock(&promise_mu_);
        unpromised_.erase(it->first);
      }
      if (it->second.shard != nullptr) {
        it->second.shard->Close();
        dropping_.push_back(it->second.shard);
      }
      map->erase(it++);
    }
  }
}

std::vector<ShardHost::ShardEpoch> ShardHostImpl::ShardsToActivate() const {
  std::vector<ShardEpoch> waiting;
  for (const auto& [id, entry] : Map()) {
    if (entry.shard != nullptr && entry.shard->wants_activation()) {
      waiting.push_back({id, entry.shard->epoch()});
    }
  }
  return waiting;
}

void ShardHostImpl::SetActivationListener(std::function<void()> listener) {
  absl::MutexLock lock(&listener_mu_);
  listener_ = std::move(listener);
}

void ShardHostImpl::CallListener() {
  if (ShardsToActivate().empty() && JoinsReady().empty() && CopiesLost().empty()) return;
  std::function<void()> listener;
  {
    absl::MutexLock lock(&listener_mu_);
    listener = listener_;
  }
  if (listener) listener();
}

}  // namespace hotbed
