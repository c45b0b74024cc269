// The shard's quota of the hot budget, and the work that follows when it changes: a tier that fits
// as a whole becomes direct; one that has grown beyond its quota gives rows and memory back, slice
// by slice, when other shards need them.
//
// SetQuota may be called on any thread; everything else on the shard's executor. Nothing happens
// while an update is active: it continues afterwards.
#ifndef HOTBED_SERVER_TIERS_MEMORY_SHED_OP_H_
#define HOTBED_SERVER_TIERS_MEMORY_SHED_OP_H_

#include <atomic>
#include <cstdint>

#include "server/tiers/memory/hot_arena.h"
#include "server/tiers/memory/residency.h"
#include "server/tiers/memory/row_table_state.h"

namespace hotbed {

class ShedOp {
 public:
  ShedOp(RowTableState* state, Residency* residency, HotArena* arena);

  // Any thread; takes effect on the executor. Rows beyond the quota leave when another shard needs
  // the memory.
  void SetQuota(uint64_t bytes);
  // As SetQuota, before any other thread knows of the shard: takes effect at once.
  void StartWithQuota(uint64_t bytes);
  uint64_t quota() const { return quota_.load(std::memory_order_relaxed); }
  // A write or an update has ended: continues if there is something left to give back.
  void Continue() {
    if (state_->shedding) Step();
  }

 private:
  void OnQuota();
  void Step();
  void EvictSlice(uint32_t slots);
  void Replace(bool direct);

  RowTableState* const state_;
  Residency* const residency_;
  HotArena* const arena_;
  const uint64_t direct_bytes_;  // of a direct tier
  uint32_t cursor_ = 0;          // slots below have been evicted
  int passes_ = 0;
  std::atomic<uint64_t> quota_{0};
  std::atomic<bool> posted_{false};  // OnQuota is on its way to the executor
  std::atomic<bool> is_direct_{false};
};

}  // namespace hotbed

#endif  // HOTBED_SERVER_TIERS_MEMORY_SHED_OP_H_
