// Rows that came with a copy, brought into the hot tier before the shard opens.
#include <algorithm>
#include <vector>

#include "common/check.h"
#include "common/status_macros.h"
#include "server/tiers/memory/tiered_shard.h"

namespace hotbed {
namespace {

// Of the budget, left for the shards that are in use: they grow without asking.
constexpr uint64_t kWarmLeftShare = 16;

}  // namespace

absl::StatusOr<bool> TieredShard::Warm(absl::string_view bytes) {
  HOTBED_CHECK(!apply_.active) << shard_.shard.ToString() << ": Warm beside an Apply";
  if (shed_.active) return false;
  HOTBED_ASSIGN_OR_RETURN(const RowBlock block,
                          RowBlock::Parse(bytes, spill_shard_.record_bytes()));
  hot_->SetQuota(quota_.load(std::memory_order_relaxed));
  std::vector<uint32_t> slots(block.rows());
  const uint32_t count = SlotsToWarm(block, slots.data());
  std::vector<uint64_t> positions(count);
  std::vector<const uint8_t*> sources(count);
  for (uint32_t row = 0; row < count; ++row) {
    const auto* const record = reinterpret_cast<const uint8_t*>(block.record(row).data());
    positions[row] = block.position(row);
    sources[row] = SpillTier::PayloadOf(record);
    // What is ahead of the log is known by its LSN, which the hot tier does not keep.
    const Lsn lsn = SpillTier::LsnOf(record);
    if (replaying_ && lsn > applied_lsn_) replay_guard_[positions[row]] = lsn;
  }
  InsertRows(positions.data(), slots.data(), sources.data(), count, /*dirty=*/false);
  PublishStats();
  return count == block.rows();
}

// No row goes to the spill tier, or is looked for there, unless it has been let go since.
void TieredShard::WarmedAll() {
  const uint64_t evictions = counters_.evictions.load(std::memory_order_relaxed);
  if (replaying_ && above_ == this && evictions == evictions_before_replay_) may_miss_ = false;
}

// How many rows of the block find a place.
uint32_t TieredShard::SlotsToWarm(const RowBlock& block, uint32_t* slots) {
  const uint32_t rows = block.rows();
  if (hot_->direct()) {  // all is paid for
    for (uint32_t row = 0; row < rows; ++row) {
      slots[row] = static_cast<uint32_t>(block.position(row) - table()->first_position);
    }
    return rows;
  }
  const uint64_t row_bytes = HotTier::IndexedRowBytes(shard_.table, shard_.range);
  const uint64_t kept = arena_->taken() + arena_->budget() / kWarmLeftShare;
  if (kept >= arena_->budget()) return 0;
  const uint64_t affordable = (arena_->budget() - kept) / row_bytes;
  return hot_->TakeSlots(static_cast<uint32_t>(std::min<uint64_t>(rows, affordable)), slots);
}

}  // namespace hotbed
