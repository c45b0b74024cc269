// The state with which a shard begins that was merged from two (docs/protocol.md). Pure.
#ifndef HOTBED_SERVER_PROTOCOL_MERGED_META_H_
#define HOTBED_SERVER_PROTOCOL_MERGED_META_H_

#include <cstdint>

#include "absl/types/span.h"
#include "common/ids.h"
#include "common/tables/shard_record.h"
#include "server/protocol/session_table.h"

namespace hotbed {

// Where the log of the merged shard begins here: record.merge.base, if the parts here end where
// their primary's did. Otherwise a part has lost the end of its log with its machine's power: then
// the base has no epoch, agrees with no other replica's, and counts less than any.
LogEnd BaseHere(const ShardRecord& record, const LogEnd& lower, const LogEnd& upper);

// `lanes` are those of the merged shard; `boundary` is the first row or bucket of the upper part.
ShardMeta MergeMetas(absl::Span<const ShardLane> lanes, uint64_t boundary, const LogEnd& base,
                     const ShardMeta& lower, const ShardMeta& upper);

}  // namespace hotbed

#endif  // HOTBED_SERVER_PROTOCOL_MERGED_META_H_
