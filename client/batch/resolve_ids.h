// What a table's padding id and bounds mode make of a feature's ids (DECISIONS W5), before
// duplicates are removed. Pure functions.
//
//   padding id                       counts for nothing
//   id outside of 0..rows-1 of a bounded table, by bounds_mode:
//     error                          refused
//     zero                           counts for nothing, and is counted itself
//     modulo                         the mathematical modulus id mod rows of the id as int64, so
//                                    that -1 is the last row (ids of 2^63 and above are negative)
//
// The padding id is looked for before and after the modulus.
#ifndef HOTBED_CLIENT_BATCH_RESOLVE_IDS_H_
#define HOTBED_CLIENT_BATCH_RESOLVE_IDS_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "common/table_spec.h"

namespace hotbed {

inline constexpr uint8_t kIdPadding = 1;
inline constexpr uint8_t kIdZeroed = 2;

// Of one feature. Keeps its memory from use to use.
struct ResolvedIds {
  absl::Span<const uint64_t> ids;  // those given, or `changed`
  const uint8_t* skip = nullptr;   // one byte an id: 0, kIdPadding or kIdZeroed; null: all are 0
  uint64_t zeroed = 0;             // ids that are kIdZeroed

  std::vector<uint64_t> changed;
  std::vector<uint8_t> skipped;
};

// ids.size(), or the position of the first id that bounds mode `error` refuses; then `out` is not
// to be used. `ids` outlive `out`. Nothing is copied where all ids stay as they are.
size_t ResolveIds(const TableSpec& table, absl::Span<const uint64_t> ids, ResolvedIds* out);

}  // namespace hotbed

#endif  // HOTBED_CLIENT_BATCH_RESOLVE_IDS_H_
