// The hot rows of one shard as the kernels see them: plain pointers into the memory of the kernels'
// device.
//
// Slots are row numbers in the slabs. A position has its slot in one of two ways:
//   direct:  slot = position - first_position, for ranges that fit as a whole; 1 byte per row
//   indexed: a hash index of the resident rows, in buckets of one cache line;
//            9 bytes per slot and at most 10 of index
// The owner (server/tiers/memory/hot_tier.h) provides the memory; kernels read and write it. C++17,
// for host and device compilers.
#ifndef HOTBED_SERVER_KERNELS_ROW_TABLE_H_
#define HOTBED_SERVER_KERNELS_ROW_TABLE_H_

#include <cstdint>

#include "row_math/touches.h"
#include "row_math/types.h"

namespace hotbed {

constexpr uint32_t kNoSlot = 0xffffffffu;
constexpr uint32_t kIndexedSlotsMax = 1u << 24;  // three bytes per slot in the index

// Bits of the byte that each slot has.
constexpr uint8_t kRowVisits =
    0x03;  // CLOCK: saturating count of visits since the hand last came by
constexpr uint8_t kRowDirty = 0x04;   // differs from the spill tier
constexpr uint8_t kRowExists = 0x08;  // the slot holds a row
constexpr uint8_t kRowAbsent = 0x10;  // direct only: the row is known to exist in no tier
// Updated or inserted since the bit was cleared: a snapshot transfer has to send the row again.
constexpr uint8_t kRowChanged = 0x20;
// The row is not admitted, and does not exist to readers (AdmissionParams::HasCandidates).
constexpr uint8_t kRowCandidate = 0x40;
// The filter of touches was seen to have all that admission needs of the row's id, and counts no
// more (server/tiers/memory/touch_filter.h).
constexpr uint8_t kRowCounted = 0x80;

// One cache line of the index: up to 15 rows that hash here. `passed` counts the rows that found
// the bucket full and moved to the next one (it saturates and then stays), so that most lookups of
// rows that are not resident end here.
struct IndexBucket {
  uint8_t digests[15];  // 0: free
  uint8_t passed;
  uint8_t slots[15][3];
  uint8_t unused[3];
};
static_assert(sizeof(IndexBucket) == 64, "one cache line");
constexpr uint32_t kBucketRows = 15;

// The first cache line has all that a read of direct rows needs, the first two all that a read of
// indexed rows and an update need. The rest is for first values and for rounding by chance.
struct alignas(64) RowTable {
  uint8_t* weights = nullptr;
  uint8_t* state = nullptr;
  uint8_t* bits = nullptr;
  uint64_t first_position = 0;
  uint32_t slots = 0;          // slots ever used; later ones hold no row
  uint32_t rows = 0;           // slots that hold a row; kept by the kernels
  uint32_t weight_bytes = 0;   // data of a row
  uint32_t weight_stride = 0;  // from row to row: weight_bytes rounded up to 4
  uint32_t state_bytes = 0;    // also the stride
  uint32_t dim = 0;
  uint32_t column_first = 0;
  bool direct = false;
  bool hashed = false;  // position = Mix64(id), else the id
  WeightType weight_type = WeightType::kFp32;

  uint64_t* positions = nullptr;   // of each slot; indexed only
  IndexBucket* buckets = nullptr;  // indexed only
  uint32_t bucket_count = 0;
  AdmissionParams admission;
  // Outlives the table. Shards of one table share it, so that it stays in the cache.
  const OptimizerParams* optimizer = nullptr;
  uint64_t seed = 0;
  InitializerParams initializer;           // of rows that are not admitted, too
  InitializerParams admitted_initializer;  // the value with which training begins

  static constexpr uint32_t kUpdateBytes = 128;
};
static_assert(__builtin_offsetof(RowTable, seed) == RowTable::kUpdateBytes, "two cache lines");

}  // namespace hotbed

#endif  // HOTBED_SERVER_KERNELS_ROW_TABLE_H_
