// Blocks of rows (row_block.h) to and from plain values (api/rows.h).
#include <cstring>
#include <vector>

#include "common/status_macros.h"
#include "server/tiers/api/rows.h"
#include "server/tiers/spill/row_block.h"
#include "server/tiers/spill/spill_record.h"

namespace hotbed {

absl::Status VisitRows(const SpillShard& shard, absl::string_view block,
                       absl::FunctionRef<void(uint64_t position, const uint8_t* payload)> visit) {
  HOTBED_ASSIGN_OR_RETURN(const RowBlock rows, RowBlock::Parse(block, shard.record_bytes()));
  for (uint32_t row = 0; row < rows.rows(); ++row) {
    const auto* const record = reinterpret_cast<const uint8_t*>(rows.record(row).data());
    visit(rows.position(row), SpillTier::PayloadOf(record));
  }
  return absl::OkStatus();
}

std::string MakeRowBlock(const SpillShard& shard, absl::Span<const uint64_t> positions,
                         const uint8_t* payloads, Lsn lsn) {
  RowBlockWriter block(shard.record_bytes());
  std::vector<uint8_t> record(shard.record_bytes());
  for (size_t row = 0; row < positions.size(); ++row) {
    std::memcpy(record.data() + kSpillHeaderBytes, payloads + row * shard.payload_bytes,
                shard.payload_bytes);
    CompleteRecord(shard, SpillRowKey(shard, positions[row]), lsn, record.data());
    block.Add(positions[row], {reinterpret_cast<const char*>(record.data()), record.size()});
  }
  return block.Finish();
}

}  // namespace hotbed
