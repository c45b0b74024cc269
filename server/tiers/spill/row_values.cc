// Blocks of rows (row_block.h) as plain values (api/rows.h).

#include "common/files/byte_order.h"
#include "common/status_macros.h"
#include "server/tiers/api/rows.h"
#include "server/tiers/spill/row_block.h"
#include "server/tiers/spill/spill_record.h"

namespace hotbed {

absl::Status VisitRows(const SpillShard& shard, absl::string_view block,
                       absl::FunctionRef<void(uint64_t position, const uint8_t* payload)> visit) {
  HOTBED_ASSIGN_OR_RETURN(const RowBlock rows,
                          RowBlock::Parse(block, shard.record_bytes(), /*may_be_unsealed=*/true));
  for (uint32_t row = 0; row < rows.rows(); ++row) {
    const auto* const record = reinterpret_cast<const uint8_t*>(rows.record(row).data());
    visit(rows.position(row), IsDeleted(record) ? nullptr : SpillTier::PayloadOf(record));
  }
  return absl::OkStatus();
}

uint64_t BlockRows::position(uint32_t row) const {
  return LoadLittle<uint64_t>(first + stride * row - kSpillHeaderBytes - kRowBlockPositionBytes);
}

bool BlockRows::deleted(uint32_t row) const {
  return IsDeleted(first + stride * row - kSpillHeaderBytes);
}

absl::StatusOr<BlockRows> RowsIn(const SpillShard& shard, absl::string_view block) {
  HOTBED_ASSIGN_OR_RETURN(const RowBlock rows, RowBlock::Parse(block, shard.record_bytes()));
  if (rows.rows() == 0) return BlockRows();
  const auto* const record = reinterpret_cast<const uint8_t*>(rows.record(0).data());
  return BlockRows{SpillTier::PayloadOf(record), kRowBlockPositionBytes + shard.record_bytes(),
                   rows.rows()};
}

}  // namespace hotbed
