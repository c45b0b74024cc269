// Applies a table's padding id and bounds mode to a feature's ids, before duplicates are removed.
// Pure functions.
//
//   padding id                       adds nothing
//   id outside 0..rows-1 of a bounded table, by bounds_mode:
//     error                          refused
//     zero                           adds nothing, and is counted
//     modulo                         the mathematical modulus id mod rows of the id as int64, so
//                                    that -1 is the last row (ids of 2^63 and above are negative)
//
// Both the id and its modulus are compared with the padding id.
#ifndef HOTBED_CLIENT_BATCH_RESOLVE_IDS_H_
#define HOTBED_CLIENT_BATCH_RESOLVE_IDS_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "common/tables/table_spec.h"

namespace hotbed {

inline constexpr uint8_t kIdPadding = 1;
inline constexpr uint8_t kIdZeroed = 2;

// The ids of one feature. Keeps its memory from one use to the next.
struct ResolvedIds {
  absl::Span<const uint64_t> ids;  // the given ids, or `changed`
  const uint8_t* skip = nullptr;   // one byte per id: 0, kIdPadding or kIdZeroed; null: all are 0
  uint64_t zeroed = 0;             // ids that are kIdZeroed

  std::vector<uint64_t> changed;
  std::vector<uint8_t> skipped;
};

// Returns ids.size(), or the position of the first id that bounds mode `error` refuses; `out` is
// then unspecified. `ids` outlive `out`. Nothing is copied where all ids stay as they are.
size_t ResolveIds(const TableSpec& table, absl::Span<const uint64_t> ids, ResolvedIds* out);

}  // namespace hotbed

#endif  // HOTBED_CLIENT_BATCH_RESOLVE_IDS_H_
