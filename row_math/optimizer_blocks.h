// Every optimizer's formula for one block of 32 elements: loops around
// row_math/optimizer_elements.h. Weights and gradients are read through their codecs, state is fp32
// (row_math/row_update.h converts other state before and after).
#ifndef HOTBED_ROW_MATH_OPTIMIZER_BLOCKS_H_
#define HOTBED_ROW_MATH_OPTIMIZER_BLOCKS_H_

#include <cstdint>

#include "row_math/half.h"
#include "row_math/isa.h"
#include "row_math/optimizer_elements.h"
#include "row_math/row_blocks.h"
#include "row_math/types.h"

namespace hotbed {
inline namespace HOTBED_ISA {

// w = shrink * w - rate * d
template <typename Weight, typename Gradient>
HOTBED_ROW_FN void ScaledBlock(float rate, float decay, float shrink, uint8_t* w,
                               const uint8_t* g) {
  HOTBED_INDEPENDENT
  for (uint32_t l = 0; l < kLanes; ++l) {
    Weight::Store(w, l,
                  ScaledElement(rate, decay, shrink, Weight::Load(w, l), Gradient::Load(g, l)));
  }
}

// sum[l] += d * d. Without decay the weights are not read: they may still be coming from memory.
template <typename Weight, typename Gradient>
HOTBED_ROW_FN void SquaresBlock(float decay, const uint8_t* w, const uint8_t* g, float* sum) {
  if constexpr (Gradient::kByBlock) {
    float block[kLanes];
    BlockCodec<Gradient>::Load(g, block);
    return SquaresBlock<Weight, Fp32Codec>(decay, w, AsBytes(block), sum);
  }
  if (decay == 0.0f) {
    HOTBED_INDEPENDENT
    for (uint32_t l = 0; l < kLanes; ++l) {
      const float d = Gradient::Load(g, l);
      sum[l] += d * d;
    }
    return;
  }
  HOTBED_INDEPENDENT
  for (uint32_t l = 0; l < kLanes; ++l) {
    const float d = Decayed(Gradient::Load(g, l), Weight::Load(w, l), decay);
    sum[l] += d * d;
  }
}

// Where the same block of a row's weights, state and gradient lies. Vectors that the kind does not
// have are anything.
struct BlockPlaces {
  uint8_t* w;
  uint8_t* first;
  uint8_t* second;
  uint8_t* third;
  const uint8_t* g;
};

template <uint32_t kVectors>
HOTBED_ROW_FN Moved LoadState(const BlockPlaces& at, float w, uint32_t l) {
  return {w, kVectors > 0 ? Fp32Codec::Load(at.first, l) : 0.0f,
          kVectors > 1 ? Fp32Codec::Load(at.second, l) : 0.0f,
          kVectors > 2 ? Fp32Codec::Load(at.third, l) : 0.0f};
}

template <uint32_t kVectors>
HOTBED_ROW_FN void StoreState(const BlockPlaces& at, uint32_t l, const Moved& moved) {
  if constexpr (kVectors > 2) Fp32Codec::Store(at.third, l, moved.third);
  if constexpr (kVectors > 1) Fp32Codec::Store(at.second, l, moved.second);
  if constexpr (kVectors > 0) Fp32Codec::Store(at.first, l, moved.first);
}

template <OptimizerKind kKind, typename Weight, typename Gradient>
HOTBED_ROW_FN void StepBlock(const StepScalars& p, const Measured& row, BlockPlaces at) {
  if constexpr (Gradient::kByBlock) {
    float g[kLanes];
    BlockCodec<Gradient>::Load(at.g, g);
    at.g = AsBytes(g);
    return StepBlock<kKind, Weight, Fp32Codec>(p, row, at);
  } else if constexpr (Weight::kByBlock) {
    float w[kLanes];
    uint8_t* const weights = at.w;
    BlockCodec<Weight>::Load(weights, w);
    at.w = AsBytes(w);
    StepBlock<kKind, Fp32Codec, Gradient>(p, row, at);
    return BlockCodec<Weight>::Store(weights, w);
  }
  constexpr uint32_t kVectors = TraitsOf(kKind).vectors;
  HOTBED_INDEPENDENT
  for (uint32_t l = 0; l < kLanes; ++l) {
    const Moved moved = StepElement<kKind>(
        p, row, LoadState<kVectors>(at, Weight::Load(at.w, l), l), Gradient::Load(at.g, l));
    StoreState<kVectors>(at, l, moved);
    Weight::Store(at.w, l, moved.w);
  }
}

// The direction r of a step of LAMB's kinds; the weights stay.
template <OptimizerKind kKind>
HOTBED_ROW_FN void LambBlock(const StepScalars& p, float scale, const BlockPlaces& at, uint8_t* r) {
  constexpr uint32_t kVectors = TraitsOf(kKind).vectors;
  HOTBED_INDEPENDENT
  for (uint32_t l = 0; l < kLanes; ++l) {
    const Moved moved = LambDirection<kKind>(
        p, scale, LoadState<kVectors>(at, Fp32Codec::Load(at.w, l), l), Fp32Codec::Load(at.g, l));
    StoreState<kVectors>(at, l, moved);
    Fp32Codec::Store(r, l, moved.w);
  }
}

}  // namespace HOTBED_ISA
}  // namespace hotbed

#endif  // HOTBED_ROW_MATH_OPTIMIZER_BLOCKS_H_
