// An entry of the log (RecordHeader) as an update of rows (RowUpdates).
#ifndef HOTBED_SERVER_SHARD_RECORD_MAPPING_H_
#define HOTBED_SERVER_SHARD_RECORD_MAPPING_H_

#include <cstdint>

#include "server/shard_log/shard_log.h"
#include "server/tiers/api/rows.h"

namespace hotbed {

// The update of a push: header.id_count ids, and one gradient pointer per id. Of a delete: the ids.
inline RowUpdates UpdatesOf(const RecordHeader& header, const uint64_t* ids,
                            const uint8_t* const* gradients) {
  return {{header.id_count, header.gradient_type, gradients, header.scalars, header.assign,
           header.shows},
          ids,
          header.lsn,
          header.kind == RecordKind::kDelete};
}

}  // namespace hotbed

#endif  // HOTBED_SERVER_SHARD_RECORD_MAPPING_H_
