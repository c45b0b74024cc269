// Checks of a segment's contents that need no shard state: ids in range and unique, gradients
// finite. Pure; any thread.
#ifndef HOTBED_SERVER_SHARD_REQUEST_SEGMENT_CHECK_H_
#define HOTBED_SERVER_SHARD_REQUEST_SEGMENT_CHECK_H_

#include <cstdint>

#include "common/tables/shard_record.h"
#include "row_math/types.h"

namespace hotbed {

// Index of the first of `count` ids whose position lies outside of the range; `count` when all lie
// inside.
uint32_t FirstIdOutside(const uint64_t* ids, uint32_t count, const ShardRange& range, bool hashed);
// The same for the positions [first, first + span].
uint32_t FirstIdOutside(const uint64_t* ids, uint32_t count, uint64_t first, uint64_t span,
                        bool hashed);

// Index of the first of `count` ids that has occurred before; `count` when each occurs once.
uint32_t FirstRepeatedId(const uint64_t* ids, uint32_t count);

// Whether a gradient row of `dim` elements (fp32, fp16 or bf16, unaligned) contains neither NaN nor
// infinity.
bool IsFinite(const uint8_t* gradient, uint32_t dim, RowType type);

// Index of the first of `count` gradient rows that is not finite; `count` when all are.
uint32_t FirstNotFinite(const uint8_t* const* gradients, uint32_t count, uint32_t dim,
                        RowType type);

}  // namespace hotbed

#endif  // HOTBED_SERVER_SHARD_REQUEST_SEGMENT_CHECK_H_
