// The rows of one table of a lookup, or its pooled bags, as the wire has them.
#ifndef HOTBED_SERVING_ROW_ANSWER_H_
#define HOTBED_SERVING_ROW_ANSWER_H_

#include <cstdint>

#include "absl/status/status.h"
#include "proto/served_bags.h"
#include "row_math/types.h"
#include "serving/rows/versioned_rows.h"

namespace hotbed {

// As ServingLookupReply::tiers has it.
constexpr char kTierMemory = 1;
constexpr char kTierDisk = 2;
constexpr char kTierDevice = 3;

// `bags` has passed CheckServedBags, and `ids` has bags.ids u64. Sets bags.rows() rows of
// RowWireBytes at `out`, which is zeros, and bags.ids bytes at `exists`: 1 where the row exists. At
// `tiers`, unless it is null, it says likewise where the row was found; 0: it does not exist.
// Each row is whole, as it was between two updates; rows of one bag may be of different times.
// An error is of the disk; nothing is to be believed then. Thread-safe.
absl::Status AnswerRows(const RowsView& rows, RowType type, const char* ids, const ServedBags& bags,
                        uint8_t* out, char* exists, char* tiers = nullptr);

}  // namespace hotbed

#endif  // HOTBED_SERVING_ROW_ANSWER_H_
