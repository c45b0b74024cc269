#include "server/host/table_checkpoints.h"

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/log.h"
#include "common/status_macros.h"

namespace hotbed {
namespace {

constexpr int64_t kDrainNsMax = 2 * kSecondNs;  // for pushes that were let in before
constexpr int64_t kDrainStepNs = kMillisecondNs;

// A checkpoint holds the rows of whole tables. If one shard's rows do not match its meta, the
// previous checkpoint is worth more.
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

ShardsByClass SplitByClass(const ShardList& shards) {
  ShardsByClass split;
  for (const auto& shard : shards) {
    (shard->logged() ? split.logged : split.checkpointed).push_back(shard);
  }
  return split;
}

void TableCheckpoints::KeepWhereDue(int64_t now_ns) {
  if (tried_ns_ == 0) tried_ns_ = now_ns;
  if (wiring_.interval_ns == 0 || now_ns - tried_ns_ < wiring_.interval_ns) return;
  tried_ns_ = now_ns;
  const ShardList shards = SplitByClass(*wiring_.directory->Shards()).checkpointed;
  const bool changed = std::any_of(shards.begin(), shards.end(), [this](const auto& shard) {
    return KeptLsn(shard) != shard->applied_lsn();
  });
  if (!changed) return;
  const absl::Status kept = Keep(shards);
  if (kept.ok()) return;
  HOTBED_LOG_EVERY_S(Warning, 10) << "tables of class checkpoint: " << kept;
  // A cut or a merge is over in a moment.
  if (absl::IsUnavailable(kept)) tried_ns_ -= std::max<int64_t>(0, wiring_.interval_ns - kSecondNs);
}

std::optional<Lsn> TableCheckpoints::KeptLsn(const std::shared_ptr<Shard>& shard) const {
  absl::MutexLock lock(&kept_mu_);
  const auto kept = kept_.find(shard->id());
  if (kept == kept_.end() || kept->second.shard.lock() != shard) return std::nullopt;
  return kept->second.lsn;
}

// Most rows are written back while pushes continue. The rest, and the freezing of the files, need
// the rows to stand still.
absl::Status TableCheckpoints::Keep(const ShardList& shards) {
  HOTBED_RETURN_IF_ERROR(CheckWhole(shards));
  HOTBED_RETURN_IF_ERROR(wiring_.write_back->WriteBack(shards));
  return WhilePaused(shards, [&] { return Freeze(shards); });
}

namespace {

absl::Status AwaitPause(const ShardList& shards, const Clock& clock) {
  const int64_t end_ns = clock.NowNs() + kDrainNsMax;
  for (const auto& shard : shards) {
    while (!shard->Pause(true)) {
      if (shard->divided()) {  // it never settles, and the cut may wait for a shard paused here
        return absl::UnavailableError(
            absl::StrCat(shard->id().ToString(), " is being cut or merged"));
      }
      if (clock.NowNs() >= end_ns) {
        return absl::DeadlineExceededError(
            absl::StrCat(shard->id().ToString(), " still has pushes on their way"));
      }
      clock.SleepNs(kDrainStepNs);
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status TableCheckpoints::WhilePaused(const ShardList& shards,
                                           absl::FunctionRef<absl::Status()> work) {
  absl::MutexLock lock(&mu_);
  absl::Status done = AwaitPause(shards, *wiring_.clock);
  if (done.ok()) done = work();
  for (const auto& shard : shards) shard->Pause(false);
  return done;
}

absl::Status TableCheckpoints::Freeze(const ShardList& shards) {
  HOTBED_RETURN_IF_ERROR(wiring_.write_back->WriteBack(shards));
  HOTBED_RETURN_IF_ERROR(CheckWhole(shards));
  HOTBED_RETURN_IF_ERROR(wiring_.tiers->Freeze());
  absl::MutexLock lock(&kept_mu_);
  kept_.clear();
  for (const auto& shard : shards) kept_[shard->id()] = {shard, shard->applied_lsn()};
  total_.fetch_add(1, std::memory_order_relaxed);
  return absl::OkStatus();
}

absl::Status TableCheckpoints::KeepLast(const ShardList& shards) {
  if (shards.empty()) return absl::OkStatus();
  HOTBED_RETURN_IF_ERROR(AwaitIdle(shards, wiring_.clock));
  HOTBED_RETURN_IF_ERROR(CheckWhole(shards));
  HOTBED_RETURN_IF_ERROR(wiring_.write_back->WriteBack(shards));
  HOTBED_RETURN_IF_ERROR(wiring_.tiers->Freeze());
  total_.fetch_add(1, std::memory_order_relaxed);
  return absl::OkStatus();
}

}  // namespace hotbed
