// Rows that go to a faster tier above and come back.
#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "common/check.h"
#include "server/tiers/memory/tiered_shard.h"

namespace hotbed {
namespace {

constexpr uint32_t kPutRows = 256;  // at a time: so many may be evicted for them

}  // namespace

void TieredShard::SetAbove(TieredStore* above, std::function<void()> progress) {
  above_ = above;
  above_progress_ = std::move(progress);
}

void TieredShard::TakeRows(const std::vector<uint64_t>& ids, bool clean_only,
                           ExchangedRows* taken) {
  taken->payload_bytes = spill_shard_.payload_bytes;
  if (apply_.active || shed_.active || ids.empty()) return;
  std::vector<uint32_t> slots(ids.size());
  std::vector<uint32_t> missing(ids.size());
  ProbeBatch probe;
  probe.table = table();
  probe.ids = ids.data();
  probe.count = static_cast<uint32_t>(ids.size());
  probe.slots = slots.data();
  probe.missing = missing.data();
  kernels_->Submit(&probe, nullptr);
  for (uint32_t slot : slots) {
    // An id that is named twice is gone the second time.
    if (slot == kNoSlot || (table()->bits[slot] & kRowExists) == 0) continue;
    if (clean_only && (table()->bits[slot] & kRowDirty) != 0) continue;
    TakeRow(slot, taken);
  }
  // What a read under way has found in the spill tier is older than what was taken.
  keep_from_fetch_ = write_back_.next_fetch();
  PublishStats();
}

void TieredShard::TakeRow(uint32_t slot, ExchangedRows* taken) {
  const RowTable& rows = *table();
  const bool dirty = (rows.bits[slot] & kRowDirty) != 0;
  const uint64_t position = rows.direct ? rows.first_position + slot : rows.positions[slot];
  uint8_t* const payload = taken->Add(position, dirty);
  std::memcpy(payload, rows.weights + uint64_t{rows.weight_stride} * slot, rows.weight_bytes);
  if (rows.state_bytes > 0) {
    std::memcpy(payload + rows.weight_bytes, rows.state + uint64_t{rows.state_bytes} * slot,
                rows.state_bytes);
  }
  uint32_t freed = slot;
  uint64_t dirty_position = 0;
  EvictBatch evict;
  evict.table = table();
  evict.chosen = false;
  evict.slot_first = slot;
  evict.slot_limit = slot + 1;
  evict.slots = &freed;
  evict.dirty_positions = &dirty_position;
  evict.out = payload;
  evict.out_stride = spill_shard_.payload_bytes;
  kernels_->Submit(&evict, nullptr);
  HOTBED_DCHECK(evict.count == 1);
  if (!hot_->direct()) hot_->ReturnSlots(&slot, 1);
  --rows_resident_;
  rows_dirty_ -= evict.dirty_count;
}

void TieredShard::PutRows(const ExchangedRows& rows) {
  HOTBED_CHECK(!apply_.active) << shard_.shard.ToString() << ": PutRows beside an Apply";
  for (const bool dirty : {true, false}) {
    std::vector<uint32_t> picks;
    for (uint32_t k = 0; k < rows.size(); ++k) {
      if ((rows.dirty[k] != 0) == dirty) picks.push_back(k);
    }
    if (!picks.empty() && !dirty && !hot_->direct() && !write_back_.HasRoom(picks.size())) {
      may_miss_ = true;
      break;
    }
    for (uint32_t first = 0; first < picks.size();) first += PutSome(rows, picks, first, dirty);
  }
  write_back_.Pump();
  PublishStats();
}

// How many of picks[first..], at least one, found a slot: all at once unless the tier is smaller
// than that.
uint32_t TieredShard::PutSome(const ExchangedRows& rows, const std::vector<uint32_t>& picks,
                              uint32_t first, bool dirty) {
  std::array<uint32_t, kPutRows> slots;
  std::array<uint64_t, kPutRows> positions;
  std::array<const uint8_t*, kPutRows> sources;
  uint32_t count = std::min({kPutRows, slice_rows_, static_cast<uint32_t>(picks.size()) - first});
  if (!hot_->direct()) count = MakeSlots(count, slots.data(), applied_lsn_);
  HOTBED_CHECK(count > 0) << "a hot tier without a single slot";
  for (uint32_t k = 0; k < count; ++k) {
    positions[k] = rows.positions[picks[first + k]];
    sources[k] = rows.payload(picks[first + k]);
    if (hot_->direct()) slots[k] = static_cast<uint32_t>(positions[k] - table()->first_position);
  }
  InsertRows(positions.data(), slots.data(), sources.data(), count, dirty);
  return count;
}

void TieredShard::InsertRows(const uint64_t* positions, const uint32_t* slots,
                             const uint8_t* const* sources, uint32_t count, bool dirty) {
  InsertBatch insert;
  insert.table = table();
  insert.positions = positions;
  insert.slots = slots;
  insert.sources = sources;
  insert.count = count;
  insert.dirty = dirty;
  kernels_->Submit(&insert, nullptr);
  rows_resident_ += count;
  if (dirty) rows_dirty_ += count;
}

void TieredShard::WriteRows(const ExchangedRows& rows) {
  if (rows.size() == 0) return;
  const WriteBack::Space space = write_back_.Reserve(rows.size());
  for (uint32_t k = 0; k < rows.size(); ++k) {
    space.positions[k] = rows.positions[k];
    std::memcpy(space.payloads + uint64_t{space.stride} * k, rows.payload(k), rows.payload_bytes);
  }
  write_back_.Commit(rows.size(), applied_lsn_);
  write_back_.Pump();
}

bool TieredShard::HasRoomFor(uint64_t rows) {
  if (write_back_.HasRoom(rows)) return true;
  write_back_.Pump();
  return false;
}

absl::Status TieredShard::WriteError() const {
  return write_back_.written() < write_back_.committed() ? write_back_.error() : absl::OkStatus();
}

bool TieredShard::PoolBags(const RowReads& reads, const std::vector<uint32_t>& bags, Done done) {
  PoolOp* const op = NewPoolOp(reads);
  std::copy(bags.begin(), bags.end(), op->missing.begin());
  op->gather.missing_count = static_cast<uint32_t>(bags.size());
  op->done = std::move(done);
  if (!PoolWindows(op)) return false;
  Recycle(op);
  return true;
}

}  // namespace hotbed
