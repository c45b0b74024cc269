// Shards that were cut in two: each replica here is cut likewise, where it is. No row moves in the
// spill tier, because its keys are positions; the parts open with the state in which the whole was
// left. A crash at any point leaves either the whole or the parts: the catalog decides, and until
// the state of a part is durable under its own name, recovery takes it from the whole
// (Catalog::cuts).
#include <algorithm>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/log.h"
#include "common/status_macros.h"
#include "server/host/assignments.h"

namespace hotbed {
namespace {

constexpr int64_t kSettleNsMax = 2 * kSecondNs;  // for entries that are on their way
constexpr int64_t kSettleStepNs = kMillisecondNs / 4;

bool SameRows(const ShardRange& a, const ShardRange& b) {
  return a.first == b.first && a.limit == b.limit;
}

bool Tile(const ShardRange& whole, const ShardRange& first, std::vector<ShardRecord> parts) {
  std::vector<ShardRange> ranges = {first};
  for (const ShardRecord& part : parts) ranges.push_back(part.range);
  std::sort(ranges.begin(), ranges.end(),
            [](const ShardRange& a, const ShardRange& b) { return a.first < b.first; });
  uint64_t next = whole.first;
  for (const ShardRange& range : ranges) {
    if (range.first != next) return false;
    next = range.limit;
  }
  return next == whole.limit;
}

}  // namespace

bool Assignments::Inside(const ShardRange& inner, const ShardRange& outer) {
  return inner.first >= outer.first && inner.limit <= outer.limit &&
         inner.column_first == outer.column_first && inner.column_limit == outer.column_limit;
}

bool Assignments::MayCount(const ShardRecord& record, ServerId server) {
  return ContainsServer(record.members, server) || ContainsServer(record.base, server) ||
         record.FindPassedOver(server) != nullptr;
}

bool Assignments::IsPast(const ShardRecord& record) const {
  return wiring_.promises->Get(record.shard) > record.epoch;
}

std::vector<ShardRecord> Assignments::PartsOf(const ShardRecord& record, const ShardRange& held,
                                              const std::vector<ShardRecord>& records,
                                              const Map& map) const {
  const std::shared_ptr<const Catalog> catalog = wiring_.data->catalog();
  std::map<ShardId, ShardRecord> newest;
  // The parts begin later epochs than the whole. Shards that were merged into it, or into another
  // one, may still be known from before.
  const auto whole = map.find(record.shard);
  const Epoch whole_epoch = whole == map.end() ? 0 : whole->second.record->epoch;
  const auto add = [&](const ShardRecord& part) {
    if (part.epoch <= whole_epoch || IsPast(part)) return;
    if (part.shard.table != record.shard.table || part.shard == record.shard) return;
    if (!Inside(part.range, held) || catalog->shards.contains(part.shard)) return;
    ShardRecord& known = newest[part.shard];
    if (known.epoch == 0 || part.IsNewerThan(known)) known = part;
  };
  for (const auto& [id, entry] : map) {
    if (entry.record->epoch != 0) add(entry.record);
  }
  for (const ShardRecord& part : records) add(part);
  const auto replaced = [&](const ShardRecord& part) {
    const auto replaces = [&](const ShardRecord& other) {
      return other.epoch > part.epoch && other.range.first < part.range.limit &&
             part.range.first < other.range.limit;
    };
    return replaces(record) || std::any_of(newest.begin(), newest.end(), [&](const auto& entry) {
             return replaces(entry.second);
           });
  };
  std::vector<ShardRecord> parts;
  for (const auto& [id, part] : newest) {
    if (!replaced(part)) parts.push_back(part);
  }
  return parts;
}

absl::Status Assignments::CutWider(std::vector<ShardRecord>* records, Map* map) {
  const Member self = wiring_.data->self();
  const std::vector<ShardRecord> all = *records;
  std::vector<ShardRecord> opened;
  absl::Status first_error;
  std::erase_if(*records, [&](const ShardRecord& record) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    const std::shared_ptr<const Catalog> catalog = wiring_.data->catalog();
    const auto held = catalog->shards.find(record.shard);
    const auto entry = map->find(record.shard);
    if (held == catalog->shards.end() || tables_dropped_.contains(record.shard.table) ||
        IsPast(record) || (entry != map->end() && entry->second.record->IsNewerThan(record))) {
      return false;
    }
    if (SameRows(held->second, record.range) || !Inside(record.range, held->second)) {
      absl::MutexLock lock(&parts_mu_);
      parts_wanted_.erase(record.shard);
      return false;
    }
    if (entry == map->end() || entry->second.shard == nullptr) return false;  // being deleted
    const std::vector<ShardRecord> parts = PartsOf(record, held->second, all, *map);
    const auto counts = [&](const ShardRecord& part) { return MayCount(part, self.server); };
    const bool share = counts(record) || std::any_of(parts.begin(), parts.end(), counts);
    const bool wants_parts = share && !Tile(held->second, record.range, parts);
    {
      absl::MutexLock lock(&parts_mu_);
      parts_wanted_.erase(record.shard);
      if (wants_parts) parts_wanted_.insert(record.shard);
    }
    if (wants_parts) {  // the next map has all of them
      first_error.Update(absl::UnavailableError(
          absl::StrCat(record.shard.ToString(), " was cut, and the other part is not known yet")));
      return true;
    }
    if (share) {
      const absl::Status cut = Cut(record, parts, map);
      if (cut.ok()) opened.insert(opened.end(), parts.begin(), parts.end());
      first_error.Update(cut);
      return !cut.ok();
    }
    // Nothing here counts, and the rows are another shard's too.
    entry->second.record = record;
    DropLeft({std::exchange(entry->second.shard, nullptr)});
    if (record.Holds(self)) missing_.insert(record.shard);
    return false;
  });
  records->insert(records->end(), opened.begin(), opened.end());
  return first_error;
}

absl::Status Assignments::CloseForCut(const std::shared_ptr<Shard>& shard) {
  const int64_t end_ns = wiring_.clock->NowNs() + kSettleNsMax;
  while (!shard->refused() && !shard->SettleForCut()) {
    if (wiring_.clock->NowNs() >= end_ns) {
      return absl::UnavailableError(
          absl::StrCat(shard->id().ToString(), " was cut, and still has pushes on their way"));
    }
    wiring_.clock->SleepNs(kSettleStepNs);
  }
  if (!shard->refused()) HOTBED_RETURN_IF_ERROR(shard->WriteBack().status());
  shard->Close();
  HOTBED_RETURN_IF_ERROR(AwaitIdle({shard}, wiring_.clock));
  cutting_[shard->id()] = shard->ContinuedState();
  shard->ReleaseStore();
  return absl::OkStatus();
}

absl::Status Assignments::PromiseParts(const ShardRecord& record,
                                       const std::vector<ShardRecord>& parts) const {
  const Member self = wiring_.data->self();
  std::vector<ShardRecord> held;
  if (record.Holds(self)) held.push_back(record);
  for (const ShardRecord& part : parts) {
    if (part.Holds(self)) held.push_back(part);
  }
  return wiring_.promises->KeepAhead(held);
}

absl::Status Assignments::Cut(const ShardRecord& record, const std::vector<ShardRecord>& parts,
                              Map* map) {
  const std::shared_ptr<Shard> whole = (*map)[record.shard].shard;
  const TableSpec& table = tables_.at(record.shard.table);
  if (!cutting_.contains(record.shard)) HOTBED_RETURN_IF_ERROR(CloseForCut(whole));
  for (const ShardRecord& part : parts) {
    HOTBED_RETURN_IF_ERROR(
        wiring_.tiers->InheritMeta(whole->spilled(), SpillShard(table, part.range, part.shard)));
  }
  HOTBED_ASSIGN_OR_RETURN(const LogPosition end, wiring_.log->End());
  // The promise tells a part from those that were merged away, if an earlier record comes late.
  if (!record.lanes.empty()) HOTBED_RETURN_IF_ERROR(PromiseParts(record, parts));
  // Pushes wait: the promises that the parts will ask for come to the disk meanwhile. An error does
  // no harm: the shards ask again.
  std::thread promising([&, this] {
    const absl::Status kept = PromiseParts(record, parts);
    if (!kept.ok()) HOTBED_LOG_EVERY_S(Warning, 10) << "cannot keep promises: " << kept;
  });
  const absl::Status changed = wiring_.data->ChangeCatalog([&](Catalog* catalog) {
    catalog->NoteRange(record);
    for (const ShardRecord& part : parts) {
      catalog->NoteRange(part);
      catalog->log_from[part.shard] = end;
      catalog->cuts[part.shard] = {record.shard, catalog->LogFrom(record.shard)};
    }
  });
  promising.join();
  HOTBED_RETURN_IF_ERROR(changed);
  const auto open = [&](ShardId id, const ShardRange& range) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    auto shard =
        wiring_.factory->Make(table, id, range, whole->installed(), cutting_.at(record.shard));
    shard->FinishReplay();
    if (whole->refused()) shard->Refuse(absl::DataLossError(whole->error()));
    (*map)[id] = {.shard = std::move(shard), .record = ShardRecord()};  // it learns its own next
  };
  for (const ShardRecord& part : parts) {
    if (whole->logged()) wiring_.log->Inherit(record.shard, part.shard);
    open(part.shard, part.range);
    HOTBED_LOG(Info) << part.shard.ToString() << " was cut from " << record.shard.ToString()
                     << " here, at LSN " << whole->applied_lsn();
  }
  open(record.shard, record.range);
  cutting_.erase(record.shard);
  return absl::OkStatus();
}

ShardList Assignments::Inheriting() const {
  absl::MutexLock lock(&mu_);
  ShardList shards;
  for (const auto& [id, cut] : wiring_.data->catalog()->cuts) {
    if (auto shard = wiring_.directory->Find(id)) shards.push_back(std::move(shard));
  }
  return shards;
}

void Assignments::FinishCut(ShardId shard) {
  absl::MutexLock lock(&mu_);
  const absl::Status finished =
      wiring_.data->ChangeCatalog([shard](Catalog* catalog) { catalog->cuts.erase(shard); });
  if (!finished.ok()) {
    HOTBED_LOG_EVERY_S(Warning, 10)
        << "cannot finish the cut of " << shard.ToString() << ": " << finished;
  }
}

}  // namespace hotbed
