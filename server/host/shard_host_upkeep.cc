// What the shard host does beside requests: write-back and log trimming, resuming after a full
// disk, dropping.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/await_for.h"
#include "common/clock.h"
#include "common/log.h"
#include "common/status_macros.h"
#include "server/host/shard_host_impl.h"

namespace hotbed {
namespace {

constexpr absl::Duration kUpkeepInterval = absl::Milliseconds(100);
constexpr int64_t kTickNs = kSecondNs;
constexpr size_t kSizedEvery = 5;                 // ticks
constexpr int64_t kDirtyNsMax = 120 * kSecondNs;  // rows are written back at the latest after this
constexpr size_t kSweepBatchMin = 8;              // shards that share a flush
constexpr size_t kSweepBatchPart = 8;             // and at least this part of all

}  // namespace

void ShardHostImpl::UpkeepLoop() {
  for (;;) {
    {
      absl::MutexLock lock(&upkeep_mu_);
      AwaitFor(&upkeep_mu_, absl::Condition(&upkeep_stops_), kUpkeepInterval);
      if (upkeep_stops_) return;
    }
    Upkeep(clock_->NowNs());
  }
}

void ShardHostImpl::Upkeep(int64_t now_ns) {
  const TierHost::Usage tiers = tiers_->GetUsage();
  ResumeWrites(tiers);
  if (now_ns - ticked_ns_ >= kTickNs) {
    ticked_ns_ = now_ns;
    if (const absl::Status swept = SweepWhereLost(); !swept.ok()) {
      HOTBED_LOG_EVERY_S(Error, 10) << "write-back failed: " << swept;
    }
    receiver_->Check();
    DropKeptLeft(now_ns);
    pull_p99_ns_.store(pull_latency_.TakeP99(), std::memory_order_relaxed);
    pace_.OnSecond(pull_p99_ns_.load(std::memory_order_relaxed));
    CallListener();
    SizeSomeShards();
  }
  RenewWhereDamaged(tiers, now_ns);
  FinishDrops();
  SweepWhereDue(now_ns);
  KeepCheckpointWhereDue(now_ns);
}

// Each in its turn: it costs some microseconds a shard.
void ShardHostImpl::SizeSomeShards() {
  const std::vector<std::shared_ptr<Shard>> shards = Shards();
  for (size_t i = sized_++ % kSizedEvery; i < shards.size(); i += kSizedEvery) {
    shards[i]->SetSpilledBytes(
        tiers_->SpilledBytes(shards[i]->table(), shards[i]->range(), shards[i]->id()));
  }
}

void ShardHostImpl::ResumeWrites(const TierHost::Usage& tiers) {
  if (log_->GetUsage().read_only) {
    if (const absl::Status resumed = log_->TryResume(); !resumed.ok()) {
      HOTBED_LOG_EVERY_S(Warning, 10) << "the log is read-only: " << resumed;
    }
  }
  if (!tiers.background_error.empty() && !tiers.damaged) {
    if (const absl::Status resumed = tiers_->TryResume(); !resumed.ok()) {
      HOTBED_LOG_EVERY_S(Warning, 10) << "the spill tier is read-only: " << resumed;
    }
  }
}

// Rows are deleted and flushed without the lock: assignments do not wait for the disk.
void ShardHostImpl::FinishDrops() {
  std::vector<std::shared_ptr<Shard>> dropping;
  {
    absl::MutexLock control(&control_mu_);
    for (const auto& shard : dropping_) {
      if (shard->idle()) dropping.push_back(shard);
    }
    if (dropping_.empty()) return AddMissing();
    if (dropping.empty()) return;
    if (const absl::Status marked = MarkDropped(dropping); !marked.ok()) {
      HOTBED_LOG_EVERY_S(Warning, 10) << "cannot drop shards yet: " << marked;
      return;
    }
  }
  std::vector<std::shared_ptr<Shard>> deleted;
  for (const auto& shard : dropping) {
    shard->ReleaseStore();
    const absl::Status status = tiers_->DeleteShard(shard->table(), shard->range(), shard->id());
    if (status.ok()) {
      deleted.push_back(shard);
    } else {
      HOTBED_LOG_EVERY_S(Warning, 10)
          << "cannot delete " << shard->id().ToString() << ": " << status;
    }
  }
  if (deleted.empty()) return;
  // The spill has no log of its own: once the catalog does not name a shard, nobody would delete
  // rows that a kill brings back.
  if (const absl::Status flushed = tiers_->Flush(); !flushed.ok()) {
    HOTBED_LOG_EVERY_S(Warning, 10) << "cannot finish drops yet: " << flushed;
    return;
  }
  absl::MutexLock control(&control_mu_);
  ForgetDropped(deleted);
  AddMissing();
}

// Files go at once, and a kill must not leave a shard that seems to be whole.
absl::Status ShardHostImpl::MarkDropped(const std::vector<std::shared_ptr<Shard>>& shards) {
  Catalog changed = catalog_;
  bool news = false;
  for (const auto& shard : shards) {
    if (!changed.shards.contains(shard->id())) continue;
    news |= changed.installing.insert(shard->id()).second;
  }
  return news ? SaveCatalog(std::move(changed)) : absl::OkStatus();
}

void ShardHostImpl::ForgetDropped(const std::vector<std::shared_ptr<Shard>>& deleted) {
  Catalog changed = catalog_;
  for (const auto& shard : deleted) {
    if (shard->logged()) log_->ForgetShard(shard->id());
    changed.shards.erase(shard->id());
    changed.log_from.erase(shard->id());
    changed.installing.erase(shard->id());
    swept_ns_.erase(shard->id());
    std::erase(dropping_, shard);
  }
  ForgetDroppedTables(&changed);
  catalog_ = std::move(changed);
  if (const absl::Status s = catalog_.Save(PathOf("CATALOG"), files_); !s.ok()) {
    HOTBED_LOG(Warning) << "cannot write the catalog after a drop: " << s;
  }
}

void ShardHostImpl::ForgetDroppedTables(Catalog* catalog) {
  for (const TableId table : tables_dropped_) {
    const auto first = catalog->shards.lower_bound(ShardId{table, 0});
    if (first != catalog->shards.end() && first->first.table == table) continue;
    if (catalog->tables.erase(table) == 0) continue;
    if (const absl::Status s = promises_->ForgetTable(table); !s.ok()) {
      HOTBED_LOG(Warning) << "cannot forget the promises of table " << table << ": " << s;
    }
  }
}

// Shards that came back while their copy was being deleted, or whose copying was taken back.
void ShardHostImpl::AddMissing() {
  if (missing_.empty() || shut_down_) return;
  ShardMap map = Map();
  std::vector<ShardRecord> records;
  for (auto it = missing_.begin(); it != missing_.end();) {
    const auto entry = map.find(*it);
    const bool gone = entry == map.end() || entry->second.shard != nullptr;
    if (gone || !catalog_.shards.contains(*it)) {
      if (!gone) records.push_back(entry->second.record);
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
  std::vector<std::pair<std::shared_ptr<Shard>, ShardRecord>> told;
  for (const ShardRecord& record : records) {
    if (map[record.shard].shard != nullptr) told.emplace_back(map[record.shard].shard, record);
  }
  Publish(std::move(map));
  TellShards(told);
}

// What is kept for shards that are refused is no burden of the others: no sweep of theirs can free
// it. Bytes of the rest.
uint64_t ShardHostImpl::NoteLogFull() {
  const ShardLog::Usage usage = log_->GetUsage();
  const uint64_t bytes = usage.bytes - usage.bytes_aside;
  log_full_.store(bytes > options_.log_bytes_max, std::memory_order_relaxed);
  return bytes;
}

// Keeps the log under its limit and rows from staying dirty for long. The shards swept least
// recently come first: they are what holds the oldest segments.
void ShardHostImpl::SweepWhereDue(int64_t now_ns) {
  const bool crowded = NoteLogFull() > options_.log_bytes_max / 2;
  std::vector<std::pair<int64_t, std::shared_ptr<Shard>>> due;
  for (auto& shard : Shards()) {
    if (shard->logged() && shard->refused()) log_->SetAside(shard->id());
    int64_t& swept = swept_ns_.try_emplace(shard->id(), now_ns).first->second;
    if (shard->applied_lsn() == shard->durable_lsn() || !shard->error().empty()) {
      swept = now_ns;
    } else if ((crowded && shard->logged()) || now_ns - swept >= kDirtyNsMax) {
      due.emplace_back(swept, shard);
    }
  }
  if (due.empty()) return;
  std::sort(due.begin(), due.end());
  due.resize(std::min(due.size(), std::max(kSweepBatchMin, due.size() / kSweepBatchPart)));
  std::vector<std::shared_ptr<Shard>> batch;
  for (auto& [swept, shard] : due) {
    swept_ns_[shard->id()] = now_ns;
    batch.push_back(std::move(shard));
  }
  if (const absl::Status swept = SweepShards(batch); !swept.ok()) {
    HOTBED_LOG_EVERY_S(Warning, 10) << "write-back failed, the log is kept: " << swept;
  }
}

absl::Status ShardHostImpl::SweepShards(const std::vector<std::shared_ptr<Shard>>& shards) {
  absl::Status first_error;
  std::vector<std::pair<Shard*, Lsn>> covered;
  for (const auto& shard : shards) {
    absl::StatusOr<Lsn> lsn = shard->Sweep();
    if (lsn.ok()) {
      covered.emplace_back(shard.get(), *lsn);
    } else {
      first_error.Update(lsn.status());
    }
  }
  HOTBED_RETURN_IF_ERROR(tiers_->Flush());
  for (const auto& [shard, lsn] : covered) shard->SetDurable(lsn);
  return first_error;
}

}  // namespace hotbed
