#include "server/host/shard_cuts.h"

#include <algorithm>
#include <iterator>
#include <memory>
#include <optional>

#include "absl/strings/str_cat.h"
#include "common/log.h"
#include "common/status_macros.h"
#include "common/tables/shard_lanes.h"
#include "common/tables/shard_record.h"

namespace hotbed {
namespace {

constexpr int kPassesMax = 6;             // of write-back, while pushes make rows dirty again
constexpr uint64_t kDirtyRowsFew = 4096;  // written back in a few milliseconds
// Pushes wait for so long at most before the commit is asked for; then it is tried again later.
constexpr int64_t kPauseNsMax = 30 * kMillisecondNs;
constexpr int64_t kPauseStepNs = kMillisecondNs / 4;
// After a checkpoint that could not be kept: each try may stop pushes for a moment.
constexpr int64_t kKeepRetryNs = 10 * kSecondNs;

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
  HOTBED_RETURN_IF_ERROR(StandStill({shard}));
  return record->epoch;
}

absl::Status ShardCuts::StandStill(const ShardList& shards) {
  const int64_t end_ns = wiring_.clock->NowNs() + kPauseNsMax;
  for (;;) {
    const auto settled = [](const auto& shard) { return shard->Pause(true, PauseFor::kCut); };
    if (std::count_if(shards.begin(), shards.end(), settled) == std::ssize(shards)) {
      return absl::OkStatus();
    }
    if (wiring_.clock->NowNs() >= end_ns) {
      for (const auto& shard : shards) shard->Pause(false, PauseFor::kCut);
      return absl::UnavailableError(
          absl::StrCat(shards[0]->id().ToString(),
                       " is to be cut or merged, and still has pushes on their way"));
    }
    wiring_.clock->SleepNs(kPauseStepNs);
  }
}

// What is written back and flushed now need not be while pushes wait.
absl::StatusOr<ShardHost::MergeReady> ShardCuts::PrepareMerge(ShardId lower, ShardId upper) {
  ShardHost::MergeReady ready;
  const ShardList parts = {wiring_.directory->Find(lower), wiring_.directory->Find(upper)};
  if (parts[0] == nullptr || parts[1] == nullptr) return ready;
  for (int pass = 0; pass < kPassesMax; ++pass) {
    HOTBED_RETURN_IF_ERROR(wiring_.write_back->WriteBack(parts));
    if (parts[0]->Status().store.rows_dirty + parts[1]->Status().store.rows_dirty <=
        kDirtyRowsFew) {
      break;
    }
  }
  if (!parts[0]->primary() || !parts[1]->primary()) return ready;
  const std::optional<ShardRecord> record = wiring_.directory->RecordOf(lower);
  const std::optional<ShardRecord> with = wiring_.directory->RecordOf(upper);
  if (!record.has_value() || !with.has_value() || !parts[0]->active() || !parts[1]->active()) {
    return absl::UnavailableError(absl::StrCat(lower.ToString(), " and ", upper.ToString(),
                                               " are to be merged, and are not both active yet"));
  }
  absl::Status may = wiring_.assignments->MayPrepareMerge(lower, upper);
  if (may.ok() && !parts[0]->logged()) may = AreKept(parts);
  if (!may.ok()) {
    if (!parts[0]->logged()) checkpoint_wanted_.store(true);
    return may;
  }
  HOTBED_RETURN_IF_ERROR(StandStill(parts));
  ready.epoch = record->epoch;
  ready.epoch_with = with->epoch;
  ready.end = parts[0]->End().log;
  ready.end_with = parts[1]->End().log;
  wiring_.assignments->MergeAhead(MergedRecord(*record, *with, ready.end, ready.end_with), parts[0],
                                  parts[1]);
  return ready;
}

// After a crash, a shard that has moved here and is in no checkpoint yet would have no rows.
absl::Status ShardCuts::AreKept(const ShardList& parts) const {
  for (const auto& part : parts) {
    if (wiring_.checkpoints->Awaits(part->id())) {
      return absl::UnavailableError(absl::StrCat(
          part->id().ToString(), " has moved here, is to be merged, and is in no checkpoint yet"));
    }
  }
  return absl::OkStatus();
}

void ShardCuts::GiveUp(ShardId id) {
  if (const std::shared_ptr<Shard> shard = wiring_.directory->Find(id)) {
    shard->Pause(false, PauseFor::kCut);
  }
  wiring_.assignments->DropAhead(id);
}

void ShardCuts::FinishCuts() {
  ShardsByClass cut = SplitByClass(wiring_.assignments->Inheriting());
  ShardsByClass merged = SplitByClass(wiring_.assignments->Merged());
  for (ShardList* const shards : {&cut.logged, &merged.logged}) {
    std::erase_if(*shards, [](const auto& shard) { return !shard->error().empty(); });
  }
  FinishLogged(cut.logged, merged.logged);
  FinishCheckpointed(cut.checkpointed, merged.checkpointed);
}

void ShardCuts::FinishLogged(const ShardList& cut, const ShardList& merged) {
  if (!cut.empty()) {
    const absl::Status written = wiring_.write_back->WriteBack(cut);
    if (written.ok()) {
      for (const auto& shard : cut) Finish(shard->id());
    } else {
      HOTBED_LOG_EVERY_S(Warning, 10) << "shards that were cut are not durable yet: " << written;
    }
  }
  if (merged.empty() || !wiring_.write_back->WriteBack(merged).ok()) return;
  for (const auto& shard : merged) FinishMerge(*shard);
}

// After a crash the table goes back to its last checkpoint, which may be from before the cut or the
// merge.
void ShardCuts::FinishCheckpointed(const ShardList& cut, const ShardList& merged) {
  const bool asked = checkpoint_wanted_.exchange(false);  // a merge that still waits asks again
  const bool never = !wiring_.checkpoints->periodic() && !(cut.empty() && merged.empty());
  const int64_t now_ns = wiring_.clock->NowNs();
  if ((asked || never) && now_ns >= keep_next_ns_) {
    if (const absl::Status kept = wiring_.checkpoints->KeepNow(); !kept.ok()) {
      if (!absl::IsUnavailable(kept)) keep_next_ns_ = now_ns + kKeepRetryNs;
      HOTBED_LOG_EVERY_S(Warning, 10)
          << "shards that were cut or merged are in no checkpoint yet: " << kept;
    }
  }
  for (const auto& shard : cut) {
    if (wiring_.checkpoints->Keeps(shard)) Finish(shard->id());
  }
  for (const auto& shard : merged) {
    if (wiring_.checkpoints->Keeps(shard)) FinishMerge(*shard);
  }
}

void ShardCuts::Finish(ShardId id) {
  wiring_.assignments->FinishCut(id);
  total_.fetch_add(1, std::memory_order_relaxed);
}

void ShardCuts::FinishMerge(const Shard& shard) {
  wiring_.assignments->FinishMerge(shard);
  merged_.fetch_add(1, std::memory_order_relaxed);
}

}  // namespace hotbed
