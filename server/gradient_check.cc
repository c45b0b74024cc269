#include "server/gradient_check.h"

#include <cstring>

#include "row_math/position.h"

namespace hotbed {
namespace {

constexpr uint32_t kBlock = 16;

// An exponent of all ones is NaN or infinity, in each of the three formats. Blocks of a constant
// length vectorise.
template <typename Bits, Bits kExponent>
bool IsFiniteAs(const uint8_t* gradient, uint32_t dim) {
  uint32_t i = 0;
  Bits bad = 0;
  for (; i + kBlock <= dim; i += kBlock) {
    Bits block[kBlock];
    std::memcpy(block, gradient + i * sizeof(Bits), sizeof(block));
    Bits found[kBlock];
    for (uint32_t j = 0; j < kBlock; ++j) {
      found[j] = (block[j] & kExponent) == kExponent ? Bits{1} : Bits{0};
    }
    for (uint32_t j = 0; j < kBlock; ++j) bad |= found[j];
  }
  for (; i < dim; ++i) {
    Bits bits;
    std::memcpy(&bits, gradient + i * sizeof(Bits), sizeof(bits));
    bad |= (bits & kExponent) == kExponent ? Bits{1} : Bits{0};
  }
  return bad == 0;
}

}  // namespace

uint32_t FirstIdOutside(const uint64_t* ids, uint32_t count, const ShardRange& range, bool hashed) {
  const uint64_t first = range.first_position(hashed);
  const uint64_t span = range.last_position(hashed) - first;
  if (hashed && span == UINT64_MAX) return count;
  bool outside = false;
  if (hashed) {
    for (uint32_t i = 0; i < count; ++i) outside |= Mix64(ids[i]) - first > span;
  } else {
    for (uint32_t i = 0; i < count; ++i) outside |= ids[i] - first > span;
  }
  if (!outside) return count;
  for (uint32_t i = 0;; ++i) {
    if ((hashed ? Mix64(ids[i]) : ids[i]) - first > span) return i;
  }
}

bool IsFinite(const uint8_t* gradient, uint32_t dim, RowType type) {
  switch (type) {
    case RowType::kFp16:
      return IsFiniteAs<uint16_t, 0x7c00>(gradient, dim);
    case RowType::kBf16:
      return IsFiniteAs<uint16_t, 0x7f80>(gradient, dim);
    default:
      return IsFiniteAs<uint32_t, 0x7f800000u>(gradient, dim);
  }
}

uint32_t FirstNotFinite(const uint8_t* const* gradients, uint32_t count, uint32_t dim,
                        RowType type) {
  for (uint32_t i = 0; i < count; ++i) {
    if (!IsFinite(gradients[i], dim, type)) return i;
  }
  return count;
}

}  // namespace hotbed
