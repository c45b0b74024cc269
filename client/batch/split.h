// Sorts unique ids by shard, stably: the order of first appearance holds inside a shard. Counting
// sort.
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

// Rows of one shard and step that one sequence number stands for, in the order of the split. A
// function of the shard's columns alone, so that the number of a row is the same however the step
// is cut: a trainer that repeats a step under another message_bytes_max (its own or the servers')
// goes on where the shard is. The smallest message has room for so many rows of any width.
constexpr uint64_t RowsPerNumber(uint32_t columns) { return columns <= 126 ? 8 : 1; }

// How `count` rows are cut into parts of at most `rows_max`, as evenly as whole numbers of
// `rows_per_number` rows (at most rows_max) allow.
struct PartCut {
  PartCut(uint64_t count, uint64_t rows_max, uint64_t rows_per_number)
      : rows_per_number(rows_per_number),
        numbers((count + rows_per_number - 1) / rows_per_number),
        numbers_max(rows_max / rows_per_number),
        parts((numbers + numbers_max - 1) / numbers_max),
        count(count) {}
  // Numbers [FirstNumber(part), FirstNumber(part + 1)) are the part's.
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
