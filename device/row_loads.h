// Elements of rows as lanes load them: one, or four adjacent ones, which is 16 bytes of fp32. They
// are loaded unconverted and become floats at their use: a GPU continues until a loaded value is
// needed, so that many loads are in flight.
#ifndef HOTBED_DEVICE_ROW_LOADS_H_
#define HOTBED_DEVICE_ROW_LOADS_H_

#include <cstdint>

#include "row_math/half.h"
#include "row_math/isa.h"
#include "row_math/types.h"

// Before a loop that a GPU must not unroll, or must unroll.
#if defined(__CUDA_ARCH__)
#define HOTBED_ROLLED _Pragma("unroll 1")
#define HOTBED_UNROLLED _Pragma("unroll")
#else
#define HOTBED_ROLLED
#define HOTBED_UNROLLED
#endif

namespace hotbed {
namespace device {

// Elements of device memory, at a multiple of their size.
template <typename T>
HOTBED_ROW_FN T LoadAligned(const uint8_t* from, uint64_t i) {
  T value;
  const uint8_t* const at = from + sizeof(T) * i;
  __builtin_memcpy(&value, __builtin_assume_aligned(at, sizeof(T)), sizeof(T));
  return value;
}
template <typename T>
HOTBED_ROW_FN void StoreAligned(uint8_t* to, uint64_t i, T value) {
  uint8_t* const at = to + sizeof(T) * i;
  __builtin_memcpy(__builtin_assume_aligned(at, sizeof(T)), &value, sizeof(T));
}

template <uint32_t kWords>
struct alignas(4 * kWords) Words {
  uint32_t of[kWords];
};

// For data that is not read again on the device: its caches evict such data first.
HOTBED_ROW_FN void StoreOnce(uint8_t* to, uint64_t i, const Words<4>& words) {
#if defined(__CUDA_ARCH__)
  __stcs(reinterpret_cast<uint4*>(to) + i,
         make_uint4(words.of[0], words.of[1], words.of[2], words.of[3]));
#else
  StoreAligned(to, i, words);
#endif
}

// kWidth elements, converted.
template <uint32_t kWidth>
struct Elements {
  float of[kWidth];
};

// kWidth unconverted elements of fp32, fp16 or bf16; halves in the first words.
template <uint32_t kWidth>
struct RawElements {
  static_assert(kWidth == 1 || kWidth == 4, "one element, or four");
  uint32_t of[kWidth];
};

// Whether rows of this dim may be read four elements at a time: they begin at multiples of 16 bytes
// or follow each other from such an address.
HOTBED_ROW_FN bool IsInFours(uint32_t dim) { return dim % 4 == 0; }

// Elements [kWidth * i, kWidth * (i + 1)) of a row that is not int8; `type` is the same for all.
template <uint32_t kWidth>
HOTBED_ROW_FN RawElements<kWidth> LoadRaw(RowType type, const uint8_t* from, uint32_t i) {
  RawElements<kWidth> raw;
  if constexpr (kWidth == 4) {
    if (type == RowType::kFp32) {
      const auto words = LoadAligned<Words<4>>(from, i);
      for (uint32_t j = 0; j < 4; ++j) raw.of[j] = words.of[j];
    } else {
      const auto words = LoadAligned<Words<2>>(from, i);
      for (uint32_t j = 0; j < 2; ++j) raw.of[j] = words.of[j];
      // Otherwise they would have to wait for the previous load.
      raw.of[2] = raw.of[3] = 0;
    }
  } else {
    raw.of[0] = type == RowType::kFp32 ? LoadAligned<uint32_t>(from, i)
                                       : uint32_t{LoadAligned<uint16_t>(from, i)};
  }
  return raw;
}

// Element j of the loaded elements.
template <uint32_t kWidth>
HOTBED_ROW_FN float ElementOf(RowType type, const RawElements<kWidth>& raw, uint32_t j) {
  if (type == RowType::kFp32) return FloatFromBits(raw.of[j]);
  const auto half = static_cast<uint16_t>(raw.of[j / 2] >> 16 * (j % 2));
  return type == RowType::kFp16 ? Fp16ToFloat(half) : Bf16ToFloat(half);
}

template <uint32_t kWidth>
HOTBED_ROW_FN Elements<kWidth> ToFloats(RowType type, const RawElements<kWidth>& raw) {
  Elements<kWidth> values;
  for (uint32_t j = 0; j < kWidth; ++j) values.of[j] = ElementOf(type, raw, j);
  return values;
}

// One element. `type` is the same for the whole row.
HOTBED_ROW_FN float LoadElement(RowType type, const uint8_t* from, uint32_t i) {
  return ElementOf(type, LoadRaw<1>(type, from, i), 0);
}

HOTBED_ROW_FN uint16_t HalfOf(RowType type, float value) {
  return type == RowType::kFp16 ? FloatToFp16(value) : FloatToBf16(value);
}
HOTBED_ROW_FN void StoreElement(RowType type, uint8_t* to, uint32_t i, float value) {
  if (type == RowType::kFp32) return StoreAligned<float>(to, i, value);
  StoreAligned<uint16_t>(to, i, HalfOf(type, value));
}

// As LoadRaw. `half_of(j)`: element j as a half, if the type is one.
template <uint32_t kWidth, typename F>
HOTBED_ROW_FN void StoreElements(RowType type, uint8_t* to, uint32_t i,
                                 const Elements<kWidth>& values, F half_of) {
  if constexpr (kWidth == 4) {
    if (type == RowType::kFp32) {
      Words<4> words;
      for (uint32_t j = 0; j < 4; ++j) words.of[j] = FloatBits(values.of[j]);
      return StoreAligned(to, i, words);
    }
    Words<2> words;
    for (uint32_t j = 0; j < 2; ++j) {
      words.of[j] = uint32_t{half_of(2 * j)} | uint32_t{half_of(2 * j + 1)} << 16;
    }
    StoreAligned(to, i, words);
  } else if (type == RowType::kFp32) {
    StoreAligned<float>(to, i, values.of[0]);
  } else {
    StoreAligned<uint16_t>(to, i, half_of(0));
  }
}
template <uint32_t kWidth>
HOTBED_ROW_FN void StoreElements(RowType type, uint8_t* to, uint32_t i,
                                 const Elements<kWidth>& values) {
  StoreElements(type, to, i, values, [&](uint32_t j) { return HalfOf(type, values.of[j]); });
}

// Calls add(j, elements) for rows j < count in order, with elements i as LoadRaw has them; several
// rows are loaded before the first is added. `at(j)`: address of row j. All lanes of a team make
// every call of both.
constexpr uint32_t kRowsAhead = 8;
template <uint32_t kWidth, typename At, typename Add>
HOTBED_ROW_FN void ForRowsAhead(uint32_t count, RowType type, uint32_t i, At at, Add add) {
  RawElements<kWidth> raw[kRowsAhead];
  HOTBED_ROLLED
  for (uint32_t j = 0; j < count; j += kRowsAhead) {
    HOTBED_UNROLLED
    for (uint32_t ahead = 0; ahead < kRowsAhead; ++ahead) {
      if (j + ahead < count) raw[ahead] = LoadRaw<kWidth>(type, at(j + ahead), i);
    }
    HOTBED_UNROLLED
    for (uint32_t ahead = 0; ahead < kRowsAhead; ++ahead) {
      if (j + ahead < count) add(j + ahead, ToFloats(type, raw[ahead]));
    }
  }
}

HOTBED_ROW_FN RowType RowTypeOf(WeightType type) {
  return static_cast<RowType>(static_cast<uint8_t>(type));
}
static_assert(static_cast<uint8_t>(WeightType::kFp16) == static_cast<uint8_t>(RowType::kFp16) &&
                  static_cast<uint8_t>(WeightType::kBf16) == static_cast<uint8_t>(RowType::kBf16),
              "stored types are wire types by the same number");

// Prefetches the cache line at `at`.
HOTBED_ROW_FN void FetchAhead(const void* at) {
#if defined(__CUDA_ARCH__)
  asm volatile("prefetch.global.L2 [%0];" ::"l"(at));
#else
  __builtin_prefetch(at);
#endif
}

}  // namespace device
}  // namespace hotbed

#endif  // HOTBED_DEVICE_ROW_LOADS_H_
