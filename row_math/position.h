// The position of an id in its table's ordering, by which ranges and plans cut a table.
//
// Bounded tables: the id itself. Hashed tables: Mix64(id), the splitmix64 finaliser, a bijection of
// the 64-bit integers; its constants are part of the on-disk and the wire format and never change.
// The top 16 bits of a mixed position are its bucket: plans cut hashed tables along buckets.
#ifndef HOTBED_ROW_MATH_POSITION_H_
#define HOTBED_ROW_MATH_POSITION_H_

#include <cstdint>

#include "row_math/types.h"

namespace hotbed {

constexpr uint32_t kBuckets = 1u << 16;

HOTBED_HD constexpr uint64_t Mix64(uint64_t id) {
  uint64_t x = id + 0x9e3779b97f4a7c15ull;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
  return x ^ (x >> 31);
}

// The inverse of Mix64, for listing a table by position.
HOTBED_HD constexpr uint64_t Unmix64(uint64_t position) {
  uint64_t x = position ^ (position >> 31) ^ (position >> 62);
  x *= 0x319642b2d24d8ec3ull;
  x = (x ^ (x >> 27) ^ (x >> 54)) * 0x96de1b173f119089ull;
  x = x ^ (x >> 30) ^ (x >> 60);
  return x - 0x9e3779b97f4a7c15ull;
}

HOTBED_HD constexpr uint32_t BucketOf(uint64_t position) {
  return static_cast<uint32_t>(position >> 48);
}

}  // namespace hotbed

#endif  // HOTBED_ROW_MATH_POSITION_H_
