// Whole powers by repeated squaring in double precision: exact enough for bias corrections and lazy
// decay, and the same on every machine, unlike those of libm.
#ifndef HOTBED_ROW_MATH_POWERS_H_
#define HOTBED_ROW_MATH_POWERS_H_

#include <cstdint>

#include "row_math/isa.h"

namespace hotbed {
inline namespace HOTBED_ISA {

HOTBED_ROW_FN double WholePower(double base, uint64_t exponent) {
  double result = 1.0;
  for (; exponent > 0; exponent >>= 1) {
    if (exponent & 1) result *= base;
    base *= base;
  }
  return result;
}

// 1 - beta^t, the divisor of Adam's moment after t updates; t counts from 1 (0 is taken as 1).
HOTBED_ROW_FN float BiasCorrection(float beta, uint64_t t) {
  return static_cast<float>(1.0 - WholePower(beta, t > 0 ? t : 1));
}

}  // namespace HOTBED_ISA
}  // namespace hotbed

#endif  // HOTBED_ROW_MATH_POWERS_H_
