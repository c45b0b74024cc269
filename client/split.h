// Sorts unique ids by shard, stably: the order of first appearance holds inside a shard. Counting
// sort.
#ifndef HOTBED_CLIENT_SPLIT_H_
#define HOTBED_CLIENT_SPLIT_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "client/shard_locator.h"

namespace hotbed {

// order[begin[s] .. begin[s + 1]) are the indices of the ids that belong to shard s.
struct ShardSplit {
  std::vector<uint32_t> order;
  std::vector<uint32_t> begin;     // shard_count + 1
  std::vector<uint16_t> shard_of;  // scratch

  void Run(absl::Span<const uint64_t> ids, bool hashed, const ShardLocator& locator);
};

// How `count` rows are cut into parts of at most `rows_max`, as evenly as possible. It depends on
// nothing but these two, so that a trainer that repeats a step after a restart cuts it as before
// and its sequence numbers mean the same rows, if message_bytes_max (its own and the servers') is
// what it was.
struct PartCut {
  PartCut(uint64_t count, uint64_t rows_max)
      : parts(count == 0 ? 0 : (count + rows_max - 1) / rows_max), count(count) {}
  uint64_t Begin(uint64_t part) const { return count * part / parts; }

  uint64_t parts;
  uint64_t count;
};

}  // namespace hotbed

#endif  // HOTBED_CLIENT_SPLIT_H_
