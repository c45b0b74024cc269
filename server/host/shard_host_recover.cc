// What a shard host finds at its start: the shards of its catalog, and their log.
#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/await_for.h"
#include "common/log.h"
#include "common/status_macros.h"
#include "server/host/shard_host_impl.h"

namespace hotbed {
namespace {

constexpr uint64_t kReplayBytesMax = 64ull << 20;  // records read and not yet applied
constexpr absl::Duration kReplayRetryFirst = absl::Milliseconds(100);
constexpr absl::Duration kReplayRetryLast = absl::Seconds(2);

}  // namespace

// Copies whose rows were on their way: what is there of them is not whole, and the primary sends
// all of it again.
absl::Status ShardHostImpl::WipeUnfinished() {
  absl::MutexLock lock(&control_mu_);
  if (catalog_.installing.empty()) return absl::OkStatus();
  Catalog changed = catalog_;
  // With nothing else in it the tier begins anew: it may be so because a file of it is damaged.
  if (catalog_.installing.size() == catalog_.shards.size()) HOTBED_RETURN_IF_ERROR(tiers_->Renew());
  for (const ShardId shard : catalog_.installing) {
    HOTBED_LOG(Info) << shard.ToString() << ": what is here of it is not whole, and is deleted";
    HOTBED_RETURN_IF_ERROR(
        tiers_->DeleteShard(catalog_.tables.at(shard.table), catalog_.shards.at(shard), shard));
    changed.shards.erase(shard);
    changed.log_from.erase(shard);
  }
  HOTBED_RETURN_IF_ERROR(tiers_->Flush());
  changed.installing.clear();
  HOTBED_RETURN_IF_ERROR(changed.Save(PathOf("CATALOG"), files_));
  catalog_ = std::move(changed);
  return absl::OkStatus();
}

absl::Status ShardHostImpl::RecoverShards() {
  ShardMap map;
  HOTBED_RETURN_IF_ERROR(WipeUnfinished());
  {
    absl::MutexLock lock(&control_mu_);
    for (const auto& [id, range] : catalog_.shards) {
      map[id].shard = MakeShard(catalog_.tables.at(id.table), id, range);
    }
  }
  HOTBED_RETURN_IF_ERROR(ReplayLog(map));
  std::vector<std::shared_ptr<Shard>> behind;
  for (auto& [id, entry] : map) {
    if (entry.shard->FinishReplay()) behind.push_back(entry.shard);
    entry.shard->SetDurable(entry.shard->durable_lsn());
  }
  if (!behind.empty()) {
    HOTBED_LOG(Warning) << behind.size() << " shards, " << behind[0]->id().ToString()
                        << " the first, have rows newer than the end of their log: copies that had "
                        << "not caught up go on from other servers; of the others some updates "
                        << "that were not synced before a power loss may be lost";
  }
  for (const ShardLog::Damage& damage : log_->damage()) {
    HOTBED_LOG(Error) << "log: " << damage.message;
    for (auto& [id, entry] : map) {
      const bool named =
          std::find(damage.shards.begin(), damage.shards.end(), id) != damage.shards.end();
      if (entry.shard->logged() && (named || damage.all_shards)) {
        entry.shard->Refuse(
            absl::DataLossError(absl::StrCat("its log is damaged: ", damage.message)));
      }
    }
  }
  Publish(std::move(map));
  return absl::OkStatus();
}

absl::Status ShardHostImpl::ReplayLog(const ShardMap& map) {
  struct Flight {
    absl::Mutex mu;
    uint64_t bytes ABSL_GUARDED_BY(mu) = 0;
    bool HasRoom() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu) { return bytes < kReplayBytesMax; }
    bool IsEmpty() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu) { return bytes == 0; }
  } flight;
  // While records wait for rows that cannot take them, nobody else would try those again.
  const auto await = [&](const absl::Condition& condition)
                         ABSL_EXCLUSIVE_LOCKS_REQUIRED(flight.mu) {
                           absl::Duration delay = kReplayRetryFirst;
                           while (!AwaitFor(&flight.mu, condition, delay)) {
                             flight.mu.Unlock();  // what is tried again may be done here and now
                             RetryReplay(map);
                             flight.mu.Lock();
                             delay = std::min(2 * delay, kReplayRetryLast);
                           }
                         };
  std::map<ShardId, LogPosition> log_from;
  {
    absl::MutexLock lock(&control_mu_);
    log_from = catalog_.log_from;
  }
  std::set<ShardId> unknown;
  const absl::Status status = log_->Replay([&](const RecordView& record) {
    const auto it = map.find(record.header.shard);
    if (it == map.end() || !it->second.shard->logged()) {
      unknown.insert(record.header.shard);
      return absl::OkStatus();
    }
    const auto from = log_from.find(record.header.shard);
    if (from != log_from.end() && record.at < from->second) return absl::OkStatus();
    const uint64_t bytes =
        64 + record.header.id_count *
                 (8ull + RowWireBytes(record.header.gradient_type, record.header.dim));
    {
      absl::MutexLock lock(&flight.mu);
      await(absl::Condition(&flight, &Flight::HasRoom));
      flight.bytes += bytes;
    }
    it->second.shard->Replay(record, [&flight, bytes] {
      absl::MutexLock lock(&flight.mu);
      flight.bytes -= bytes;
    });
    return absl::OkStatus();
  });
  {
    absl::MutexLock lock(&flight.mu);
    await(absl::Condition(&flight, &Flight::IsEmpty));
  }
  for (const ShardId shard : unknown) log_->ForgetShard(shard);
  return status;
}

void ShardHostImpl::RetryReplay(const ShardMap& map) {
  ResumeWrites(tiers_->GetUsage());
  for (const auto& [id, entry] : map) {
    if (entry.shard->refused()) continue;
    if (const std::string error = entry.shard->error(); !error.empty()) {
      HOTBED_LOG_EVERY_S(Warning, 10) << "recovery waits: " << error;
      entry.shard->RetryReplay();
    }
  }
}

}  // namespace hotbed
