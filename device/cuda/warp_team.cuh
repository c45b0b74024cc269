// The team of device/team.h on a GPU: a tile of kSize threads of one warp, one lane each.
// Blocks have one dimension, a multiple of 32.
#ifndef HOTBED_DEVICE_CUDA_WARP_TEAM_CUH_
#define HOTBED_DEVICE_CUDA_WARP_TEAM_CUH_

#include <cstdint>

#include "device/team.h"
#include "row_math/row_blocks.h"

namespace hotbed {
namespace device {

template <uint32_t kSize>
class WarpTeam {
 public:
  static constexpr uint32_t kLanes = kSize;
  template <typename T>
  struct Values {
    T own;
  };

  __device__ WarpTeam()
      : lane_(threadIdx.x % kSize), shift_(threadIdx.x % 32 - lane_), mask_(kAll << shift_) {}

  template <typename F>
  __device__ __forceinline__ auto Map(F f) const -> Values<decltype(f(0u))> {
    return {f(lane_)};
  }
  template <typename T, typename P>
  __device__ __forceinline__ uint32_t Ballot(const Values<T>& values, P p) const {
    return (__ballot_sync(mask_, p(values.own)) & mask_) >> shift_;
  }
  template <typename T>
  __device__ __forceinline__ T Get(const Values<T>& values, uint32_t lane) const {
    return __shfl_sync(mask_, values.own, static_cast<int>(lane), kSize);
  }
  template <typename T>
  __device__ __forceinline__ T Own(const Values<T>& values, uint32_t) const {
    return values.own;
  }
  template <typename F>
  __device__ __forceinline__ void Strided(uint32_t count, F f) const {
#pragma unroll 1
    for (uint32_t i = lane_; i < count; i += kSize) f(i);
  }
  template <typename Make, typename Use>
  __device__ __forceinline__ void Batched(uint32_t count, Make make, Use use) const {
#pragma unroll 1
    for (uint32_t first = lane_; first < count; first += kBatch * kSize) {
      decltype(make(0u)) made[kBatch];
#pragma unroll
      for (uint32_t j = 0; j < kBatch; ++j) {
        if (first + kSize * j < count) made[j] = make(first + kSize * j);
      }
#pragma unroll
      for (uint32_t j = 0; j < kBatch; ++j) {
        if (first + kSize * j < count) use(first + kSize * j, made[j]);
      }
    }
  }
  template <typename T, typename Make, typename Use>
  __device__ __forceinline__ void Flow(uint32_t count, const Values<T>& first, Make make,
                                       Use use) const {
    T own = first.own;
#pragma unroll 1
    for (uint32_t i = lane_; i < count; i += kSize) {
      if (i >= kSize) own = make(i);
      use(i, own);
    }
  }
  __device__ __forceinline__ uint32_t Least(const Values<uint32_t>& values) const {
    if constexpr (kSize == 32) {
      return __reduce_min_sync(mask_, values.own);
    } else {
      // Votes and reductions are per warp; smaller tiles would run them one after the other.
      uint32_t least = values.own;
#pragma unroll
      for (uint32_t half = kSize / 2; half > 0; half /= 2) {
        least = min(least, __shfl_xor_sync(mask_, least, half, kSize));
      }
      return least;
    }
  }
  template <typename F>
  __device__ __forceinline__ uint32_t Min(uint32_t count, F f) const {
    uint32_t least = 0xffffffffu;
#pragma unroll 1
    for (uint32_t i = lane_; i < count; i += kSize) {
      const uint32_t value = f(i);
      least = value < least ? value : least;
    }
    return Least({least});
  }
  template <typename Make, typename F>
  __device__ __forceinline__ float LaneSum(uint32_t count, Make make, F f) const {
    static_assert(kSize == hotbed::kLanes, "the sum has 32 lanes");
    float sum = 0.0f;
    Batched(count, make, [&](uint32_t, const auto& made) { sum += f(made); });
#pragma unroll
    for (uint32_t half = kSize / 2; half > 0; half /= 2) {
      sum += __shfl_down_sync(mask_, sum, half, kSize);
    }
    return __shfl_sync(mask_, sum, 0, kSize);
  }
  template <typename F>
  __device__ __forceinline__ void Once(F f) const {
    if (lane_ == 0) f();
  }
  __device__ __forceinline__ void Sync() const { __syncwarp(mask_); }
  __device__ __forceinline__ void Or(uint8_t* byte, uint8_t bits) const {
    atomicOr(WordOf(byte), uint32_t{bits} << ShiftOf(byte));
  }
  __device__ __forceinline__ void And(uint8_t* byte, uint8_t bits) const {
    atomicAnd(WordOf(byte), ~(uint32_t{static_cast<uint8_t>(~bits)} << ShiftOf(byte)));
  }

 private:
  static constexpr uint32_t kAll = kSize == 32 ? 0xffffffffu : (1u << kSize % 32) - 1;

  __device__ __forceinline__ static uint32_t* WordOf(uint8_t* byte) {
    return reinterpret_cast<uint32_t*>(reinterpret_cast<uintptr_t>(byte) & ~uintptr_t{3});
  }
  __device__ __forceinline__ static uint32_t ShiftOf(const uint8_t* byte) {
    return 8 * static_cast<uint32_t>(reinterpret_cast<uintptr_t>(byte) & 3);
  }

  const uint32_t lane_;
  const uint32_t shift_;
  const uint32_t mask_;
};

}  // namespace device
}  // namespace hotbed

#endif  // HOTBED_DEVICE_CUDA_WARP_TEAM_CUH_
