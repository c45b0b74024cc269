#include "server/tiers/memory/arriving_rows.h"

#include <algorithm>
#include <utility>

#include "row_math/position.h"
#include "server/tiers/spill/spill_record.h"

namespace hotbed {
namespace {

constexpr uint64_t kAheadBytes = 40;  // of an entry of ahead_, about

}  // namespace

ArrivingRows::ArrivingRows(SharedValue<TableSpec> table, const ShardRange& range, Lsn log_from,
                           const Memory& memory)
    : table_(std::move(table)),
      range_(range),
      log_from_(log_from),
      memory_(memory),
      account_{memory.table},
      hot_(table_, range, HotTier::CanBeDirect(table_, range, memory.arena->unused()),
           memory.huge_pages, memory.arena, &account_) {}

ArrivingRows::~ArrivingRows() { memory_.arena->Give(&account_, ahead_bytes_); }

void ArrivingRows::Place(const RowBlock& block) {
  if (block.rows() == 0) return;
  positions_.clear();
  records_.clear();
  std::vector<uint64_t> replaced;  // rows of an earlier pass may be there, and are older
  const bool further = began_ && block.position(0) <= highest_position_;
  for (uint32_t row = 0; row < block.rows(); ++row) {
    const uint64_t position = block.position(row);
    if (further && position <= highest_position_) replaced.push_back(position);
    const auto* const record = reinterpret_cast<const uint8_t*>(block.record(row).data());
    if (IsDeleted(record)) {
      complete_ = false;
      continue;
    }
    positions_.push_back(position);
    records_.push_back(record);
  }
  began_ = true;
  highest_position_ = std::max(highest_position_, block.position(block.rows() - 1));
  DropRows(replaced);
  slots_.resize(positions_.size());
  InsertBatch insert;
  insert.table = hot_.table();
  insert.positions = positions_.data();
  if (!memory_.wanted->load(std::memory_order_relaxed)) {
    insert.count =
        hot_.TakeUnused(positions_.data(), static_cast<uint32_t>(positions_.size()), slots_.data());
  }
  if (insert.count < positions_.size()) complete_ = false;
  for (uint32_t row = 0; row < insert.count; ++row) {
    // The hot tier keeps no LSNs, so rows ahead of the log must be remembered here.
    const Lsn lsn = SpillTier::LsnOf(records_[row]);
    if (lsn > log_from_) ahead_[positions_[row]] = lsn;
    records_[row] = SpillTier::PayloadOf(records_[row]);
  }
  insert.slots = slots_.data();
  insert.sources = records_.data();
  kernels_.insert(&insert);
  PayForAhead();
}

void ArrivingRows::PayForAhead() {
  const uint64_t bytes = kAheadBytes * ahead_.size();
  if (bytes > ahead_bytes_) memory_.arena->TakeAnyway(&account_, bytes - ahead_bytes_);
  if (bytes < ahead_bytes_) memory_.arena->Give(&account_, ahead_bytes_ - bytes);
  ahead_bytes_ = bytes;
}

void ArrivingRows::DropRows(const std::vector<uint64_t>& positions) {
  if (positions.empty()) return;
  for (const uint64_t position : positions) ahead_.erase(position);
  std::vector<uint64_t> ids = positions;
  if (table_->hashed) {
    for (uint64_t& id : ids) id = Unmix64(id);
  }
  std::vector<uint32_t> slots(ids.size()), missing(ids.size());
  ProbeBatch probe;
  probe.table = hot_.table();
  probe.ids = ids.data();
  probe.count = static_cast<uint32_t>(ids.size());
  probe.slots = slots.data();
  probe.missing = missing.data();
  kernels_.probe(&probe);
  for (uint32_t slot : slots) {
    if (slot == kNoSlot) continue;
    EvictBatch evict;
    evict.table = hot_.table();
    evict.chosen = false;
    evict.slot_first = slot;
    evict.slot_limit = slot + 1;
    evict.slots = &slot;
    kernels_.evict(&evict);
    if (!hot_.direct()) hot_.ReturnSlots(&slot, 1);
  }
}

}  // namespace hotbed
