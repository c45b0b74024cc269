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
constexpr uint64_t kIndexBytesPerSlot = 10;  // 64 / 12.6, and half as much again after it has grown
constexpr uint64_t kChunkBytesMax = 64ull << 10;
constexpr uint32_t kChunkSlotsMax = 2048;
constexpr uint64_t kChunksPerBudget = 1024;  // at least, so that a small budget has many as well
// The budget could pay for so many units of huge pages. In a direct tier each may be a mapping of
// its own, and Linux allows a process 65,530.
constexpr uint64_t kUnitsPerBudget = 8192;
// While less than this part of the budget is unused, no memory is taken for the sake of huge pages.
constexpr uint64_t kPlentyShare = 16;
// TakeUnused leaves this part of the budget.
constexpr uint64_t kUnusedLeftShare = 16;
// So many bytes of rows that lie so densely are taken for a part of a run that goes on.
constexpr uint64_t kRunBytesMin = 128 << 10;
constexpr double kDense = 0.875;

uint32_t RoundUp4(uint32_t bytes) { return (bytes + 3) / 4 * 4; }

RowTable MakeTable(const TableSpec& spec, const ShardRange& range) {
  RowTable table;
  table.seed = spec.seed;
  table.dim = range.column_limit - range.column_first;
  table.column_first = range.column_first;
  table.hashed = spec.hashed;
  table.weight_type = spec.weight_type;
  table.optimizer = &spec.optimizer;
  table.initializer = ReadInitializer(spec);
  table.admission = spec.life.admission;
  table.admitted_initializer = spec.initializer;
  table.weight_bytes = BytesPerWeight(spec.weight_type) * table.dim;
  table.weight_stride = RoundUp4(table.weight_bytes);
  table.state_bytes = StateBytes(spec.optimizer, table.dim);
  table.first_position = range.first_position(spec.hashed);
  return table;
}

}  // namespace

uint64_t HotTier::WholeBytes(const TableSpec& spec, const ShardRange& range) {
  const uint64_t rows = range.limit - range.first;
  if (spec.hashed || rows >= kNoSlot) return std::numeric_limits<uint64_t>::max();
  const RowTable table = MakeTable(spec, range);
  return rows * (table.weight_stride + table.state_bytes + kRowOverhead);
}

bool HotTier::CanBeDirect(const TableSpec& spec, const ShardRange& range, uint64_t bytes) {
  return !spec.hashed && range.limit - range.first < kIndexedSlotsMax &&
         WholeBytes(spec, range) <= bytes;
}

uint64_t HotTier::IndexedRowBytes(const TableSpec& spec, const ShardRange& range) {
  const RowTable table = MakeTable(spec, range);
  return uint64_t{table.weight_stride} + table.state_bytes + kRowOverhead;
}

HotTier::HotTier(const TableSpec& spec, const ShardRange& range, bool direct, bool huge_pages,
                 HotArena* arena, HotArena::Account* account)
    : arena_(arena), account_(account), huge_pages_(huge_pages), table_(MakeTable(spec, range)) {
  table_.direct = direct;
  row_bytes_ = uint64_t{table_.weight_stride} + table_.state_bytes + kRowOverhead;
  const uint64_t rows =
      spec.hashed ? std::numeric_limits<uint64_t>::max() : range.limit - range.first;
  if (direct) {
    slots_max_ = static_cast<uint32_t>(rows);
  } else {
    const uint64_t affordable = arena->budget() / row_bytes_ + 1;
    slots_max_ =
        static_cast<uint32_t>(std::min({rows, affordable, uint64_t{kIndexedSlotsMax} - 1}));
  }
  const uint64_t chunk_bytes = std::min(kChunkBytesMax, arena->budget() / kChunksPerBudget);
  while (chunk_slots_ < kChunkSlotsMax && 2 * chunk_slots_ * row_bytes_ <= chunk_bytes) {
    chunk_slots_ *= 2;
  }
  weights_ = NewSlab(table_.weight_stride);
  state_ = NewSlab(table_.state_bytes);
  bits_ = NewSlab(1);
  positions_ = NewSlab(sizeof(uint64_t));
  table_.weights = weights_.data();
  table_.state = state_.data();
  table_.bits = bits_.data();
  if (direct) {
    table_.slots = slots_max_;
  } else {
    table_.positions = reinterpret_cast<uint64_t*>(positions_.data());
    Reindex(1);
  }
}

HotTier::HotTier(HotTier* from, const TableSpec& table, HotArena::Account* account)
    : arena_(from->arena_),
      account_(account),
      huge_pages_(from->huge_pages_),
      row_bytes_(from->row_bytes_),
      slots_max_(from->slots_max_),
      chunk_slots_(from->chunk_slots_),
      paid_(std::move(from->paid_)),
      unpaid_(from->unpaid_),
      paid_slots_(from->paid_slots_),
      granted_(from->granted_),
      taken_(from->taken_),
      table_(from->table_),
      weights_(std::move(from->weights_)),
      state_(std::move(from->state_)),
      bits_(std::move(from->bits_)),
      positions_(std::move(from->positions_)),
      buckets_(std::move(from->buckets_)),
      free_(std::move(from->free_)) {
  table_.optimizer = &table.optimizer;  // of the owner from now on
  arena_->Move(from->account_, account_, std::exchange(from->taken_, 0));
}

HotTier::~HotTier() { arena_->Give(account_, taken_); }

HotSlab HotTier::NewSlab(uint64_t slot_bytes) const {
  const uint64_t huge_pages =
      direct() ? arena_->budget() / kUnitsPerBudget / HotSlab::kHugeBytes + 1 : 1;
  return HotSlab(slot_bytes * slots_max_, arena_->small_block_bytes(),
                 huge_pages_ ? huge_pages * HotSlab::kHugeBytes : 0);
}

// --- chunks

uint32_t HotTier::FirstOf(uint32_t chunk) const {
  return static_cast<uint32_t>(std::min<uint64_t>(uint64_t{chunk_slots_} * chunk, slots_max_));
}

uint64_t HotTier::BytesToPay(uint32_t chunk) const {
  const uint64_t first = FirstOf(chunk), limit = FirstOf(chunk + 1);
  uint64_t bytes = weights_.BytesToUse(first * table_.weight_stride, limit * table_.weight_stride) +
                   state_.BytesToUse(first * table_.state_bytes, limit * table_.state_bytes) +
                   positions_.BytesToUse(8 * first, 8 * limit) +
                   kIndexBytesPerSlot * (limit - first);
  if (chunk >= paid_.size() || paid_[chunk] == kUnpaid) bytes += bits_.BytesToUse(first, limit);
  return bytes;
}

bool HotTier::Pay(uint32_t chunk, bool anyway) {
  const uint64_t bytes = BytesToPay(chunk);
  if (anyway) {
    arena_->TakeAnyway(account_, bytes);
  } else if (bytes > 0 && !arena_->Take(account_, bytes)) {
    return false;
  }
  taken_ += bytes;
  MarkPaid(chunk);
  return true;
}

void HotTier::MarkPaid(uint32_t chunk) {
  if (chunk >= paid_.size()) paid_.resize(chunk + 1, kUnpaid);
  const uint64_t first = FirstOf(chunk), limit = FirstOf(chunk + 1);
  weights_.Use(first * table_.weight_stride, limit * table_.weight_stride);
  state_.Use(first * table_.state_bytes, limit * table_.state_bytes);
  if (paid_[chunk] == kUnpaid) bits_.Use(first, limit);
  positions_.Use(8 * first, 8 * limit);
  paid_[chunk] = kRowsPaid;
  paid_slots_ += static_cast<uint32_t>(limit - first);
}

void HotTier::Unpay(uint32_t chunk) {
  const uint64_t first = FirstOf(chunk), limit = FirstOf(chunk + 1);
  const uint64_t bytes =
      weights_.Release(first * table_.weight_stride, limit * table_.weight_stride) +
      state_.Release(first * table_.state_bytes, limit * table_.state_bytes) +
      bits_.Release(first, limit) + positions_.Release(8 * first, 8 * limit) +
      kIndexBytesPerSlot * (limit - first);
  paid_[chunk] = kUnpaid;
  paid_slots_ -= static_cast<uint32_t>(limit - first);
  taken_ -= bytes;
  arena_->Give(account_, bytes);
}

uint32_t HotTier::TakeUnused(const uint64_t* positions, uint32_t count, uint32_t* slots) {
  const uint64_t left = arena_->budget() / kUnusedLeftShare;
  if (!direct()) {
    const uint64_t kept = arena_->taken() + left;
    const uint64_t more = kept < arena_->budget() ? (arena_->budget() - kept) / row_bytes_ : 0;
    return TakeSlots(static_cast<uint32_t>(std::min<uint64_t>(count, free_slots() + more)), slots);
  }
  if (count == 0) return 0;
  for (uint32_t k = 0; k < count; ++k) {
    slots[k] = static_cast<uint32_t>(positions[k] - table_.first_position);
  }
  const uint32_t first = slots[0], last = slots[count - 1];
  if (count * row_bytes_ >= kRunBytesMin && count > kDense * (last - first + 1)) {
    FillAhead(first, last);
  }
  for (uint32_t k = 0; k < count; ++k) {
    if (paid(slots[k])) continue;
    if (arena_->taken() + left >= arena_->budget() || !PayForSlot(slots[k])) return k;
  }
  return count;
}

// --- direct

// Units that dense rows will fill have huge pages from the first touch on. Otherwise the kernel
// would have to clear small pages first and copy them when the last one is paid for.
void HotTier::FillAhead(uint32_t first_slot, uint32_t last_slot) {
  FillUnitsAhead(&weights_, table_.weight_stride, first_slot, last_slot);
  FillUnitsAhead(&state_, table_.state_bytes, first_slot, last_slot);
  FillUnitsAhead(&bits_, 1, first_slot, last_slot);
}

void HotTier::FillUnitsAhead(HotSlab* slab, uint64_t slot_bytes, uint32_t first_slot,
                             uint32_t last_slot) {
  const uint64_t unit = slab->unit_bytes();
  if (unit == 0) return;
  const uint64_t last = slot_bytes * last_slot, whole = slot_bytes * slots_max_ / unit * unit;
  for (uint64_t byte = slot_bytes * first_slot / unit * unit; byte <= last && byte < whole;
       byte += unit) {
    const uint64_t bytes = slab->BytesToBegin(byte);
    if (bytes == 0) continue;
    if (!MemoryIsPlenty() || !arena_->Take(account_, bytes)) return;
    taken_ += bytes;
    slab->Fill(byte);
  }
}

bool HotTier::PayForSlot(uint32_t slot) {
  const uint32_t chunk = slot / chunk_slots_;
  if (chunk < paid_.size() && paid_[chunk] == kRowsPaid) return true;
  if (!Pay(chunk, /*anyway=*/false)) return false;
  FillUnit(&weights_, uint64_t{slot} * table_.weight_stride);
  FillUnit(&state_, uint64_t{slot} * table_.state_bytes);
  FillUnit(&bits_, slot);
  return true;
}

void HotTier::FillUnit(HotSlab* slab, uint64_t byte) {
  const uint64_t bytes = slab->BytesToFill(byte);
  if (bytes == 0 || !MemoryIsPlenty() || !arena_->Take(account_, bytes)) return;
  taken_ += bytes;
  slab->Fill(byte);
}

bool HotTier::MemoryIsPlenty() const { return arena_->unused() > arena_->budget() / kPlentyShare; }

bool HotTier::PayForBits(uint32_t slot) {
  const uint32_t chunk = slot / chunk_slots_;
  if (chunk < paid_.size() && paid_[chunk] != kUnpaid) return true;
  const uint64_t first = FirstOf(chunk), limit = FirstOf(chunk + 1);
  const uint64_t bytes = bits_.BytesToUse(first, limit);
  if (bytes > 0 && !arena_->Take(account_, bytes)) return false;
  taken_ += bytes;
  if (chunk >= paid_.size()) paid_.resize(chunk + 1, kUnpaid);
  bits_.Use(first, limit);
  paid_[chunk] = kBitsPaid;
  return true;
}

void HotTier::BecomeIndexed() {
  HOTBED_CHECK(direct());
  table_.positions = reinterpret_cast<uint64_t*>(positions_.data());
  table_.direct = false;
  granted_ = table_.slots;
  uint64_t freed = weights_.EmptyFilled() + state_.EmptyFilled() + bits_.EmptyFilled();
  for (uint32_t chunk = 0; chunk < paid_.size(); ++chunk) {
    const uint32_t first = FirstOf(chunk), limit = FirstOf(chunk + 1);
    if (paid_[chunk] == kBitsPaid) {
      freed += bits_.Release(first, limit);
      paid_[chunk] = kUnpaid;
    }
    if (paid_[chunk] == kUnpaid) continue;
    for (uint32_t slot = first; slot < limit; ++slot) {
      if (table_.bits[slot] & kRowExists) {
        table_.bits[slot] |= 1;  // direct tiers count no visits: one window to show who is in use
        table_.positions[slot] = table_.first_position + slot;
      } else {
        free_.push_back(slot);
      }
    }
  }
  taken_ -= freed;
  arena_->Give(account_, freed);
  std::reverse(free_.begin(), free_.end());  // low slots are taken first
  Reindex(std::max(paid_slots_, 1u));
}

// --- indexed

bool HotTier::Grow() {
  if (!GrowByChunk()) return false;
  // A unit that is paid for as a whole has huge pages from the first touch on.
  const uint64_t unit = FirstOf(unpaid_) * uint64_t{table_.weight_stride} / HotSlab::kHugeBytes;
  while (huge_pages_ && unit > 0 && MemoryIsPlenty()) {
    if (FirstOf(unpaid_ + 1) * uint64_t{table_.weight_stride} / HotSlab::kHugeBytes > unit) break;
    if (!GrowByChunk()) break;
  }
  if (paid_slots_ > table_.bucket_count * kRowsPerBucket) Reindex(paid_slots_ + paid_slots_ / 2);
  return true;
}

bool HotTier::GrowByChunk() {
  while (unpaid_ < paid_.size() && paid_[unpaid_] == kRowsPaid) ++unpaid_;
  const uint32_t first = FirstOf(unpaid_), limit = FirstOf(unpaid_ + 1);
  if (first == limit || !Pay(unpaid_, /*anyway=*/paid_slots_ == 0)) return false;
  if (first >= table_.slots) {
    HOTBED_DCHECK(first == granted_);
    granted_ = limit;
  } else {
    for (uint32_t slot = limit; slot-- > first;) free_.push_back(slot);
  }
  return true;
}

void HotTier::Reindex(uint32_t slots) {
  const uint32_t buckets = static_cast<uint32_t>(std::min(slots, slots_max_) / kRowsPerBucket) + 1;
  const uint64_t bytes = uint64_t{buckets} * sizeof(IndexBucket);
  HotSlab fresh(bytes, arena_->small_block_bytes(), huge_pages_ ? HotSlab::kHugeBytes : 0);
  fresh.Use(0, bytes);
  table_.buckets = reinterpret_cast<IndexBucket*>(fresh.data());
  table_.bucket_count = buckets;
  ReindexBatch batch;
  batch.table = &table_;
  CpuKernels().reindex(&batch);
  buckets_ = std::move(fresh);  // frees the old index with `fresh`
}

uint32_t HotTier::TakeFree(uint32_t wanted, uint32_t* slots) {
  uint32_t count = 0;
  for (; count < wanted && !free_.empty(); free_.pop_back()) slots[count++] = free_.back();
  while (count < wanted && table_.slots < granted_) slots[count++] = table_.slots++;
  return count;
}

uint32_t HotTier::TakeSlots(uint32_t wanted, uint32_t* slots) {
  uint32_t count = TakeFree(wanted, slots);
  while (count < wanted && Grow()) count += TakeFree(wanted - count, slots + count);
  return count;
}

void HotTier::ReturnSlots(const uint32_t* slots, uint32_t count) {
  free_.insert(free_.end(), slots, slots + count);
}

uint32_t HotTier::TailOf(uint32_t slots_max) const {
  uint32_t tail = granted_, slots = 0;
  for (uint32_t chunk = static_cast<uint32_t>(paid_.size()); chunk-- > 1;) {
    if (paid_[chunk] != kRowsPaid) continue;
    slots += FirstOf(chunk + 1) - FirstOf(chunk);
    if (slots > slots_max || slots == paid_slots_) break;
    tail = FirstOf(chunk);
  }
  return tail;
}

void HotTier::CloseTail(uint32_t first) {
  HOTBED_CHECK(!direct());
  free_.erase(std::remove_if(free_.begin(), free_.end(), [&](uint32_t s) { return s >= first; }),
              free_.end());
  granted_ = std::min(granted_, first);
}

void HotTier::FreeTail(uint32_t first) {
  const uint32_t chunk_first = (first + chunk_slots_ - 1) / chunk_slots_;
  for (uint32_t chunk = chunk_first; chunk < paid_.size(); ++chunk) {
    if (paid_[chunk] == kRowsPaid) Unpay(chunk);
  }
  if (chunk_first < paid_.size()) paid_.resize(chunk_first);
  unpaid_ = std::min(unpaid_, chunk_first);
  table_.slots = std::min(table_.slots, first);
  granted_ = std::max(granted_, table_.slots);
  // The index is paid for by the slot: it shrinks with them.
  if (table_.bucket_count * kRowsPerBucket > 2.0 * paid_slots_ + kChunkSlotsMax) {
    Reindex(paid_slots_ + paid_slots_ / 4);
  }
}

uint64_t HotTier::OverheadBytes(uint64_t rows_resident) const {
  const uint64_t payload = rows_resident * (table_.weight_bytes + table_.state_bytes);
  const uint64_t slot_bytes = uint64_t{table_.weight_stride} + table_.state_bytes + 1;
  if (direct()) return paid_slots_ * slot_bytes - payload;
  const uint64_t used = paid_slots_ - (granted_ - table_.slots);
  return used * (slot_bytes + sizeof(uint64_t)) + index_bytes() - payload;
}

}  // namespace hotbed
