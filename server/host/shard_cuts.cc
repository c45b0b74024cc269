#include "server/host/shard_cuts.h"

#include <memory>
#include <optional>

#include "absl/strings/str_cat.h"
#include "common/log.h"
#include "common/status_macros.h"
#include "common/tables/shard_record.h"

namespace hotbed {
namespace {

constexpr int kPassesMax = 6;             // of write-back, while pushes make rows dirty again
constexpr uint64_t kDirtyRowsFew = 4096;  // written back in a few milliseconds
// Pushes wait for so long at most before the commit is asked for; then it is tried again later.
constexpr int64_t kPauseNsMax = 30 * kMillisecondNs;
constexpr int64_t kPauseStepNs = kMillisecondNs / 4;

}  // namespace

absl::StatusOr<Epoch> ShardCuts::Prepare(ShardId id) {
  const std::shared_ptr<Shard> shard = wiring_.directory->Find(id);
  if (shard == nullptr) return 0;
  for (int pass = 0; pass < kPassesMax; ++pass) {
    HOTBED_RETURN_IF_ERROR(shard->WriteBack().status());
    if (shard->Status().store.rows_dirty <= kDirtyRowsFew) break;
  }
  const std::optional<ShardRecord> record = wiring_.directory->RecordOf(id);
  if (!shard->primary()) return 0;
  if (!record.has_value() || !shard->active()) {
    return absl::UnavailableError(absl::StrCat(id.ToString(), " is to be cut, and its epoch ",
                                               shard->epoch(), " is not active yet"));
  }
  // A replica that is alone is cut where it stands. Several have to stand at the same entry first.
  if (record->members.size() == 1) return record->epoch;
  const int64_t end_ns = wiring_.clock->NowNs() + kPauseNsMax;
  while (!shard->Pause(true, PauseFor::kCut)) {
    if (wiring_.clock->NowNs() >= end_ns) {
      shard->Pause(false, PauseFor::kCut);
      return absl::UnavailableError(
          absl::StrCat(id.ToString(), " is to be cut, and still has pushes on their way"));
    }
    wiring_.clock->SleepNs(kPauseStepNs);
  }
  return record->epoch;
}

void ShardCuts::GiveUp(ShardId id) {
  if (const std::shared_ptr<Shard> shard = wiring_.directory->Find(id))
    shard->Pause(false, PauseFor::kCut);
}

// A table of class checkpoint goes back to its last checkpoint after a crash, and there the shards
// may still be one. Without checkpoints it begins empty.
void ShardCuts::FinishCuts() {
  ShardsByClass shards = SplitByClass(wiring_.assignments->Inheriting());
  std::erase_if(shards.logged, [](const auto& shard) { return !shard->error().empty(); });
  if (!shards.logged.empty()) {
    const absl::Status written = wiring_.write_back->WriteBack(shards.logged);
    if (written.ok()) {
      for (const auto& shard : shards.logged) Finish(shard->id());
    } else {
      HOTBED_LOG_EVERY_S(Warning, 10) << "shards that were cut are not durable yet: " << written;
    }
  }
  for (const auto& shard : shards.checkpointed) {
    if (wiring_.checkpoints->Keeps(shard->id())) Finish(shard->id());
  }
}

void ShardCuts::Finish(ShardId id) {
  wiring_.assignments->FinishCut(id);
  total_.fetch_add(1, std::memory_order_relaxed);
}

}  // namespace hotbed
