#include "server/tiers/memory/memory_pass.h"

#include <cstring>

#include "common/check.h"
#include "common/files/byte_order.h"
#include "row_math/position.h"
#include "server/tiers/spill/spill_record.h"

namespace hotbed {
namespace {

// The positions of this many slots take 8 MiB, and walking over them delays requests by about a
// millisecond.
constexpr uint32_t kPassSlotsMax = 1u << 20;

}  // namespace

bool MemoryPass::Begin(bool further, std::vector<uint64_t>* positions) {
  const RowTable& rows = *residency_->table();
  if (state_->replaying || rows.slots > kPassSlotsMax) return false;
  lsn_ = state_->applied_lsn;
  if (!further) positions->reserve(rows.rows);
  const uint8_t wanted = further ? kRowExists | kRowChanged : kRowExists;
  for (uint32_t slot = 0; slot < rows.slots; ++slot) {
    if ((rows.bits[slot] & wanted) != wanted) continue;
    positions->push_back(residency_->PositionOfSlot(slot));
    rows.bits[slot] &= static_cast<uint8_t>(~kRowChanged);
  }
  state_->write_back.AddPositions(positions);
  return true;
}

void MemoryPass::Read(absl::Span<const uint64_t> positions, LiveRows* out) {
  const RowTable& rows = *residency_->table();
  const uint32_t count = static_cast<uint32_t>(positions.size());
  std::vector<uint64_t> ids(positions.begin(), positions.end());
  if (rows.hashed) {
    for (uint64_t& id : ids) id = Unmix64(id);
  }
  std::vector<uint32_t> slots(count);
  std::vector<uint32_t> missing(count);
  residency_->Probe(ids.data(), count, slots.data(), missing.data());
  const uint64_t record_bytes = state_->spill_shard.record_bytes();
  out->all = !state_->may_miss() && !state_->has_marks;
  out->found.assign(count, 0);
  out->records.resize(count * record_bytes);
  for (uint32_t k = 0; k < count; ++k) {
    uint8_t* const record = out->records.data() + k * record_bytes;
    uint8_t* const payload = record + kSpillHeaderBytes;
    const uint32_t slot = slots[k];
    Lsn lsn = state_->applied_lsn;
    MarkDeleted(false, record);
    out->found[k] = kRowThere;
    if (slot != kNoSlot) {
      residency_->CopyRow(slot, payload);
      // The lowest LSN that is true: the receiver guards each row above the snapshot's LSN.
      if ((rows.bits[slot] & kRowChanged) == 0) lsn = lsn_;
    } else if (const WriteBack::Kept kept = state_->write_back.Find(positions[k]); !kept.here) {
      out->found[k] = kRowNotThere;
      continue;
    } else if (kept.payload != nullptr) {
      std::memcpy(payload, kept.payload, state_->spill_shard.payload_bytes);
    } else {
      MarkDeleted(true, record);
      out->found[k] = kRowDeleted;
    }
    HOTBED_DCHECK(lsn >= lsn_);
    StoreLittle<uint64_t>(record + 1, lsn);
  }
}

}  // namespace hotbed
