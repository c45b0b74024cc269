#include "server/host/promise_keeper.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/synchronization/blocking_counter.h"
#include "common/status_macros.h"

namespace hotbed {

void PromiseKeeper::Want(ShardId shard, Epoch epoch) {
  absl::MutexLock lock(&mu_);
  Epoch& wanted = wanted_[shard];
  wanted = std::max(wanted, epoch);
}

void PromiseKeeper::Forget(ShardId shard) {
  absl::MutexLock lock(&mu_);
  wanted_.erase(shard);
}

absl::Status PromiseKeeper::KeepAll() {
  absl::MutexLock batching(&batch_mu_);
  std::vector<PromiseFile::Promise> batch;
  {
    absl::MutexLock lock(&mu_);
    for (const auto& [shard, epoch] : wanted_) batch.push_back({shard, epoch});
  }
  if (batch.empty()) return absl::OkStatus();
  HOTBED_RETURN_IF_ERROR(file_->Raise(batch));
  std::vector<std::pair<std::shared_ptr<Shard>, Epoch>> kept;
  for (const PromiseFile::Promise& promise : batch) {
    if (auto shard = directory_->Find(promise.shard)) {
      kept.emplace_back(std::move(shard), promise.epoch);
    }
  }
  {
    absl::MutexLock lock(&mu_);
    for (const PromiseFile::Promise& promise : batch) {
      const auto it = wanted_.find(promise.shard);
      if (it != wanted_.end() && it->second <= promise.epoch) wanted_.erase(it);
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

}  // namespace hotbed
