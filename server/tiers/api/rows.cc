#include "server/tiers/api/rows.h"

namespace hotbed {

SpillShard::SpillShard(const TableSpec& table, const ShardRange& range, ShardId id)
    : shard(id),
      hashed(table.hashed),
      slice(static_cast<uint16_t>(range.column_first)),
      first_position(range.first_position(table.hashed)),
      last_position(range.last_position(table.hashed)),
      weight_type(table.weight_type),
      dim(range.column_limit - range.column_first) {
  payload_bytes = BytesPerWeight(table.weight_type) * dim + StateBytes(table.optimizer, dim);
}

}  // namespace hotbed
