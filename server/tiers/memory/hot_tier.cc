#include "server/tiers/memory/hot_tier.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "common/check.h"
#include "server/kernels/cpu_kernels.h"

namespace hotbed {
namespace {

// Buckets hold 15 rows; beyond 84 % too many rows are outside their home bucket.
constexpr double kRowsPerBucket = 12.6;
constexpr uint32_t kGrowMinSlots = 64;
constexpr uint64_t kGrowMaxBytes = 2ull << 20;
// From this size on, the last block of each slab may be a partly unused huge page: three times 2
// MiB are less than a twentieth.
constexpr uint64_t kWholeBlocksBytes = 128ull << 20;

uint32_t RoundUp4(uint32_t bytes) { return (bytes + 3) / 4 * 4; }

RowTable MakeTable(const TableSpec& spec, const ShardRange& range) {
  RowTable table;
  table.seed = spec.seed;
  table.dim = range.column_limit - range.column_first;
  table.column_first = range.column_first;
  table.hashed = spec.hashed;
  table.weight_type = spec.weight_type;
  table.optimizer = spec.optimizer;
  table.initializer = spec.initializer;
  table.weight_bytes = BytesPerWeight(spec.weight_type) * table.dim;
  table.weight_stride = RoundUp4(table.weight_bytes);
  table.state_bytes = StateBytes(spec.optimizer, table.dim);
  table.first_position = range.first_position(spec.hashed);
  return table;
}

}  // namespace

uint64_t HotTier::DirectBytes(const TableSpec& spec, const ShardRange& range) {
  const uint64_t rows = range.limit - range.first;
  if (spec.hashed || rows >= kNoSlot) return std::numeric_limits<uint64_t>::max();
  const RowTable table = MakeTable(spec, range);
  return rows * (table.weight_stride + table.state_bytes + kDirectOverhead);
}

uint64_t HotTier::IndexedRowBytes(const TableSpec& spec, const ShardRange& range) {
  const RowTable table = MakeTable(spec, range);
  return uint64_t{table.weight_stride} + table.state_bytes + kIndexedOverhead;
}

HotTier::HotTier(const TableSpec& spec, const ShardRange& range, bool direct, bool huge_pages,
                 HotArena* arena)
    : arena_(arena), huge_pages_(huge_pages), table_(MakeTable(spec, range)) {
  table_.direct = direct;
  const uint64_t rows =
      spec.hashed ? std::numeric_limits<uint64_t>::max() : range.limit - range.first;
  row_bytes_ = uint64_t{table_.weight_stride} + table_.state_bytes +
               (direct ? kDirectOverhead : kIndexedOverhead);
  if (direct) {
    slots_max_ = static_cast<uint32_t>(rows);
  } else {
    const uint64_t affordable = arena->budget() / row_bytes_ + 1;
    slots_max_ =
        static_cast<uint32_t>(std::min({rows, affordable, uint64_t{kIndexedSlotsMax} - 1}));
  }
  weights_ = HotSlab(uint64_t{table_.weight_stride} * slots_max_, huge_pages);
  state_ = HotSlab(uint64_t{table_.state_bytes} * slots_max_, huge_pages);
  bits_ = HotSlab(slots_max_, huge_pages);
  table_.weights = weights_.data();
  table_.state = state_.data();
  table_.bits = bits_.data();
  if (direct) {
    taken_ = row_bytes_ * slots_max_;
    granted_ = slots_max_;
    table_.slots = slots_max_;
    const bool whole = taken_ >= kWholeBlocksBytes;
    weights_.Extend(whole ? weights_.bytes_max() : uint64_t{table_.weight_stride} * slots_max_);
    state_.Extend(whole ? state_.bytes_max() : uint64_t{table_.state_bytes} * slots_max_);
    bits_.Extend(whole ? bits_.bytes_max() : slots_max_);
  } else {
    positions_ = HotSlab(uint64_t{sizeof(uint64_t)} * slots_max_, huge_pages);
    table_.positions = reinterpret_cast<uint64_t*>(positions_.data());
    Reindex(1);
  }
}

HotTier::~HotTier() { arena_->Give(taken_); }

uint32_t HotTier::QuotaSlots() const {
  return static_cast<uint32_t>(
      std::clamp<uint64_t>(quota_ / row_bytes_, 1, std::max(slots_max_, 1u)));
}

void HotTier::Grow(uint32_t wanted) {
  // A quarter more at a time while small, one huge page of weights at a time when large.
  const uint32_t page_slots =
      static_cast<uint32_t>(std::max<uint64_t>(kGrowMaxBytes / table_.weight_stride, 1));
  uint32_t step = std::max(wanted, std::min(std::max(granted_ / 4, kGrowMinSlots), page_slots));
  step = std::min(step, slots_max_ - granted_);
  for (; step > 0; step /= 2) {
    const uint64_t bytes = row_bytes_ * step;
    const bool borrows = taken_ + bytes > quota_;
    if (arena_->Take(bytes, borrows)) {
      taken_ += bytes;
      break;
    }
    if (!borrows) refused_ = true;
  }
  if (step == 0 && granted_ == 0) {
    step = 1;
    taken_ = row_bytes_;
    arena_->TakeAnyway(row_bytes_);
  }
  if (step == 0) return;
  granted_ += step;
  weights_.Extend(uint64_t{table_.weight_stride} * granted_);
  state_.Extend(uint64_t{table_.state_bytes} * granted_);
  bits_.Extend(granted_);
  positions_.Extend(uint64_t{sizeof(uint64_t)} * granted_);
  if (granted_ > table_.bucket_count * kRowsPerBucket) Reindex(granted_ + granted_ / 2);
}

void HotTier::Reindex(uint32_t slots) {
  const uint32_t buckets = static_cast<uint32_t>(std::min(slots, slots_max_) / kRowsPerBucket) + 1;
  const uint64_t bytes = uint64_t{buckets} * sizeof(IndexBucket);
  HotSlab fresh(bytes, huge_pages_);
  fresh.Extend(bytes);
  table_.buckets = reinterpret_cast<IndexBucket*>(fresh.data());
  table_.bucket_count = buckets;
  ReindexBatch batch;
  batch.table = &table_;
  CpuKernels().reindex(&batch);
  buckets_ = std::move(fresh);  // frees the old index with `fresh`
}

uint32_t HotTier::TakeSlots(uint32_t wanted, uint32_t* slots) {
  uint32_t count = 0;
  while (count < wanted && !free_.empty()) {
    slots[count++] = free_.back();
    free_.pop_back();
  }
  while (count < wanted) {
    if (table_.slots == granted_) Grow(wanted - count);
    if (table_.slots == granted_) break;
    while (count < wanted && table_.slots < granted_) slots[count++] = table_.slots++;
  }
  return count;
}

void HotTier::ReturnSlots(const uint32_t* slots, uint32_t count) {
  free_.insert(free_.end(), slots, slots + count);
}

void HotTier::Shrink(uint32_t slots) {
  HOTBED_CHECK(!direct());
  if (slots >= granted_) return;
  const uint64_t bytes = row_bytes_ * (granted_ - slots);
  free_.erase(std::remove_if(free_.begin(), free_.end(), [&](uint32_t s) { return s >= slots; }),
              free_.end());
  free_.shrink_to_fit();
  table_.slots = std::min(table_.slots, slots);
  granted_ = slots;
  weights_.Truncate(uint64_t{table_.weight_stride} * slots);
  state_.Truncate(uint64_t{table_.state_bytes} * slots);
  bits_.Truncate(slots);
  positions_.Truncate(uint64_t{sizeof(uint64_t)} * slots);
  Reindex(slots);
  taken_ -= bytes;
  arena_->Give(bytes);
}

uint64_t HotTier::OverheadBytes(uint64_t rows_resident) const {
  if (direct()) {
    return table_.slots + rows_resident * (table_.weight_stride - table_.weight_bytes);
  }
  const uint64_t slot_bytes = uint64_t{table_.weight_stride} + table_.state_bytes + 9;
  return table_.slots * slot_bytes + index_bytes() -
         rows_resident * (table_.weight_bytes + table_.state_bytes);
}

}  // namespace hotbed
