// Loops over the lanes of a warp, for the functions of operations. Registers of up to 32 bits lie
// in words with zeros above; values are taken out of them by type.
#ifndef HOTBED_TESTS_DEVICE_PTX_PTX_LANES_H_
#define HOTBED_TESTS_DEVICE_PTX_PTX_LANES_H_

#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

#include "tests/device/ptx/ptx_warp.h"

namespace hotbed {
namespace device {

template <typename T>
using LaneBits = std::conditional_t<sizeof(T) == 8, uint64_t, uint32_t>;

template <typename T>
T FromBits(LaneBits<T> bits) {
  if constexpr (std::is_floating_point_v<T>) {
    T value;
    std::memcpy(&value, &bits, sizeof(value));
    return value;
  } else {
    return static_cast<T>(bits);
  }
}

template <typename T>
LaneBits<T> ToBits(T value) {
  if constexpr (std::is_floating_point_v<T>) {
    LaneBits<T> bits;
    std::memcpy(&bits, &value, sizeof(bits));
    return bits;
  } else {
    return static_cast<LaneBits<T>>(static_cast<std::make_unsigned_t<T>>(value));
  }
}

// A GPU's arithmetic makes one NaN.
inline float OneNan(float value) { return value == value ? value : FromBits<float>(0x7fffffffu); }
inline double OneNan(double value) {
  return value == value ? value : FromBits<double>(0xfff8000000000000ull);
}

template <typename F>
void ForLanes(uint32_t lanes, F f) {
  if (lanes == 0xffffffffu) {
    for (uint32_t lane = 0; lane < kWarpLanes; ++lane) f(lane);
    return;
  }
  for (; lanes != 0; lanes &= lanes - 1) f(static_cast<uint32_t>(__builtin_ctz(lanes)));
}

template <typename T>
constexpr char KindOf() {
  return sizeof(T) == 8 ? 'd' : 'w';
}

// Shapes as texts of their own, by the widths of what is written and read.
template <typename To, typename From>
constexpr const char* UnaryShape() {
  return sizeof(To) == 8 ? (sizeof(From) == 8 ? "d=d" : "d=w") : sizeof(From) == 8 ? "w=d" : "w=w";
}

// F::Do(a), F::Do(a, b) or F::Do(a, b, c) of each lane.
template <typename To, typename From, typename F>
void Unary(PtxWarp* warp, const PtxInstruction& in, uint32_t lanes) {
  auto* const to = warp->Lanes<LaneBits<To>>(in.to[0]);
  const auto* const a = warp->Lanes<LaneBits<From>>(in.from[0]);
  ForLanes(lanes, [&](uint32_t l) { to[l] = ToBits<To>(F::Do(FromBits<From>(a[l]))); });
}
template <typename To, typename A, typename B, typename F>
void Binary(PtxWarp* warp, const PtxInstruction& in, uint32_t lanes) {
  auto* const to = warp->Lanes<LaneBits<To>>(in.to[0]);
  const auto* const a = warp->Lanes<LaneBits<A>>(in.from[0]);
  const auto* const b = warp->Lanes<LaneBits<B>>(in.from[1]);
  ForLanes(lanes,
           [&](uint32_t l) { to[l] = ToBits<To>(F::Do(FromBits<A>(a[l]), FromBits<B>(b[l]))); });
}
template <typename To, typename A, typename C, typename F>
void Ternary(PtxWarp* warp, const PtxInstruction& in, uint32_t lanes) {
  auto* const to = warp->Lanes<LaneBits<To>>(in.to[0]);
  const auto* const a = warp->Lanes<LaneBits<A>>(in.from[0]);
  const auto* const b = warp->Lanes<LaneBits<A>>(in.from[1]);
  const auto* const c = warp->Lanes<LaneBits<C>>(in.from[2]);
  ForLanes(lanes, [&](uint32_t l) {
    to[l] = ToBits<To>(F::Do(FromBits<A>(a[l]), FromBits<A>(b[l]), FromBits<C>(c[l])));
  });
}
// A predicate of each lane.
template <typename T, typename F>
void Compare(PtxWarp* warp, const PtxInstruction& in, uint32_t lanes) {
  const auto* const a = warp->Lanes<LaneBits<T>>(in.from[0]);
  const auto* const b = warp->Lanes<LaneBits<T>>(in.from[1]);
  uint32_t holds = 0;
  ForLanes(lanes, [&](uint32_t l) {
    holds |= uint32_t{F::Do(FromBits<T>(a[l]), FromBits<T>(b[l]))} << l;
  });
  uint32_t& to = warp->Mask(in.to[0]);
  to = (to & ~lanes) | holds;
}

template <typename T>
constexpr const char* CompareShape() {
  return sizeof(T) == 8 ? "p=dd" : "p=ww";
}

}  // namespace device
}  // namespace hotbed

#endif  // HOTBED_TESTS_DEVICE_PTX_PTX_LANES_H_
