// Blocks of rows (row_block.h) as plain values (api/rows.h).

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
    visit(rows.position(row), SpillTier::PayloadOf(record));
  }
  return absl::OkStatus();
}

}  // namespace hotbed
