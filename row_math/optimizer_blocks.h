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

template <typename Weight, typename Gradient>
HOTBED_ROW_FN void AdagradBlock(const StepScalars& p, uint8_t* w, uint8_t* s, const uint8_t* g) {
  HOTBED_INDEPENDENT
  for (uint32_t l = 0; l < kLanes; ++l) {
    const Moved moved =
        AdagradElement(p, Weight::Load(w, l), Fp32Codec::Load(s, l), Gradient::Load(g, l));
    Fp32Codec::Store(s, l, moved.first);
    Weight::Store(w, l, moved.w);
  }
}

template <typename Weight, typename Gradient>
HOTBED_ROW_FN void AdamBlock(const StepScalars& p, uint8_t* w, uint8_t* m, uint8_t* v,
                             const uint8_t* g) {
  HOTBED_INDEPENDENT
  for (uint32_t l = 0; l < kLanes; ++l) {
    const Moved moved = AdamElement(p, Weight::Load(w, l), Fp32Codec::Load(m, l),
                                    Fp32Codec::Load(v, l), Gradient::Load(g, l));
    Fp32Codec::Store(m, l, moved.first);
    Fp32Codec::Store(v, l, moved.second);
    Weight::Store(w, l, moved.w);
  }
}

// The kinds below work on fp32 alone.

HOTBED_ROW_FN void MomentumBlock(const StepScalars& p, uint8_t* w, uint8_t* m, const uint8_t* g) {
  HOTBED_INDEPENDENT
  for (uint32_t l = 0; l < kLanes; ++l) {
    const Moved moved =
        MomentumElement(p, Fp32Codec::Load(w, l), Fp32Codec::Load(m, l), Fp32Codec::Load(g, l));
    Fp32Codec::Store(m, l, moved.first);
    Fp32Codec::Store(w, l, moved.w);
  }
}

HOTBED_ROW_FN void RmsPropBlock(const StepScalars& p, uint8_t* w, uint8_t* v, const uint8_t* g) {
  HOTBED_INDEPENDENT
  for (uint32_t l = 0; l < kLanes; ++l) {
    const Moved moved =
        RmsPropElement(p, Fp32Codec::Load(w, l), Fp32Codec::Load(v, l), Fp32Codec::Load(g, l));
    Fp32Codec::Store(v, l, moved.first);
    Fp32Codec::Store(w, l, moved.w);
  }
}

HOTBED_ROW_FN void LionBlock(const StepScalars& p, uint8_t* w, uint8_t* m, const uint8_t* g) {
  HOTBED_INDEPENDENT
  for (uint32_t l = 0; l < kLanes; ++l) {
    const Moved moved =
        LionElement(p, Fp32Codec::Load(w, l), Fp32Codec::Load(m, l), Fp32Codec::Load(g, l));
    Fp32Codec::Store(m, l, moved.first);
    Fp32Codec::Store(w, l, moved.w);
  }
}

HOTBED_ROW_FN void AdadeltaBlock(const StepScalars& p, uint8_t* w, uint8_t* v, uint8_t* u,
                                 const uint8_t* g) {
  HOTBED_INDEPENDENT
  for (uint32_t l = 0; l < kLanes; ++l) {
    const Moved moved = AdadeltaElement(p, Fp32Codec::Load(w, l), Fp32Codec::Load(v, l),
                                        Fp32Codec::Load(u, l), Fp32Codec::Load(g, l));
    Fp32Codec::Store(v, l, moved.first);
    Fp32Codec::Store(u, l, moved.second);
    Fp32Codec::Store(w, l, moved.w);
  }
}

HOTBED_ROW_FN void PartialAdamBlock(const StepScalars& p, float rate, uint8_t* w, uint8_t* m,
                                    const uint8_t* g) {
  HOTBED_INDEPENDENT
  for (uint32_t l = 0; l < kLanes; ++l) {
    const Moved moved = PartialAdamElement(p, rate, Fp32Codec::Load(w, l), Fp32Codec::Load(m, l),
                                           Fp32Codec::Load(g, l));
    Fp32Codec::Store(m, l, moved.first);
    Fp32Codec::Store(w, l, moved.w);
  }
}

// The direction r of a LAMB step; the weights stay.
HOTBED_ROW_FN void LambBlock(const StepScalars& p, const uint8_t* w, uint8_t* m, uint8_t* v,
                             const uint8_t* g, uint8_t* r) {
  HOTBED_INDEPENDENT
  for (uint32_t l = 0; l < kLanes; ++l) {
    const Moved moved = LambElement(p, Fp32Codec::Load(w, l), Fp32Codec::Load(m, l),
                                    Fp32Codec::Load(v, l), Fp32Codec::Load(g, l));
    Fp32Codec::Store(m, l, moved.first);
    Fp32Codec::Store(v, l, moved.second);
    Fp32Codec::Store(r, l, moved.w);
  }
}

HOTBED_ROW_FN void PartialLambBlock(const StepScalars& p, float scale, const uint8_t* w, uint8_t* m,
                                    const uint8_t* g, uint8_t* r) {
  HOTBED_INDEPENDENT
  for (uint32_t l = 0; l < kLanes; ++l) {
    const Moved moved = PartialLambElement(p, scale, Fp32Codec::Load(w, l), Fp32Codec::Load(m, l),
                                           Fp32Codec::Load(g, l));
    Fp32Codec::Store(m, l, moved.first);
    Fp32Codec::Store(r, l, moved.w);
  }
}

HOTBED_ROW_FN void LarsBlock(const StepScalars& p, float rate, uint8_t* w, uint8_t* m,
                             const uint8_t* g) {
  HOTBED_INDEPENDENT
  for (uint32_t l = 0; l < kLanes; ++l) {
    const Moved moved =
        LarsElement(p, rate, Fp32Codec::Load(w, l), Fp32Codec::Load(m, l), Fp32Codec::Load(g, l));
    Fp32Codec::Store(m, l, moved.first);
    Fp32Codec::Store(w, l, moved.w);
  }
}

// lr > 0.
HOTBED_ROW_FN void FtrlBlock(const StepScalars& p, uint8_t* w, uint8_t* z, uint8_t* n,
                             const uint8_t* g) {
  HOTBED_INDEPENDENT
  for (uint32_t l = 0; l < kLanes; ++l) {
    const Moved moved = FtrlElement(p, Fp32Codec::Load(w, l), Fp32Codec::Load(z, l),
                                    Fp32Codec::Load(n, l), Fp32Codec::Load(g, l));
    Fp32Codec::Store(n, l, moved.second);
    Fp32Codec::Store(z, l, moved.first);
    Fp32Codec::Store(w, l, moved.w);
  }
}

}  // namespace HOTBED_ISA
}  // namespace hotbed

#endif  // HOTBED_ROW_MATH_OPTIMIZER_BLOCKS_H_
