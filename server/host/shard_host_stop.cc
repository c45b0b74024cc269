// Class checkpoint, and the end: what the shard host keeps of its rows for the next start.
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/log.h"
#include "common/status_macros.h"
#include "server/host/shard_host_impl.h"

namespace hotbed {
namespace {

constexpr int64_t kDrainNsMax = 30'000'000'000;
constexpr int64_t kDrainStepNs = 1'000'000;
constexpr int64_t kPauseNsMax = 2'000'000'000;  // for pushes that were let in before

using ShardList = std::vector<std::shared_ptr<Shard>>;

// Splits by durability class: logged, checkpoint.
std::pair<ShardList, ShardList> SplitByClass(const ShardList& shards) {
  std::pair<ShardList, ShardList> split;
  for (const auto& shard : shards) {
    (shard->logged() ? split.first : split.second).push_back(shard);
  }
  return split;
}

// A copy of the spill holds the rows of a whole table: with a shard whose rows are not what its
// meta says, the one kept before is worth more.
absl::Status CheckWhole(const ShardList& shards) {
  for (const auto& shard : shards) {
    if (const std::string error = shard->error(); !error.empty()) {
      return absl::FailedPreconditionError(
          absl::StrCat("no checkpoint is kept, the one before stays: ", error));
    }
  }
  return absl::OkStatus();
}

}  // namespace

// --- class checkpoint

void ShardHostImpl::KeepCheckpointWhereDue(int64_t now_ns) {
  const int64_t interval_ns = options_.checkpoint_interval_ms * 1'000'000;
  if (checkpoint_ns_ == 0) checkpoint_ns_ = now_ns;
  if (interval_ns == 0 || now_ns - checkpoint_ns_ < interval_ns) return;
  checkpoint_ns_ = now_ns;
  const ShardList shards = SplitByClass(Shards()).second;
  const bool changed = std::any_of(shards.begin(), shards.end(), [this](const auto& shard) {
    const auto kept = checkpoint_lsn_.find(shard->id());
    return kept == checkpoint_lsn_.end() || kept->second != shard->applied_lsn();
  });
  if (!changed) return;
  if (const absl::Status kept = KeepCheckpoint(shards); !kept.ok()) {
    HOTBED_LOG_EVERY_S(Warning, 10) << "tables of class checkpoint: " << kept;
  }
}

// Most rows are written back while pushes go on; the rest, and the copy, want them to stand still.
absl::Status ShardHostImpl::KeepCheckpoint(const ShardList& shards) {
  HOTBED_RETURN_IF_ERROR(CheckWhole(shards));
  HOTBED_RETURN_IF_ERROR(SweepShards(shards));
  const absl::Status kept = KeepPaused(shards);
  for (const auto& shard : shards) shard->Pause(false);
  return kept;
}

absl::Status ShardHostImpl::KeepPaused(const ShardList& shards) {
  const int64_t end_ns = clock_->NowNs() + kPauseNsMax;
  for (const auto& shard : shards) {
    while (!shard->Pause(true)) {
      if (clock_->NowNs() >= end_ns) {
        return absl::DeadlineExceededError(
            absl::StrCat(shard->id().ToString(), " still has pushes on their way"));
      }
      clock_->SleepNs(kDrainStepNs);
    }
  }
  HOTBED_RETURN_IF_ERROR(SweepShards(shards));
  HOTBED_RETURN_IF_ERROR(CheckWhole(shards));
  HOTBED_RETURN_IF_ERROR(tiers_->Freeze());
  for (const auto& shard : shards) checkpoint_lsn_[shard->id()] = shard->applied_lsn();
  checkpoints_.fetch_add(1, std::memory_order_relaxed);
  return absl::OkStatus();
}

// --- the end

void ShardHostImpl::StopUpkeep() {
  {
    absl::MutexLock lock(&upkeep_mu_);
    upkeep_stops_ = true;
  }
  if (upkeep_.joinable()) upkeep_.join();
}

void ShardHostImpl::StopCopies() {
  if (sender_ != nullptr) sender_->Stop();
  if (receiver_ != nullptr) receiver_->Stop();
  {
    absl::MutexLock lock(&tick_mu_);
    ticks_stop_ = true;
  }
  if (ticker_.joinable()) ticker_.join();
  network_.store(nullptr, std::memory_order_release);
}

void ShardHostImpl::CloseShards() {
  for (const auto& shard : Shards()) shard->Close();
  if (log_ != nullptr) log_->Commit();
}

absl::Status ShardHostImpl::AwaitIdle(const ShardList& shards) {
  const int64_t end_ns = clock_->NowNs() + kDrainNsMax;
  for (const auto& shard : shards) {
    while (!shard->idle()) {
      if (clock_->NowNs() >= end_ns) {
        return absl::DeadlineExceededError(absl::StrCat(
            shard->id().ToString(), " still has work after ", kDrainNsMax / 1'000'000'000, " s"));
      }
      shard->Tick();
      clock_->SleepNs(kDrainStepNs);
    }
  }
  return absl::OkStatus();
}

absl::Status ShardHostImpl::KeepLastCheckpoint(const ShardList& shards) {
  if (shards.empty()) return absl::OkStatus();
  HOTBED_RETURN_IF_ERROR(AwaitIdle(shards));
  HOTBED_RETURN_IF_ERROR(CheckWhole(shards));
  HOTBED_RETURN_IF_ERROR(SweepShards(shards));
  HOTBED_RETURN_IF_ERROR(tiers_->Freeze());
  checkpoints_.fetch_add(1, std::memory_order_relaxed);
  return absl::OkStatus();
}

// Class checkpoint first: should the process be ended before this is through, the copy is there,
// and the others have their log.
absl::Status ShardHostImpl::Shutdown() {
  StopUpkeep();
  StopCopies();
  absl::MutexLock control(&control_mu_);
  if (shut_down_) return absl::OkStatus();
  shut_down_ = true;
  CloseShards();
  const auto [logged, checkpoint] = SplitByClass(Shards());
  const absl::Status kept = KeepLastCheckpoint(checkpoint);
  HOTBED_RETURN_IF_ERROR(AwaitIdle(logged));
  ShardList sweepable;
  for (const auto& shard : logged) {
    if (shard->error().empty()) sweepable.push_back(shard);
  }
  // Of rows that a device took along when it failed the log has all, also of a shard that only
  // meets that now.
  const absl::Status swept = SweepShards(sweepable);
  const bool device_lost = absl::IsAborted(swept) && !DeviceError().empty();
  if (!device_lost) HOTBED_RETURN_IF_ERROR(swept);
  HOTBED_RETURN_IF_ERROR(log_->Sync());
  HOTBED_RETURN_IF_ERROR(kept);  // without the mark the next start goes back to the last checkpoint
  absl::MutexLock lock(&identity_mu_);
  identity_.clean_shutdown = true;
  return identity_.Save(PathOf("IDENTITY"), files_);
}

ShardHostImpl::~ShardHostImpl() {
  StopUpkeep();
  StopCopies();
  if (pool_ == nullptr) return;
  CloseShards();
  if (const absl::Status idle = AwaitIdle(Shards()); !idle.ok()) HOTBED_LOG(Error) << idle;
  for (const auto& shard : Shards()) shard->ReleaseStore();
  {
    absl::MutexLock control(&control_mu_);
    for (const auto& shard : dropping_) shard->ReleaseStore();
    arriving_.clear();
  }
  // Each may still run what the one before it left on a strand; a strand commits to the log when it
  // is through.
  tiers_.reset();
  pool_.reset();
  log_.reset();
}

}  // namespace hotbed
