// Shards that were merged from two neighbours: each replica here is merged likewise, where it is.
// No row moves in the spill tier, because its keys are positions. The state of the merged shard is
// made durable beside those of the parts; then the catalog names the merged shard instead of them.
// A crash at any point leaves either the parts or the merged shard.
#include <algorithm>
#include <string>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/log.h"
#include "common/status_macros.h"
#include "server/host/assignments.h"
#include "server/protocol/merged_meta.h"

namespace hotbed {
// Shards here that the record has ended. A shard has the first row that it began with for as long
// as it is one, so it has ended where a later record of another one has that row.
std::vector<ShardId> Assignments::PartsHere(const ShardRecord& record, const Map& map) const {
  std::vector<ShardId> parts;
  const std::shared_ptr<const Catalog> catalog = wiring_.data->catalog();
  for (auto it = catalog->shards.lower_bound(ShardId{record.shard.table, 0});
       it != catalog->shards.end() && it->first.table == record.shard.table; ++it) {
    // After a restart the promise alone tells that a shard was cut off later: the record is late.
    const auto entry = map.find(it->first);
    const bool newer = wiring_.promises->Get(it->first) > record.epoch ||
                       (entry != map.end() && entry->second.record->epoch > record.epoch);
    const ShardRange& range = it->second;
    const bool has_first = range.first >= record.range.first && range.first < record.range.limit &&
                           range.column_first == record.range.column_first;
    const bool narrower = it->first == record.shard && range.limit < record.range.limit;
    if (!newer && has_first && (it->first != record.shard || narrower)) parts.push_back(it->first);
  }
  return parts;
}

absl::Status Assignments::MergeNarrower(std::vector<ShardRecord>* records, Map* map) {
  const Member self = wiring_.data->self();
  absl::Status first_error;
  std::erase_if(*records, [&](const ShardRecord& record) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    if (record.lanes.empty() || tables_dropped_.contains(record.shard.table)) return false;
    const auto known = map->find(record.shard);
    if (known != map->end() && known->second.record->IsNewerThan(record)) return false;
    if (IsPast(record)) return false;
    const std::vector<ShardId> parts = PartsHere(record, *map);
    if (parts.empty()) return false;
    const auto closed = [&](ShardId id) {
      const auto entry = map->find(id);
      return entry == map->end() || entry->second.shard == nullptr;  // being deleted
    };
    const bool both = parts.size() == 2 && Contains(parts, record.shard) &&
                      Contains(parts, record.merge.with) && AreWhole(record) &&
                      std::none_of(parts.begin(), parts.end(), closed);
    if (both && MayCount(record, self.server)) {
      const absl::Status merged = Merge(record, map);
      first_error.Update(merged);
      return !merged.ok();
    }
    const absl::Status dropped = DropParts(record, parts, map);  // nothing here counts
    first_error.Update(dropped);
    return !dropped.ok();
  });
  return first_error;
}

// Whether the two parts of the merge, as they are here, make up the record's range.
bool Assignments::AreWhole(const ShardRecord& record) const {
  const std::shared_ptr<const Catalog> catalog = wiring_.data->catalog();
  const ShardRange& lower = catalog->shards.at(record.shard);
  const ShardRange& upper = catalog->shards.at(record.merge.with);
  return lower.first == record.range.first && lower.limit == upper.first &&
         upper.limit == record.range.limit;
}

absl::Status Assignments::DropParts(const ShardRecord& record, const std::vector<ShardId>& parts,
                                    Map* map) {
  HOTBED_RETURN_IF_ERROR(PromiseMerged(record, parts));
  ShardList dropped;
  for (const ShardId part : parts) {
    const auto entry = map->find(part);
    if (entry == map->end()) continue;
    if (entry->second.shard != nullptr) {
      dropped.push_back(std::exchange(entry->second.shard, nullptr));
    }
    if (part != record.shard) map->erase(entry);
  }
  DropLeft(std::move(dropped));
  if (record.Holds(wiring_.data->self())) missing_.insert(record.shard);
  return absl::OkStatus();
}

absl::Status Assignments::MayPrepareMerge(ShardId lower, ShardId upper) const {
  const std::shared_ptr<const Catalog> catalog = wiring_.data->catalog();
  for (const ShardId part : {lower, upper}) {
    if (catalog->InCut(part) || catalog->merges.contains(part)) {
      return absl::UnavailableError(
          absl::StrCat(part.ToString(), " was cut or merged just now, and is not durable yet"));
    }
  }
  return absl::OkStatus();
}

absl::Status Assignments::MayMerge(const Shard& lower, const Shard& upper) const {
  HOTBED_RETURN_IF_ERROR(MayPrepareMerge(lower.id(), upper.id()));
  for (const Shard* part : {&lower, &upper}) {
    if (part->refused()) {
      return absl::DataLossError(
          absl::StrCat(part->id().ToString(), " cannot be merged: ", part->error()));
    }
  }
  return absl::OkStatus();
}

absl::Status Assignments::WriteMergedMeta(const ShardRecord& record, const Shard& lower,
                                          const Shard& upper, const LogEnd& base,
                                          std::string* bytes) const {
  HOTBED_ASSIGN_OR_RETURN(const std::string lower_meta, wiring_.tiers->ReadMeta(lower.spilled()));
  HOTBED_ASSIGN_OR_RETURN(const std::string upper_meta, wiring_.tiers->ReadMeta(upper.spilled()));
  HOTBED_ASSIGN_OR_RETURN(const ShardMeta of_lower, ShardMeta::Parse(lower_meta));
  HOTBED_ASSIGN_OR_RETURN(const ShardMeta of_upper, ShardMeta::Parse(upper_meta));
  *bytes = MergeMetas(record.lanes, upper.range().first, base, of_lower, of_upper).Serialize();
  const SpillShard aside(lower.table(), record.range, Catalog::MergedName(record.shard));
  HOTBED_RETURN_IF_ERROR(wiring_.tiers->ReplaceMeta(aside, *bytes, base.lsn));
  return wiring_.tiers->Flush();
}

void Assignments::MergeAhead(const ShardRecord& merged, std::shared_ptr<Shard> lower,
                             std::shared_ptr<Shard> upper) {
  absl::MutexLock lock(&mu_);
  if (closed_) return;
  ahead_ = std::make_shared<Ahead>(Ahead{merged, std::nullopt});
  writes_ahead_ = std::jthread(
      [this, merged, lower, upper, ahead = ahead_, before = std::move(writes_ahead_)]() mutable {
        // The thread of an earlier merge may still write what belongs to the same parts.
        if (before.joinable()) before.join();
        for (const auto& part : {lower, upper}) {
          if (!part->WriteBack().ok()) return;
        }
        std::string meta;
        if (!wiring_.log->Sync().ok()) return;
        if (!WriteMergedMeta(merged, *lower, *upper, merged.merge.base, &meta).ok()) return;
        ahead->meta = std::move(meta);
      });
}

// Where this fails the state stays, and the next merge of the shard replaces it: nothing reads it.
void Assignments::DropAhead(ShardId lower) {
  absl::MutexLock lock(&mu_);
  if (closed_ || ahead_ == nullptr || ahead_->merged.shard != lower) return;
  const std::shared_ptr<Ahead> ahead = std::exchange(ahead_, nullptr);
  const auto table = tables_.find(lower.table);
  if (table == tables_.end()) return;
  const SpillShard aside(table->second, ahead->merged.range, Catalog::MergedName(lower));
  writes_ahead_ = std::jthread([this, aside, before = std::move(writes_ahead_)]() mutable {
    if (before.joinable()) before.join();
    if (const absl::Status dropped = wiring_.tiers->ReplaceMeta(aside, "", 0); !dropped.ok()) {
      HOTBED_LOG_EVERY_S(Warning, 10) << "cannot take away what was prepared for a merge of "
                                      << aside.shard.ToString() << ": " << dropped;
    }
  });
}

std::optional<std::string> Assignments::TakeMergedAhead(const ShardRecord& record) {
  if (writes_ahead_.joinable()) writes_ahead_.join();
  const std::shared_ptr<Ahead> ahead = std::exchange(ahead_, nullptr);
  if (ahead == nullptr || ahead->merged.shard != record.shard ||
      !(ahead->merged.merge == record.merge)) {
    return std::nullopt;
  }
  return ahead->meta;
}

absl::Status Assignments::PromiseMerged(const ShardRecord& record,
                                        const std::vector<ShardId>& parts) const {
  std::vector<ShardRecord> kept;
  for (const ShardId part : parts) {
    if (part == record.shard && !record.Holds(wiring_.data->self())) continue;
    kept.push_back(record);
    kept.back().shard = part;
  }
  return wiring_.promises->KeepAhead(kept);
}

absl::Status Assignments::Merge(const ShardRecord& record, Map* map) {
  const std::shared_ptr<Shard> lower = map->at(record.shard).shard;
  const std::shared_ptr<Shard> upper = map->at(record.merge.with).shard;
  const TableSpec& table = tables_.at(record.shard.table);
  HOTBED_RETURN_IF_ERROR(MayMerge(*lower, *upper));
  const std::optional<std::string> ahead = TakeMergedAhead(record);
  for (const auto& part : {lower, upper}) {
    if (!cutting_.contains(part->id())) HOTBED_RETURN_IF_ERROR(CloseForCut(part));
  }
  const LogEnd base = BaseHere(record, lower->End().log, upper->End().log);
  const bool exact = base == record.merge.base;
  // Pushes wait, so the log and the merged meta, which say nothing without the catalog, come to
  // the disk at the same time. The promise is the last before the catalog: a merge that fails
  // before has changed nothing.
  absl::StatusOr<LogPosition> end = absl::UnknownError("not asked for");
  std::string meta;
  if (ahead.has_value() && exact) {  // the parts have stood still since then
    meta = *ahead;
    end = wiring_.log->End();
  } else {
    std::thread syncing([&, this] { end = wiring_.log->End(); });
    const absl::Status written = WriteMergedMeta(record, *lower, *upper, base, &meta);
    syncing.join();
    HOTBED_RETURN_IF_ERROR(written);
  }
  HOTBED_RETURN_IF_ERROR(end.status());
  HOTBED_RETURN_IF_ERROR(PromiseMerged(record, {lower->id(), upper->id()}));
  HOTBED_RETURN_IF_ERROR(wiring_.data->ChangeCatalog([&](Catalog* catalog) {
    catalog->Forget(upper->id());
    catalog->NoteRange(record);
    catalog->log_from[record.shard] = *end;
    catalog->merges[record.shard] = {upper->id(), upper->range().first, base, record.lanes};
  }));
  const SpillShard merged(table, record.range, record.shard);
  HOTBED_RETURN_IF_ERROR(wiring_.tiers->ReplaceMeta(merged, meta, base.lsn));
  ShardOptions::Continued state;
  state.proven = exact && cutting_.at(lower->id()).proven && cutting_.at(upper->id()).proven;
  state.durable_lsn = base.lsn;
  auto shard = wiring_.factory->Make(table, record.shard, record.range, /*installed=*/false, state);
  shard->FinishReplay();
  shard->SetDurable(base.lsn);
  wiring_.log->ForgetShard(upper->id());
  wiring_.promises->Forget(upper->id());
  left_ns_.erase(upper->id());
  missing_.erase(upper->id());
  cutting_.erase(lower->id());
  cutting_.erase(upper->id());
  map->erase(upper->id());
  (*map)[record.shard] = {.shard = std::move(shard), .record = ShardRecord()};
  HOTBED_LOG(Info) << upper->id().ToString() << " was merged into " << record.shard.ToString()
                   << " here, at LSN " << base.lsn
                   << (exact ? "" : "; a part has lost the end of its log");
  return absl::OkStatus();
}

ShardList Assignments::Merged() const {
  absl::MutexLock lock(&mu_);
  ShardList shards;
  for (const auto& [id, merge] : wiring_.data->catalog()->merges) {
    if (auto shard = wiring_.directory->Find(id)) shards.push_back(std::move(shard));
  }
  return shards;
}

// Its state is durable under its own name.
void Assignments::FinishMerge(const Shard& shard) {
  absl::MutexLock lock(&mu_);
  const std::shared_ptr<const Catalog> before = wiring_.data->catalog();
  if (!before->merges.contains(shard.id())) return;
  const absl::Status finished =
      wiring_.data->ChangeCatalog([&](Catalog* catalog) { catalog->merges.erase(shard.id()); });
  if (finished.ok()) return DropPartsOfMerge(*before, shard);
  HOTBED_LOG_EVERY_S(Warning, 10) << "cannot finish the merge of " << shard.id().ToString() << ": "
                                  << finished;
}

// The one aside, and that of the upper part.
void Assignments::DropPartsOfMerge(const Catalog& before, const Shard& shard) const {
  const auto merge = before.merges.find(shard.id());
  if (merge == before.merges.end()) return;
  for (const ShardId name : {Catalog::MergedName(shard.id()), merge->second.with}) {
    if (name == shard.id()) continue;
    const SpillShard part(shard.table(), shard.range(), name);
    if (const absl::Status dropped = wiring_.tiers->ReplaceMeta(part, "", 0); !dropped.ok()) {
      HOTBED_LOG_EVERY_S(Warning, 10) << "cannot take away what was left of the merge of "
                                      << shard.id().ToString() << ": " << dropped;
    }
  }
}

}  // namespace hotbed
