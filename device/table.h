// The rows of one shard in device memory, as plain values: the format of a row, and the addresses
// of the rows. Passed to kernels by value.
//
// A slot is a row's number in the slabs of its table; a row number is a slot plus the table's
// row_base, unique among all rows of a device. A position has its slot in one of two ways:
//   direct:   slot = position - first_position, for ranges that fit as a whole
//   bucketed: the position's hash names one bucket of 64 slots, and the row is there or nowhere. So
//     a look-up costs the same at any load, and a full bucket gives up a victim for each row that
//     comes in (device/buckets.h). Entry e of bucket b is slot 64 * b + e.
// In addition to its data a slot has a digest, a byte of bits and, if bucketed, its position: 10
// bytes and a 64th.
#ifndef HOTBED_DEVICE_TABLE_H_
#define HOTBED_DEVICE_TABLE_H_

#include <cstdint>

#include "row_math/types.h"

namespace hotbed {
namespace device {

constexpr uint32_t kNoRow = 0xffffffffu;   // of slots and of row numbers
constexpr uint32_t kRowsMax = 0x7fffffff;  // row numbers of a device
constexpr uint32_t kBucketSlots = 64;

// Bits of the byte that each slot has. Visits are counted 0, 1, 2 as 00, 01, 11, so that teams can
// count by setting bits.
constexpr uint8_t kVisitedOnce = 0x01;
constexpr uint8_t kVisitedTwice = 0x03;
constexpr uint8_t kVisits = 0x03;
constexpr uint8_t kDirty = 0x04;   // differs from the tier below
constexpr uint8_t kExists = 0x08;  // the slot holds a row
constexpr uint8_t kHeld = 0x10;    // inserted or found by the current insert: never a victim

struct Bucket {
  uint8_t digests[kBucketSlots];  // 0: free
  uint8_t bits[kBucketSlots];
};
static_assert(sizeof(Bucket) == 128,
              "two halves of a cache line: what is compared, what is written");

struct RowShape {
  uint64_t seed = 0;
  uint32_t dim = 0;
  uint32_t column_first = 0;
  bool hashed = false;  // position = Mix64(id), else the id
  WeightType weight_type = WeightType::kFp32;
  OptimizerParams optimizer;
  InitializerParams initializer;

  // Bytes of a row's data, and from row to row: a multiple of 16, for loads of 16 bytes.
  HOTBED_HD constexpr uint32_t weight_bytes() const { return BytesPerWeight(weight_type) * dim; }
  HOTBED_HD constexpr uint32_t state_bytes() const { return StateBytes(optimizer, dim); }
  HOTBED_HD constexpr uint32_t weight_stride() const { return (weight_bytes() + 15u) & ~15u; }
  HOTBED_HD constexpr uint32_t state_stride() const { return (state_bytes() + 15u) & ~15u; }
  // As the tiers below store it: weights, then state.
  HOTBED_HD constexpr uint32_t stored_bytes() const { return weight_bytes() + state_bytes(); }
};

struct Table {
  RowShape shape;
  bool direct = false;
  uint64_t first_position = 0;  // direct only
  uint32_t slots = 0;
  uint32_t row_base = 0;  // number of the row in slot 0
  uint32_t bucket_count = 0;
  uint32_t bucket_base = 0;  // number of bucket 0 among all buckets of the device
  uint8_t* weights = nullptr;
  uint8_t* state = nullptr;
  Bucket* buckets = nullptr;
  uint64_t* positions = nullptr;  // of each slot; bucketed only
  uint8_t* hands = nullptr;       // of each bucket's clock; bucketed only

  HOTBED_HD uint8_t* WeightsAt(uint32_t slot) const {
    return weights + uint64_t{shape.weight_stride()} * slot;
  }
  HOTBED_HD uint8_t* StateAt(uint32_t slot) const {
    return state + uint64_t{shape.state_stride()} * slot;
  }
  HOTBED_HD uint8_t* BitsAt(uint32_t slot) const {
    return &buckets[slot / kBucketSlots].bits[slot % kBucketSlots];
  }
  HOTBED_HD uint64_t PositionAt(uint32_t slot) const {
    return direct ? first_position + slot : positions[slot];
  }
};

}  // namespace device
}  // namespace hotbed

#endif  // HOTBED_DEVICE_TABLE_H_
