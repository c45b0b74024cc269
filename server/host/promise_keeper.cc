#include "server/host/promise_keeper.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "absl/synchronization/blocking_counter.h"
#include "common/status_macros.h"

namespace hotbed {
namespace {

// The servers whose replicas may hold what was acknowledged in the epoch of the record.
std::vector<ServerId> HoldersIn(const ShardRecord& record) {
  std::set<ServerId> holders;
  for (const Member& member : record.members) holders.insert(member.server);
  if (!record.active) {
    for (const Member& member : record.base) holders.insert(member.server);
  }
  for (const PassedOver& passed : record.passed_over) holders.insert(passed.server);
  return {holders.begin(), holders.end()};
}

}  // namespace

void PromiseKeeper::Want(ShardId shard, Epoch epoch) {
  absl::MutexLock lock(&mu_);
  Epoch& wanted = wanted_[shard];
  wanted = std::max(wanted, epoch);
}

void PromiseKeeper::Learn(const ShardRecord& record) {
  const PromiseFile::Promise kept = file_->Find(record.shard);
  if (kept.epoch > record.epoch) return;
  if (kept.epoch == record.epoch && kept.holders == HoldersIn(record)) return;
  absl::MutexLock lock(&mu_);
  learnt_.insert(record.shard);
}

absl::Status PromiseKeeper::KeepAhead(const std::vector<ShardRecord>& records) {
  absl::MutexLock batching(&batch_mu_);
  std::vector<PromiseFile::Promise> batch;
  for (const ShardRecord& record : records) {
    batch.push_back({record.shard, record.epoch, HoldersIn(record)});
  }
  return file_->Raise(batch);
}

void PromiseKeeper::Forget(ShardId shard) {
  absl::MutexLock lock(&mu_);
  wanted_.erase(shard);
  learnt_.erase(shard);
}

absl::Status PromiseKeeper::KeepAll() {
  absl::MutexLock batching(&batch_mu_);
  std::map<ShardId, Epoch> wanted;
  std::set<ShardId> learnt;
  {
    absl::MutexLock lock(&mu_);
    wanted = wanted_;
    learnt.swap(learnt_);  // before the directory is read: what is learnt from now on comes again
  }
  if (wanted.empty() && learnt.empty()) return absl::OkStatus();
  std::vector<PromiseFile::Promise> batch;
  // Held: a thread that looks up seldom would keep the map, and all records in it, until it does.
  auto map = directory_->Hold();
  const auto add = [&](ShardId shard, Epoch epoch) {
    const auto it = map->find(shard);
    const bool knows = it != map->end() && it->second.record->epoch == epoch;
    batch.push_back({shard, epoch, knows ? HoldersIn(it->second.record) : std::vector<ServerId>()});
  };
  for (const auto& [shard, epoch] : wanted) add(shard, epoch);
  for (const ShardId shard : learnt) {
    if (const Epoch promised = file_->Get(shard); promised > 0) add(shard, promised);
  }
  if (const absl::Status raised = file_->Raise(batch); !raised.ok()) {
    absl::MutexLock lock(&mu_);
    learnt_.merge(learnt);
    return raised;
  }
  std::vector<std::pair<std::shared_ptr<Shard>, Epoch>> kept;
  map = directory_->Hold();
  for (const auto& [id, epoch] : wanted) {
    const auto it = map->find(id);
    if (it != map->end() && it->second.shard != nullptr) kept.emplace_back(it->second.shard, epoch);
  }
  {
    absl::MutexLock lock(&mu_);
    for (const auto& [shard, epoch] : wanted) {
      const auto it = wanted_.find(shard);
      if (it != wanted_.end() && it->second <= epoch) wanted_.erase(it);
    }
  }
  map.reset();
  if (kept.empty()) return absl::OkStatus();
  absl::BlockingCounter left(static_cast<int>(kept.size()));
  for (const auto& [shard, epoch] : kept) {
    shard->PromiseDurable(epoch, [&left] { left.DecrementCount(); });
  }
  left.Wait();
  log_->Commit();
  return absl::OkStatus();
}

}  // namespace hotbed
