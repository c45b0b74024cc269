#include "server/host/recovery.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/log.h"
#include "common/status_macros.h"
#include "common/threads/await_for.h"
#include "server/protocol/merged_meta.h"

namespace hotbed {
namespace {

constexpr uint64_t kReplayBytesMax = 64ull << 20;  // records read and not yet applied
constexpr absl::Duration kReplayRetryFirst = absl::Milliseconds(100);
constexpr absl::Duration kReplayRetryLast = absl::Seconds(2);

// Bytes of records that were handed to shards and are not applied yet.
class ReplayFlight {
 public:
  // Blocks until there is room; `retry` is called from time to time, without the lock. While
  // records wait for rows that cannot take them, nothing else would try those again.
  template <typename Retry>
  void Take(uint64_t bytes, const Retry& retry) ABSL_LOCKS_EXCLUDED(mu_) {
    absl::MutexLock lock(&mu_);
    Await(absl::Condition(this, &ReplayFlight::HasRoom), retry);
    bytes_ += bytes;
  }
  void Give(uint64_t bytes) ABSL_LOCKS_EXCLUDED(mu_) {
    absl::MutexLock lock(&mu_);
    bytes_ -= bytes;
  }
  template <typename Retry>
  void AwaitEmpty(const Retry& retry) ABSL_LOCKS_EXCLUDED(mu_) {
    absl::MutexLock lock(&mu_);
    Await(absl::Condition(this, &ReplayFlight::IsEmpty), retry);
  }

 private:
  bool HasRoom() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) { return bytes_ < kReplayBytesMax; }
  bool IsEmpty() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) { return bytes_ == 0; }
  template <typename Retry>
  void Await(const absl::Condition& condition, const Retry& retry)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    absl::Duration delay = kReplayRetryFirst;
    while (!AwaitFor(&mu_, condition, delay)) {
      mu_.Unlock();  // a record that is retried may be applied on this thread, which takes the lock
      retry();
      mu_.Lock();
      delay = std::min(2 * delay, kReplayRetryLast);
    }
  }

  absl::Mutex mu_;
  uint64_t bytes_ ABSL_GUARDED_BY(mu_) = 0;
};

}  // namespace

absl::Status Recovery::Run() {
  HOTBED_RETURN_IF_ERROR(RestoreCheckpoints());
  HOTBED_RETURN_IF_ERROR(WipeIncomplete());
  HOTBED_RETURN_IF_ERROR(TakeMergedMetas());
  HOTBED_RETURN_IF_ERROR(InheritMetas());
  const std::shared_ptr<const Catalog> catalog = wiring_.data->catalog();
  ShardDirectory::Map map;
  for (const auto& [id, range] : catalog->shards) {
    map[id].shard =
        wiring_.factory->Make(catalog->tables.at(id.table), id, range, /*installed=*/false);
    if (const auto damaged = damaged_.find(id); damaged != damaged_.end()) {
      map[id].shard->Refuse(damaged->second);
    }
  }
  HOTBED_RETURN_IF_ERROR(ReplayLog(map));
  ShardList behind;
  for (auto& [id, entry] : map) {
    if (entry.shard->FinishReplay()) behind.push_back(entry.shard);
    entry.shard->SetDurable(entry.shard->durable_lsn());
  }
  if (!behind.empty()) {
    HOTBED_LOG(Warning) << behind.size() << " shards, " << behind[0]->id().ToString()
                        << " the first, have rows newer than the end of their log: replicas that "
                        << "had not caught up continue from other servers; of the others some "
                        << "updates that were not synced before a power loss may be lost";
  }
  RefuseDamaged(map);
  wiring_.directory->Publish(std::move(map));
  return absl::OkStatus();
}

// Class checkpoint has no log: after a crash its rows may be incomplete.
absl::Status Recovery::RestoreCheckpoints() {
  if (wiring_.data->was_clean()) return absl::OkStatus();
  const std::shared_ptr<const Catalog> catalog = wiring_.data->catalog();
  for (const auto& [id, table] : catalog->tables) {
    if (table.durability != Durability::kCheckpoint) continue;
    HOTBED_LOG(Warning) << "table " << table.name << " (class checkpoint): the last run did not "
                        << "shut down, going back to the last checkpoint";
    HOTBED_RETURN_IF_ERROR(wiring_.tiers->RestoreTable(id));
  }
  return absl::OkStatus();
}

// Shards whose rows were being received or deleted: the primary sends all of them again.
absl::Status Recovery::WipeIncomplete() {
  const std::shared_ptr<const Catalog> catalog = wiring_.data->catalog();
  if (catalog->installing.empty()) return absl::OkStatus();
  // If the tier holds nothing else it starts empty: one of its files may be damaged.
  if (catalog->installing.size() == catalog->shards.size()) {
    HOTBED_RETURN_IF_ERROR(wiring_.tiers->Renew());
  }
  for (const ShardId shard : catalog->installing) {
    HOTBED_LOG(Info) << shard.ToString() << ": its rows here are incomplete and are deleted";
    HOTBED_RETURN_IF_ERROR(wiring_.tiers->DeleteShard(
        SpillShard(catalog->tables.at(shard.table), catalog->shards.at(shard), shard)));
  }
  HOTBED_RETURN_IF_ERROR(wiring_.tiers->Flush());
  return wiring_.data->ChangeCatalog([](Catalog* changed) {
    const std::set<ShardId> wiped = changed->installing;
    for (const ShardId shard : wiped) changed->Forget(shard);
  });
}

// Shards that were merged just before the end of the last run: their state is still aside. The last
// checkpoint of a table of class checkpoint may be from before: it has the parts, and what was
// prepared for a merge that was refused, perhaps. So the parts are merged once more as they are
// there. That state is the end of no log, so it counts less than any other replica.
absl::Status Recovery::TakeMergedMetas() {
  const std::shared_ptr<const Catalog> catalog = wiring_.data->catalog();
  for (const auto& [id, merge] : catalog->merges) {
    const absl::Status taken = TakeMergedMeta(*catalog, id, merge);
    if (absl::IsDataLoss(taken)) {
      HOTBED_LOG(Error) << id.ToString() << " was merged, and is refused: " << taken;
      damaged_[id] = taken;
    } else {
      HOTBED_RETURN_IF_ERROR(taken);
    }
  }
  return absl::OkStatus();
}

absl::Status Recovery::TakeMergedMeta(const Catalog& catalog, ShardId id,
                                      const Catalog::Merge& merge) {
  const TableSpec& table = catalog.tables.at(id.table);
  const auto meta_of = [&](ShardId name) -> absl::StatusOr<ShardMeta> {
    const SpillShard spilled(table, catalog.shards.at(id), name);
    HOTBED_ASSIGN_OR_RETURN(const std::string bytes, wiring_.tiers->ReadMeta(spilled));
    return ShardMeta::Parse(bytes);
  };
  HOTBED_ASSIGN_OR_RETURN(const ShardMeta there, meta_of(id));
  const bool went_back = table.durability == Durability::kCheckpoint && !wiring_.data->was_clean();
  HOTBED_ASSIGN_OR_RETURN(const ShardMeta other,
                          meta_of(went_back ? merge.with : Catalog::MergedName(id)));
  const Lsn merged_at = went_back ? merge.base.lsn : other.applied_lsn;
  if (there.applied_lsn >= merged_at) return absl::OkStatus();
  const ShardMeta merged =
      went_back ? MergeMetas(merge.lanes, merge.boundary, {0, merged_at}, there, other) : other;
  return wiring_.tiers->ReplaceMeta(SpillShard(table, catalog.shards.at(id), id),
                                    merged.Serialize(), merged_at);
}

// A shard is numbered above the one that it was cut from, so the parents come first.
absl::Status Recovery::InheritMetas() {
  const std::shared_ptr<const Catalog> catalog = wiring_.data->catalog();
  for (const auto& [id, cut] : catalog->cuts) {
    const TableSpec& table = catalog->tables.at(id.table);
    if (const auto damaged = damaged_.find(cut.parent); damaged != damaged_.end()) {
      damaged_[id] = damaged->second;
      continue;
    }
    HOTBED_RETURN_IF_ERROR(
        wiring_.tiers->InheritMeta(SpillShard(table, catalog->shards.at(cut.parent), cut.parent),
                                   SpillShard(table, catalog->shards.at(id), id)));
  }
  return absl::OkStatus();
}

namespace {

// The shards of which a record is part: the one that it names, and those that were cut from it
// later (Catalog::cuts) and from these.
void AddOwners(const Catalog& catalog, const RecordView& record, ShardId id,
               const LogPosition& begin, std::vector<ShardId>* owners) {
  if (!(record.at < begin)) owners->push_back(id);
  for (const auto& [child, cut] : catalog.cuts) {
    if (cut.parent != id || !(record.at < catalog.LogFrom(child))) continue;
    const bool inherited = record.header.shard != id;
    AddOwners(catalog, record, child, inherited ? begin : cut.from, owners);
  }
}

}  // namespace

absl::Status Recovery::ReplayLog(const ShardDirectory::Map& map) {
  ReplayFlight flight;
  const auto retry = [&] { RetryReplay(map); };
  const std::shared_ptr<const Catalog> catalog = wiring_.data->catalog();
  std::set<ShardId> unknown;
  std::vector<ShardId> owners;
  const absl::Status status = wiring_.log->Replay([&](const RecordView& record) {
    const auto it = map.find(record.header.shard);
    if (it == map.end() || !it->second.shard->logged()) {
      unknown.insert(record.header.shard);
      return absl::OkStatus();
    }
    const uint64_t bytes = 64 + record.header.id_count * (8ull + GradientRowBytes(record.header));
    owners.clear();
    AddOwners(*catalog, record, record.header.shard, catalog->LogFrom(record.header.shard),
              &owners);
    for (const ShardId owner : owners) {
      flight.Take(bytes, retry);
      map.at(owner).shard->Replay(record, [&flight, bytes] { flight.Give(bytes); });
    }
    return absl::OkStatus();
  });
  flight.AwaitEmpty(retry);
  for (const auto& [child, cut] : catalog->cuts) wiring_.log->Inherit(cut.parent, child);
  for (const ShardId shard : unknown) wiring_.log->ForgetShard(shard);
  return status;
}

void Recovery::RetryReplay(const ShardDirectory::Map& map) {
  ResumeWrites(wiring_.log, wiring_.tiers, wiring_.tiers->GetHealth());
  for (const auto& [id, entry] : map) {
    if (entry.shard->refused()) continue;
    if (const std::string error = entry.shard->error(); !error.empty()) {
      HOTBED_LOG_EVERY_S(Warning, 10) << "recovery waits: " << error;
      entry.shard->RetryReplay();
    }
  }
}

void Recovery::RefuseDamaged(const ShardDirectory::Map& map) {
  if (wiring_.log->damage().empty()) return;
  const std::shared_ptr<const Catalog> catalog = wiring_.data->catalog();
  bool concerned = false;
  for (const ShardLog::Damage& damage : wiring_.log->damage()) {
    HOTBED_LOG(Error) << "log: " << damage.message;
    for (auto& [id, entry] : map) {
      const bool named =
          std::find(damage.shards.begin(), damage.shards.end(), id) != damage.shards.end();
      const auto cut = catalog->cuts.find(id);
      const bool inherited =
          cut != catalog->cuts.end() && std::find(damage.shards.begin(), damage.shards.end(),
                                                  cut->second.parent) != damage.shards.end();
      const auto from = catalog->log_from.find(id);
      const bool later = !inherited && cut == catalog->cuts.end() &&
                         from != catalog->log_from.end() && from->second > damage.end;
      if (!entry.shard->logged() || later || !(named || inherited || damage.all_shards)) {
        continue;
      }
      concerned = true;
      entry.shard->Refuse(
          absl::DataLossError(absl::StrCat("its log is damaged: ", damage.message)));
    }
  }
  // Nobody needs segments whose records are unknown.
  if (!concerned) wiring_.log->ForgetShard(ShardId());
}

void ResumeWrites(ShardLog* log, TierHost* tiers, const TierHost::Health& health) {
  log->GiveBackSpares(/*disk_is_full=*/!health.background_error.empty());
  if (log->GetUsage().read_only) {
    if (const absl::Status resumed = log->TryResume(); !resumed.ok()) {
      HOTBED_LOG_EVERY_S(Warning, 10) << "the log is read-only: " << resumed;
    }
  }
  if (!health.background_error.empty() && !health.damaged) {
    if (const absl::Status resumed = tiers->TryResume(); !resumed.ok()) {
      HOTBED_LOG_EVERY_S(Warning, 10) << "the spill tier is read-only: " << resumed;
    }
  }
}

}  // namespace hotbed
