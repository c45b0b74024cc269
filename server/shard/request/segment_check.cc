#include "server/shard/request/segment_check.h"

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "row_math/position.h"

// One body per vector width, chosen when the program starts.
#if defined(__x86_64__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define HOTBED_EACH_ISA static __attribute__((target_clones("default", "avx2", "avx512f")))
#else
#define HOTBED_EACH_ISA static
#endif

namespace hotbed {
namespace {

constexpr uint32_t kHashedIdsMax =
    1u << 16;  // above, sorting a copy of the ids takes less memory than a table per thread

// Ids seen in the current batch. The next batch has the next number, which forgets them all.
class SeenIds {
 public:
  void Begin(uint32_t count) {
    size_t size = 64;
    while (size < 2 * size_t{count}) size *= 2;
    if (slots_.size() < size) slots_.assign(size, Slot());
    ++batch_;
  }
  // False: the id was there already.
  bool Insert(uint64_t id) {
    const size_t mask = slots_.size() - 1;
    for (size_t i = Mix64(id) & mask;; i = (i + 1) & mask) {
      Slot& slot = slots_[i];
      if (slot.batch != batch_) {
        slot = {id, batch_};
        return true;
      }
      if (slot.id == id) return false;
    }
  }

 private:
  struct Slot {
    uint64_t id = 0;
    uint64_t batch = 0;
  };
  std::vector<Slot> slots_;
  uint64_t batch_ = 0;
};

uint32_t FirstRepeatedBySorting(const uint64_t* ids, uint32_t count) {
  std::vector<std::pair<uint64_t, uint32_t>> sorted(count);
  for (uint32_t i = 0; i < count; ++i) sorted[i] = {ids[i], i};
  std::sort(sorted.begin(), sorted.end());
  uint32_t first = count;
  for (uint32_t i = 1; i < count; ++i) {
    if (sorted[i].first == sorted[i - 1].first) first = std::min(first, sorted[i].second);
  }
  return first;
}

// In all three formats, an exponent of all ones is NaN or infinity. Adding the exponent's lowest
// bit carries into the sign bit for that exponent only. One and, one add and one or per element, so
// that the loop vectorises on every processor (this file is built with -O3).
template <typename Bits, Bits kExponent>
inline __attribute__((always_inline)) bool IsFiniteAs(const uint8_t* gradient, uint32_t dim) {
  constexpr Bits kSign = static_cast<Bits>(Bits{1} << (8 * sizeof(Bits) - 1));
  constexpr Bits kLowest = static_cast<Bits>(kSign - kExponent);
  Bits carried = 0;
  for (uint32_t i = 0; i < dim; ++i) {
    Bits bits;
    std::memcpy(&bits, gradient + i * sizeof(Bits), sizeof(bits));
    carried |= static_cast<Bits>((bits & kExponent) + kLowest);
  }
  return (carried & kSign) == 0;
}

}  // namespace

uint32_t FirstIdOutside(const uint64_t* ids, uint32_t count, const ShardRange& range, bool hashed) {
  const uint64_t first = range.first_position(hashed);
  return FirstIdOutside(ids, count, first, range.last_position(hashed) - first, hashed);
}

uint32_t FirstIdOutside(const uint64_t* ids, uint32_t count, uint64_t first, uint64_t span,
                        bool hashed) {
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

uint32_t FirstRepeatedId(const uint64_t* ids, uint32_t count) {
  if (count > kHashedIdsMax) return FirstRepeatedBySorting(ids, count);
  thread_local SeenIds seen;
  seen.Begin(count);
  for (uint32_t i = 0; i < count; ++i) {
    if (!seen.Insert(ids[i])) return i;
  }
  return count;
}

HOTBED_EACH_ISA bool IsFinite32(const uint8_t* gradient, uint32_t dim) {
  return IsFiniteAs<uint32_t, 0x7f800000u>(gradient, dim);
}
HOTBED_EACH_ISA bool IsFiniteHalf(const uint8_t* gradient, uint32_t dim) {
  return IsFiniteAs<uint16_t, 0x7c00>(gradient, dim);
}
HOTBED_EACH_ISA bool IsFiniteBrain(const uint8_t* gradient, uint32_t dim) {
  return IsFiniteAs<uint16_t, 0x7f80>(gradient, dim);
}

bool IsFinite(const uint8_t* gradient, uint32_t dim, RowType type) {
  switch (type) {
    case RowType::kFp16:
      return IsFiniteHalf(gradient, dim);
    case RowType::kBf16:
      return IsFiniteBrain(gradient, dim);
    default:
      return IsFinite32(gradient, dim);
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
