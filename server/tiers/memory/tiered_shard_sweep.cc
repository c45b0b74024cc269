// What goes on beside requests: writing back all dirty rows, and giving memory back when the quota
// shrinks. Both work in slices, each waiting for the write of the one before, so that requests come
// between.
#include <algorithm>
#include <utility>

#include "common/check.h"
#include "common/status_macros.h"
#include "server/tiers/memory/tiered_shard.h"

namespace hotbed {
namespace {

constexpr int kShedPassesMax = 3;

}  // namespace

void TieredShard::Sweep(Lsn applied_lsn, std::string meta, Done done) {
  HOTBED_CHECK(!sweep_.active) << shard_.shard.ToString() << ": one sweep at a time";
  sweep_.active = true;
  sweep_.scanning = true;
  sweep_.cursor = 0;
  sweep_.lsn = applied_lsn;
  sweep_.meta = std::move(meta);
  sweep_.done = std::move(done);
  SetAppliedLsn(applied_lsn);
  write_back_.Pump();  // what failed before is tried again
  executor_->Run([this, alive = alive_] {
    if (*alive && sweep_.active) SweepStep();
  });
}

void TieredShard::SweepStep() {
  // A write-back that fails from here on is of a later update, and no business of this sweep.
  if (sweep_.writing_meta) return;
  if (!write_back_.error().ok() && write_back_.written() < write_back_.committed()) {
    FinishSweep(write_back_.error());
    return;
  }
  if (sweep_.scanning && write_back_.HasRoom(slice_rows_)) {
    const WriteBack::Space space = write_back_.Reserve(slice_rows_);
    CollectBatch collect;
    collect.table = table();
    collect.slot_first = sweep_.cursor;
    collect.wanted = slice_rows_;
    collect.positions = space.positions;
    collect.out = space.payloads;
    collect.out_stride = space.stride;
    kernels_->Submit(&collect, nullptr);
    write_back_.Commit(collect.count, applied_lsn_);
    rows_dirty_ -= collect.count;
    sweep_.cursor = collect.slot_first;
    sweep_.scanning = sweep_.cursor < table()->slots;
    sweep_.wait_for = write_back_.committed();
  }
  if (sweep_.scanning || write_back_.written() < sweep_.wait_for) {
    write_back_.Pump();
  } else {
    WriteSweptMeta();
  }
  PublishStats();
}

void TieredShard::WriteSweptMeta() {
  sweep_.writing_meta = true;
  io_->Submit([this, alive = alive_, gate = gate_, meta = sweep_.meta, lsn = sweep_.lsn] {
    if (!gate->Enter()) return;
    absl::Status status =
        shard_.before_write_back ? shard_.before_write_back(lsn) : absl::OkStatus();
    if (status.ok()) status = spill_->WriteMeta(spill_shard_, meta);
    executor_->Run([this, alive, status = std::move(status)] {
      if (*alive) FinishSweep(status);
    });
    gate->Leave();
  });
}

void TieredShard::FinishSweep(const absl::Status& status) {
  if (status.ok()) meta_ = std::move(sweep_.meta);
  sweep_.active = false;
  sweep_.writing_meta = false;
  Done done = std::move(sweep_.done);
  PublishStats();
  done(status);
}

void TieredShard::SetQuota(uint64_t bytes) {
  quota_.store(bytes, std::memory_order_relaxed);
  const bool direct = is_direct_.load(std::memory_order_relaxed);
  const uint64_t taken = taken_.load(std::memory_order_relaxed);
  const bool matters = direct ? bytes < direct_bytes_
                              : bytes >= direct_bytes_ || (arena_->contended() && taken > bytes);
  if (!matters || quota_posted_.exchange(true, std::memory_order_relaxed)) return;
  io_->Submit([this, alive = alive_, gate = gate_] {
    if (!gate->Enter()) return;
    executor_->Run([this, alive] {
      if (*alive) OnQuota();
    });
    gate->Leave();
  });
}

void TieredShard::OnQuota() {
  quota_posted_.store(false, std::memory_order_relaxed);
  const uint64_t quota = quota_.load(std::memory_order_relaxed);
  hot_->SetQuota(quota);
  if (shed_.active || apply_.active) {
    shed_.active = true;  // looks again when the update is done
    return;
  }
  if (!hot_->direct() && rows_resident_ == 0 && direct_bytes_ <= quota &&
      arena_->Take(direct_bytes_, /*borrows=*/false)) {
    ReplaceHotTier(/*direct=*/true);
  }
  shed_ = {/*active=*/true, /*cursor=*/0, /*passes=*/0};
  ShedStep();
}

void TieredShard::ReplaceHotTier(bool direct) {
  const uint64_t quota = quota_.load(std::memory_order_relaxed);
  HOTBED_CHECK(rows_resident_ == 0);
  hot_ = nullptr;  // its bytes first
  hot_ =
      std::make_unique<HotTier>(shard_.table, shard_.range, direct, huge_pages_, arena_, kernels_);
  hot_->SetQuota(quota);
  hand_ = 0;
  is_direct_.store(direct, std::memory_order_relaxed);
  if (shard_.hint != nullptr) shard_.hint->Set(*table());
}

// Takes rows out from the slot at `cursor` on, one slice a call, until the tier fits its quota.
void TieredShard::ShedStep() {
  if (apply_.active) return;
  const bool demote = hot_->direct() && direct_bytes_ > quota_.load(std::memory_order_relaxed);
  const bool shrink = hot_->over_quota() && arena_->contended();
  if (!demote && !shrink) {
    shed_.active = false;
    return;
  }
  const uint32_t slots = table()->slots;
  const uint32_t keep = demote ? 0 : std::min(hot_->QuotaSlots(), slots);
  shed_.cursor = std::max(shed_.cursor, keep);
  uint32_t evicted = 0;
  while (shed_.cursor < slots && evicted == 0 && rows_resident_ > 0) {
    if (!write_back_.HasRoom(slice_rows_)) break;
    const uint32_t limit = std::min(slots, shed_.cursor + slice_rows_);
    evicted = EvictRange(shed_.cursor, limit);
    shed_.cursor = limit;
  }
  write_back_.Pump();
  if (shed_.cursor < slots && rows_resident_ > 0) {
    if (write_back_.written() < write_back_.committed()) return;  // OnProgress comes back
    executor_->Run([this, alive = alive_] {
      if (*alive && shed_.active) ShedStep();
    });
    return;
  }
  // Rows that came in behind the cursor: another pass for many, else now.
  ++shed_.passes;
  if (demote && rows_resident_ > slice_rows_ && shed_.passes < kShedPassesMax) {
    shed_.cursor = 0;
    ShedStep();
    return;
  }
  EvictRange(keep, slots);
  write_back_.Pump();
  shed_.active = false;
  if (demote) {
    ReplaceHotTier(/*direct=*/false);
  } else {
    hot_->Shrink(keep);
    hand_ = 0;
  }
  PublishStats();
}

uint32_t TieredShard::EvictRange(uint32_t first, uint32_t limit) {
  if (first >= limit) return 0;
  const uint32_t room = static_cast<uint32_t>(
      std::min<uint64_t>(limit - first, static_cast<uint64_t>(rows_resident_)));
  const WriteBack::Space space = write_back_.Reserve(room);
  std::vector<uint32_t> slots(room);
  EvictBatch evict;
  evict.table = table();
  evict.chosen = false;
  evict.slot_first = first;
  evict.slot_limit = limit;
  evict.slots = slots.data();
  evict.dirty_positions = space.positions;
  evict.out = space.payloads;
  evict.out_stride = space.stride;
  kernels_->Submit(&evict, nullptr);
  write_back_.Commit(evict.dirty_count, applied_lsn_);
  rows_dirty_ -= evict.dirty_count;
  rows_resident_ -= evict.count;
  if (evict.count > 0) may_miss_ = true;
  counters_.evictions.fetch_add(evict.count, std::memory_order_relaxed);
  return evict.count;
}

}  // namespace hotbed
