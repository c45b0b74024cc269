// Sorts unique ids by shard with a counting sort, which is stable: ids of one shard keep the order
// of their first appearance. Thread-compatible.
#ifndef HOTBED_CLIENT_BATCH_SPLIT_H_
#define HOTBED_CLIENT_BATCH_SPLIT_H_

#include <algorithm>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "client/map/shard_locator.h"

namespace hotbed {

// order[begin[s] .. begin[s + 1]) are the indices of the ids that belong to shard s.
struct ShardSplit {
  std::vector<uint32_t> order;
  std::vector<uint32_t> begin;     // shard_count + 1
  std::vector<uint16_t> shard_of;  // scratch

  void Run(absl::Span<const uint64_t> ids, bool hashed, const ShardLocator& locator);
};

// How many rows of one shard and step, in the order of the split, one sequence number stands for.
// It depends on the shard's columns alone, so that the number of a row is the same however the step
// is cut: a trainer that repeats a step under another message_bytes_max (its own or the servers')
// continues where the shard is. The smallest message has room for this many rows of any width.
constexpr uint64_t RowsPerNumber(uint32_t columns) { return columns <= 126 ? 8 : 1; }

// Cuts `count` rows into parts of at most `rows_max`, as evenly as multiples of `rows_per_number`
// rows (at most rows_max) allow.
struct PartCut {
  PartCut(uint64_t count, uint64_t rows_max, uint64_t rows_per_number)
      : rows_per_number(rows_per_number),
        numbers((count + rows_per_number - 1) / rows_per_number),
        numbers_max(rows_max / rows_per_number),
        parts((numbers + numbers_max - 1) / numbers_max),
        count(count) {}
  // The part has the numbers [FirstNumber(part), FirstNumber(part + 1)).
  uint64_t FirstNumber(uint64_t part) const { return numbers * part / parts; }
  uint64_t Begin(uint64_t part) const {
    return std::min(count, FirstNumber(part) * rows_per_number);
  }

  uint64_t rows_per_number;
  uint64_t numbers;
  uint64_t numbers_max;
  uint64_t parts;
  uint64_t count;
};

}  // namespace hotbed

#endif  // HOTBED_CLIENT_BATCH_SPLIT_H_
