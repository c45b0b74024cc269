// What memory has of the rows, for a copy to another server (live_reader.h).
#include <cstring>

#include "common/byte_order.h"
#include "row_math/position.h"
#include "server/tiers/memory/tiered_shard.h"

namespace hotbed {
namespace {

// Of a pass: its positions are 8 MiB, and what walks over the slots holds requests up for a
// millisecond or so.
constexpr uint32_t kPassSlotsMax = 1u << 20;

}  // namespace

bool TieredShard::BeginPass(bool further, std::vector<uint64_t>* positions) {
  const RowTable& rows = *table();
  if (replaying_ || above_ != this || rows.slots > kPassSlotsMax) return false;
  pass_lsn_ = applied_lsn_;
  if (!further) positions->reserve(static_cast<size_t>(rows_resident_));
  const uint8_t wanted = further ? kRowExists | kRowChanged : kRowExists;
  for (uint32_t slot = 0; slot < rows.slots; ++slot) {
    if ((rows.bits[slot] & wanted) != wanted) continue;
    positions->push_back(rows.direct ? rows.first_position + slot : rows.positions[slot]);
    rows.bits[slot] &= static_cast<uint8_t>(~kRowChanged);
  }
  write_back_.AddPositions(positions);
  return true;
}

void TieredShard::ReadPass(absl::Span<const uint64_t> positions, LiveRows* out) {
  const RowTable& rows = *table();
  const uint32_t count = static_cast<uint32_t>(positions.size());
  std::vector<uint64_t> ids(positions.begin(), positions.end());
  if (rows.hashed) {
    for (uint64_t& id : ids) id = Unmix64(id);
  }
  std::vector<uint32_t> slots(count);
  std::vector<uint32_t> missing(count);
  ProbeBatch probe;
  probe.table = &rows;
  probe.ids = ids.data();
  probe.count = count;
  probe.slots = slots.data();
  probe.missing = missing.data();
  kernels_->Submit(&probe, nullptr);
  out->all = !may_miss_;
  out->found.assign(count, 0);
  out->records.resize(uint64_t{count} * spill_shard_.record_bytes());
  for (uint32_t k = 0; k < count; ++k) {
    uint8_t* const record = out->records.data() + uint64_t{k} * spill_shard_.record_bytes();
    uint8_t* const payload = record + kSpillHeaderBytes;
    const uint32_t slot = slots[k];
    Lsn lsn = applied_lsn_;
    if (slot != kNoSlot) {
      std::memcpy(payload, rows.weights + uint64_t{rows.weight_stride} * slot, rows.weight_bytes);
      if (rows.state_bytes != 0) {
        std::memcpy(payload + rows.weight_bytes, rows.state + uint64_t{rows.state_bytes} * slot,
                    rows.state_bytes);
      }
      // The lower the better: what comes with an LSN above that of the copy is guarded one by one.
      if ((rows.bits[slot] & kRowChanged) == 0) lsn = pass_lsn_;
    } else if (const uint8_t* const kept = write_back_.Find(positions[k]); kept != nullptr) {
      std::memcpy(payload, kept, spill_shard_.payload_bytes);
    } else {
      continue;
    }
    StoreLittle<uint64_t>(record + 1, lsn);
    out->found[k] = 1;
  }
}

}  // namespace hotbed
