// Cuts of shards, but for the cut itself (assignments_cuts.cc): the preparation before the
// coordinator commits it, so that pushes wait for a moment only, and the end of the inheritance
// once the parts are durable. Thread-safe; calls block.
#ifndef HOTBED_SERVER_HOST_SHARD_CUTS_H_
#define HOTBED_SERVER_HOST_SHARD_CUTS_H_

#include <atomic>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/clock.h"
#include "common/ids.h"
#include "common/status_numbers.h"
#include "server/host/assignments.h"
#include "server/host/shard_directory.h"
#include "server/host/shard_host.h"
#include "server/host/shard_write_back.h"
#include "server/host/table_checkpoints.h"

namespace hotbed {

class ShardCuts {
 public:
  struct Wiring {
    ShardDirectory* directory = nullptr;
    Assignments* assignments = nullptr;
    ShardWriteBack* write_back = nullptr;
    TableCheckpoints* checkpoints = nullptr;
    const Clock* clock = nullptr;
  };
  explicit ShardCuts(const Wiring& wiring) : wiring_(wiring) {}

  // As ShardHost::PrepareCut, PrepareMerge and GiveUpCut.
  absl::StatusOr<Epoch> Prepare(ShardId id);
  absl::StatusOr<ShardHost::MergeReady> PrepareMerge(ShardId lower, ShardId upper);
  void GiveUp(ShardId id);

  // Writes back the shards that still inherit or were merged, so that they stand for themselves.
  // In class checkpoint they do so from the next checkpoint on, which is kept at once where a merge
  // waits for it. Upkeep.
  void FinishCuts();
  void AddNumbers(StatusNumbers* numbers) const {
    numbers->Add("shards cut", "hotbed_server_shards_cut_total",
                 "Shards that were cut from others here and stand for themselves by now.",
                 total_.load(std::memory_order_relaxed));
    numbers->Add("shards merged", "hotbed_server_shards_merged_total",
                 "Shards that were merged from two here and stand for themselves by now.",
                 merged_.load(std::memory_order_relaxed));
  }

 private:
  // Pushes are refused from then on. Unavailable: some are on their way for too long, and are taken
  // again.
  absl::Status StandStill(const ShardList& shards);
  void FinishLogged(const ShardList& cut, const ShardList& merged);
  void FinishCheckpointed(const ShardList& cut, const ShardList& merged);
  void Finish(ShardId id);
  void FinishMerge(const Shard& shard);

  const Wiring wiring_;
  std::atomic<bool> checkpoint_wanted_{false};
  int64_t keep_next_ns_ = 0;  // of the upkeep's thread
  std::atomic<uint64_t> total_{0};
  std::atomic<uint64_t> merged_{0};
};

}  // namespace hotbed

#endif  // HOTBED_SERVER_HOST_SHARD_CUTS_H_
