#include "server/tiers/memory/shed_op.h"

#include <algorithm>

namespace hotbed {
namespace {

constexpr int kShedPassesMax = 3;

}  // namespace

ShedOp::ShedOp(RowTableState* state, Residency* residency, HotArena* arena)
    : state_(state),
      residency_(residency),
      arena_(arena),
      direct_bytes_(HotTier::DirectBytes(state->shard.table, state->shard.range)) {}

void ShedOp::SetQuota(uint64_t bytes) {
  quota_.store(bytes, std::memory_order_relaxed);
  const bool direct = is_direct_.load(std::memory_order_relaxed);
  const uint64_t taken = state_->counters.taken_bytes.load(std::memory_order_relaxed);
  const bool matters = direct ? bytes < direct_bytes_
                              : bytes >= direct_bytes_ || (arena_->contended() && taken > bytes);
  if (!matters || posted_.exchange(true, std::memory_order_relaxed)) return;
  state_->io->Submit([this, alive = state_->alive, gate = state_->gate] {
    if (!gate->Enter()) return;
    state_->shard.executor->Run([this, alive] {
      if (*alive) OnQuota();
    });
    gate->Leave();
  });
}

void ShedOp::StartWithQuota(uint64_t bytes) {
  quota_.store(bytes, std::memory_order_relaxed);
  OnQuota();
}

void ShedOp::OnQuota() {
  posted_.store(false, std::memory_order_relaxed);
  HotTier* const hot = residency_->hot();
  hot->SetQuota(quota());
  if (state_->shedding || state_->update_active) {
    state_->shedding = true;  // looks at the quota again when the update has ended
    return;
  }
  if (!hot->direct() && residency_->rows() == 0 && direct_bytes_ <= quota() &&
      arena_->Take(direct_bytes_, /*borrows=*/false)) {
    Replace(/*direct=*/true);
  }
  state_->shedding = true;
  cursor_ = 0;
  passes_ = 0;
  Step();
}

void ShedOp::Replace(bool direct) {
  residency_->Replace(direct, quota());
  is_direct_.store(direct, std::memory_order_relaxed);
}

// Evicts from the slot at cursor_ on until a slice has given rows.
void ShedOp::EvictSlice(uint32_t slots) {
  uint32_t evicted = 0;
  while (cursor_ < slots && evicted == 0 && residency_->rows() > 0) {
    if (!state_->write_back.HasRoom(state_->slice_rows)) break;
    const uint32_t limit = std::min(slots, cursor_ + state_->slice_rows);
    evicted = residency_->EvictRange(cursor_, limit);
    cursor_ = limit;
  }
  state_->write_back.Pump();
}

// One slice per call, until the tier fits its quota.
void ShedOp::Step() {
  if (state_->update_active) return;
  HotTier* const hot = residency_->hot();
  const bool demote = hot->direct() && direct_bytes_ > quota();
  const bool shrink = hot->over_quota() && arena_->contended();
  if (!demote && !shrink) {
    state_->shedding = false;
    return;
  }
  const uint32_t slots = residency_->table()->slots;
  const uint32_t keep = demote ? 0 : std::min(hot->QuotaSlots(), slots);
  cursor_ = std::max(cursor_, keep);
  EvictSlice(slots);
  if (cursor_ < slots && residency_->rows() > 0) {
    const WriteBack& write_back = state_->write_back;
    if (write_back.written() < write_back.committed()) return;  // the end of that write continues
    state_->shard.executor->Run(state_->Guarded([this] { Continue(); }));
    return;
  }
  // Rows may have come in below the cursor: many of them take another pass, few leave at once.
  ++passes_;
  if (demote && residency_->rows() > state_->slice_rows && passes_ < kShedPassesMax) {
    cursor_ = 0;
    Step();
    return;
  }
  residency_->EvictRange(keep, slots);
  state_->write_back.Pump();
  state_->shedding = false;
  if (demote) {
    Replace(/*direct=*/false);
  } else {
    residency_->Shrink(keep);
  }
  residency_->Publish();
}

}  // namespace hotbed
