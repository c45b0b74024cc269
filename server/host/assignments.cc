#include "server/host/assignments.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/blocking_counter.h"
#include "common/log.h"
#include "common/status_macros.h"
#include "server/host/shard_restorer.h"

namespace hotbed {
namespace {

bool IsOpen(const ShardDirectory::Map& map, ShardId shard) {
  const auto it = map.find(shard);
  return it != map.end() && it->second.shard != nullptr;
}

}  // namespace

Assignments::Assignments(const Wiring& wiring)
    : wiring_(wiring), tables_(wiring.data->catalog()->tables) {}

absl::Status Assignments::Apply(const std::vector<TableSpec>& tables,
                                const std::vector<ShardRecord>& records,
                                const std::vector<TableId>& tables_dropped) {
  absl::Status applied;
  {
    absl::MutexLock lock(&mu_);
    if (closed_) return absl::FailedPreconditionError("the shard host is shutting down");
    Map map = *wiring_.directory->Hold();
    DropTables(tables_dropped, &map);
    const absl::Status learnt = LearnTables(tables, map);
    std::vector<ShardRecord> known = records;
    absl::Status cut = MergeNarrower(&known, &map);
    cut.Update(CutWider(&known, &map));
    const absl::Status added = AddShards(known, &map);
    LearnRecords(known, /*all=*/added.ok(), std::move(map));
    applied = !cut.ok() ? cut : added.ok() ? learnt : added;  // the coordinator's link comes again
  }
  HOTBED_RETURN_IF_ERROR(wiring_.promises->KeepAll());
  return applied;
}

// The shards are gone for requests at once; FinishDrops deletes their rows when they are idle.
void Assignments::DropTables(const std::vector<TableId>& tables, Map* map) {
  for (const TableId table : tables) {
    if (!tables_dropped_.insert(table).second) continue;
    tables_.erase(table);
    {
      absl::MutexLock lock(&parts_mu_);
      std::erase_if(parts_wanted_, [table](ShardId shard) { return shard.table == table; });
    }
    for (auto it = map->begin(); it != map->end();) {
      if (it->first.table != table) {
        ++it;
        continue;
      }
      wiring_.promises->Forget(it->first);
      if (it->second.shard != nullptr) {
        it->second.shard->Close();
        dropping_.push_back(it->second.shard);
      }
      map->erase(it++);
    }
  }
}

// Changes of tables that are held here go to the shards and into the catalog. An error of the
// catalog does not stop the server from serving: the coordinator tells all tables again at each
// start, before it hands out any epoch, and each push carries in the log what its options were
// resolved to.
absl::Status Assignments::LearnTables(const std::vector<TableSpec>& tables, const Map& map) {
  const std::shared_ptr<const Catalog> catalog = wiring_.data->catalog();
  std::vector<const TableSpec*> changed;
  for (const TableSpec& table : tables) {
    if (tables_dropped_.contains(table.id)) continue;
    const auto [known, added] = tables_.try_emplace(table.id, table);
    const bool news = !added && known->second.changes != table.changes;
    known->second = table;
    const auto held = catalog->tables.find(table.id);
    if (held == catalog->tables.end() || held->second.changes == table.changes) continue;
    changed.push_back(&table);
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
  if (changed.empty()) return absl::OkStatus();
  return wiring_.data->ChangeCatalog([&](Catalog* edited) {
    for (const TableSpec* table : changed) edited->tables.at(table->id).changes = table->changes;
  });
}

// Opens the shards that are assigned to this process for the first time, in whatever role, without
// rows; not those of an earlier process, whose replica is missing then. After an error none of them
// is open: the same assignment may come again. A shard whose rows are still being deleted or
// received is opened when that is over, and so is one that begins with the rows of a checkpoint.
absl::Status Assignments::AddShards(const std::vector<ShardRecord>& records, Map* map) {
  const Member self = wiring_.data->self();
  const std::shared_ptr<const Catalog> catalog = wiring_.data->catalog();
  std::vector<std::pair<const ShardRecord*, const TableSpec*>> added;
  for (const ShardRecord& record : records) {
    if (tables_dropped_.contains(record.shard.table)) continue;
    if (IsOpen(*map, record.shard) || !record.Holds(self) || IsPast(record)) continue;
    if (catalog->shards.contains(record.shard) ||
        catalog->HoldsUnderAnother(record.shard, record.range)) {
      missing_.insert(record.shard);
      continue;
    }
    const auto table = tables_.find(record.shard.table);
    if (table == tables_.end()) {
      return absl::InvalidArgumentError(absl::StrCat(
          record.shard.ToString(), " is assigned here, and its table is not described"));
    }
    added.emplace_back(&record, &table->second);
  }
  if (added.empty()) return absl::OkStatus();
  // The log may hold records of an earlier replica that was deleted.
  HOTBED_ASSIGN_OR_RETURN(const LogPosition end, wiring_.log->End());
  HOTBED_RETURN_IF_ERROR(wiring_.data->ChangeCatalog([&](Catalog* changed) {
    for (const auto& [record, table] : added) {
      changed->tables[table->id] = *table;
      changed->NoteRange(*record);
      changed->log_from[record->shard] = end;
      if (ShardRestorer::Wants(*table, *record, self)) changed->installing.insert(record->shard);
    }
  }));
  for (const auto& [record, table] : added) {
    auto shard = wiring_.factory->Make(*table, record->shard, record->range, /*installed=*/false);
    shard->FinishReplay();
    if (ShardRestorer::Wants(*table, *record, self)) {
      installing_.insert(record->shard);
      shard->Close();
      wiring_.restore(*table, std::move(shard));
    } else {
      (*map)[record->shard].shard = std::move(shard);
    }
  }
  return absl::OkStatus();
}

// Publishes the map before it tells the shards: a shard's answers from then on name the record
// that the map has. Shards that have left this server are dropped. Without `all`, only open shards
// learn their records: they must not wait for others that could not be opened.
void Assignments::LearnRecords(const std::vector<ShardRecord>& records, bool all, Map map) {
  const ServerId self = wiring_.data->self().server;
  Told told;
  ShardList left;
  for (const ShardRecord& record : records) {
    if (tables_dropped_.contains(record.shard.table)) continue;
    if (!all && !IsOpen(map, record.shard)) continue;
    ShardDirectory::Entry& entry = map[record.shard];
    if (!record.IsNewerThan(entry.record)) continue;
    entry.record = record;
    if (record.Names(self)) left_ns_.erase(record.shard);
    if (entry.shard == nullptr) continue;
    told.emplace_back(entry.shard, entry.record);
    // An active epoch that does without this replica: its members have all that it has.
    if (!record.active || record.Names(self)) continue;
    if (MayReturn(record) && !entry.shard->refused()) {
      left_ns_.try_emplace(record.shard, wiring_.clock->NowNs());
      continue;
    }
    left.push_back(std::move(entry.shard));
    entry.shard = nullptr;
  }
  wiring_.directory->Publish(std::move(map));
  for (const ShardRecord& record : records) wiring_.promises->Learn(record);
  TellShards(told);
  DropLeft(std::move(left));
}

// Whether this server, which the record does without, may be asked to hold the shard again.
bool Assignments::MayReturn(const ShardRecord& record) const {
  const auto table = tables_.find(record.shard.table);
  if (table == tables_.end()) return false;
  if (table->second.data_parallel) return true;  // its read replica was dropped with its process
  return table->second.durability == Durability::kReplicated &&
         record.members.size() < table->second.replicas;
}

// All at once, then waits for all.
void Assignments::TellShards(const Told& told) const {
  if (told.empty()) return;
  const Member self = wiring_.data->self();
  absl::BlockingCounter left(static_cast<int>(told.size()));
  for (const auto& [shard, record] : told) {
    shard->LearnRecord(self, record, [&left](Epoch) { left.DecrementCount(); });
  }
  left.Wait();
}

// --- a snapshot transfer comes in

absl::StatusOr<std::shared_ptr<Shard>> Assignments::BeginInstall(ShardId id, const Member& from,
                                                                 Epoch epoch, Lsn lsn) {
  absl::MutexLock lock(&mu_);
  Map map = *wiring_.directory->Hold();
  const auto it = map.find(id);
  if (closed_ || it == map.end() || it->second.shard == nullptr) {
    return absl::FailedPreconditionError("the shard is not open here");
  }
  std::shared_ptr<Shard> shard = it->second.shard;
  if (wiring_.data->catalog()->IsCutFrom(id)) {
    return absl::FailedPreconditionError("a shard that was cut from it is not durable yet");
  }
  if (!shard->MayInstall(from, epoch, lsn)) {
    return absl::FailedPreconditionError(
        absl::StrCat("what is here (epoch ", shard->epoch(), ", LSN ", shard->applied_lsn(),
                     ") must not be replaced by LSN ", lsn, " of epoch ", epoch));
  }
  const std::shared_ptr<const Catalog> before = wiring_.data->catalog();
  HOTBED_RETURN_IF_ERROR(wiring_.data->ChangeCatalog([id](Catalog* catalog) {
    catalog->installing.insert(id);
    catalog->cuts.erase(id);
    catalog->merges.erase(id);
  }));
  DropPartsOfMerge(*before, *shard);
  installing_.insert(id);
  it->second.shard = nullptr;
  wiring_.directory->Publish(std::move(map));
  return shard;
}

void Assignments::GiveUpInstall(std::shared_ptr<Shard> shard) {
  absl::MutexLock lock(&mu_);
  installing_.erase(shard->id());
  missing_.insert(shard->id());
  dropping_.push_back(std::move(shard));
}

absl::Status Assignments::CheckInstalling(ShardId id) const {
  const Map& map = wiring_.directory->Current();
  const auto it = map.find(id);
  if (closed_ || it == map.end() || it->second.shard != nullptr) {
    return absl::FailedPreconditionError("the shard is not wanted here any more");
  }
  return absl::OkStatus();
}

absl::StatusOr<TableSpec> Assignments::TableToInstall(ShardId id) const {
  absl::MutexLock lock(&mu_);
  HOTBED_RETURN_IF_ERROR(CheckInstalling(id));
  return tables_.at(id.table);
}

absl::Status Assignments::FinishInstall(ShardId id, const std::shared_ptr<Shard>& shard,
                                        const LogPosition& log_from) {
  absl::MutexLock lock(&mu_);
  HOTBED_RETURN_IF_ERROR(CheckInstalling(id));
  const ShardRange& wanted = wiring_.directory->Current().at(id).record->range;
  if (wanted.first != shard->range().first || wanted.limit != shard->range().limit) {
    return absl::FailedPreconditionError("the shard was cut while its rows were on their way");
  }
  shard->LearnChanges(tables_.at(id.table).changes);  // the shards of the map learnt them meanwhile
  HOTBED_RETURN_IF_ERROR(wiring_.data->ChangeCatalog([&](Catalog* catalog) {
    catalog->installing.erase(id);
    catalog->log_from[id] = log_from;
  }));
  installing_.erase(id);
  Map map = *wiring_.directory->Hold();
  ShardDirectory::Entry& entry = map[id];
  entry.shard = shard;
  const ShardRecord record = entry.record;
  wiring_.directory->Publish(std::move(map));
  TellShards({{shard, record}});
  return absl::OkStatus();
}

// --- the end

void Assignments::Close() {
  absl::MutexLock lock(&mu_);
  closed_ = true;
  if (writes_ahead_.joinable()) writes_ahead_.join();
}

void Assignments::ReleaseDropping() {
  absl::MutexLock lock(&mu_);
  for (const auto& shard : dropping_) shard->ReleaseStore();
}

}  // namespace hotbed
