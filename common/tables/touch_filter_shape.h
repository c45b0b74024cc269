// The counting Bloom filter of a table that admits its rows by one (AdmitBy::kBloom): its size, and
// the place of an id in it.
//
// The filter is a sequence of blocks of one cache line. Each of the 2^16 buckets of positions has
// the same number of them, so the blocks of a shard are those of its range: they are cut, merged
// and moved with it, and two shards share none. An id has its counters in one block. A touch raises
// the lowest of them alone (conservative update), so the lowest is never below the touches of the
// id, up to the largest value.
//
// How blocks are saved, in pieces of any number, little-endian:
//   u32 blocks per bucket, u32 probes, u32 bits of a counter, u32 count of blocks, then for each
//   block that has counts: u32 number, counted over the whole table; 64 bytes, low bits first
#ifndef HOTBED_COMMON_TABLES_TOUCH_FILTER_SHAPE_H_
#define HOTBED_COMMON_TABLES_TOUCH_FILTER_SHAPE_H_

#include <cstdint>

#include "common/tables/table_spec.h"
#include "row_math/position.h"

namespace hotbed {

constexpr uint32_t kFilterBlockBytes = 64;
constexpr uint32_t kFilterProbesMax = 8;
constexpr uint32_t kFilterAfterMax = 255;  // touches that a counter can hold
constexpr uint32_t kFilterBlocksPerBucketMax = 1024;
constexpr float kFalsePositivesMin = 1e-6f;
constexpr float kFalsePositivesMax = 0.5f;
// The counts of a shard travel as one message when it moves.
constexpr uint64_t kFilterShardBytesMax = 64ull << 20;

struct TouchFilterShape {
  uint32_t blocks_per_bucket = 0;  // 0: there is no filter, or none is large enough
  uint32_t probes = 0;             // counters of an id, not always different ones
  uint32_t counter_bits = 0;       // 4 or 8

  uint32_t counters_per_block() const { return 8 * kFilterBlockBytes / counter_bits; }
  uint32_t counter_max() const { return (1u << counter_bits) - 1; }
  uint64_t Blocks(uint64_t buckets) const { return buckets * blocks_per_bucket; }
  uint64_t Bytes(uint64_t buckets) const { return Blocks(buckets) * kFilterBlockBytes; }
  // Counted over the whole table.
  uint32_t BlockOf(uint64_t position) const {
    constexpr uint32_t kBelow = 48;  // bits of a position within its bucket
    const uint64_t within = (position >> (kBelow - 32)) & 0xffffffffull;
    return static_cast<uint32_t>((position >> kBelow) * blocks_per_bucket +
                                 (within * blocks_per_bucket >> 32));
  }
  // Each counter of the id takes the next bits of it, seven or six.
  static uint64_t ProbesOf(uint64_t position) { return Mix64(position ^ 0x746f756368657321ull); }

  friend bool operator==(const TouchFilterShape&, const TouchFilterShape&) = default;
};

// The smallest filter that keeps the table's promise (AdmissionParams::false_positives).
TouchFilterShape TouchFilterShapeOf(const TableSpec& spec);

// The part of ids touched fewer than `after` times that is admitted all the same, after `ids` ids
// were touched `after` times each. At most 1.
double FalsePositives(const TouchFilterShape& shape, double ids);

}  // namespace hotbed

#endif  // HOTBED_COMMON_TABLES_TOUCH_FILTER_SHAPE_H_
