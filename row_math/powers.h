// Powers in double precision, the same on every machine, unlike those of libm: whole ones by
// repeated squaring, for bias corrections and lazy decay; others for counts and norms.
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

// Within 2e-15 of the exact values, relative; for exponents between -1000 and 1000, else as there.
HOTBED_ROW_FN double Exp2(double x) {
  const double bounded = x < -1000.0 ? -1000.0 : x > 1000.0 ? 1000.0 : x;
  const auto whole = static_cast<int64_t>(bounded + (bounded < 0.0 ? -0.5 : 0.5));
  const double y = (bounded - static_cast<double>(whole)) * 0.6931471805599453;  // in +-0.35
  double series = 1.0;
  for (int k = 14; k > 0; --k) series = 1.0 + series * y / k;
  const uint64_t bits = static_cast<uint64_t>(whole + 1023) << 52;
  double scale;
  __builtin_memcpy(&scale, &bits, 8);
  return series * scale;
}

// For normal x > 0: x = m * 2^e with m in [sqrt(1/2), sqrt(2)), log m = 2 atanh((m - 1) / (m + 1)).
HOTBED_ROW_FN double Log2(double x) {
  uint64_t bits;
  __builtin_memcpy(&bits, &x, 8);
  const uint64_t shifted = bits - 0x3fe6a09e667f3bcdull;  // sqrt(1/2)
  const int64_t exponent = static_cast<int64_t>(shifted) >> 52;
  bits -= static_cast<uint64_t>(exponent) << 52;
  double m;
  __builtin_memcpy(&m, &bits, 8);
  const double s = (m - 1.0) / (m + 1.0), z = s * s;
  double series = 0.0;
  for (int k = 23; k > 0; k -= 2) series = 1.0 / k + z * series;
  return static_cast<double>(exponent) + s * series * 2.8853900817779268;  // 2 / ln 2
}

// x^y; 0 for an x that is not above 0.
HOTBED_ROW_FN double RealPower(double x, double y) { return x > 0.0 ? Exp2(y * Log2(x)) : 0.0; }

}  // namespace HOTBED_ISA
}  // namespace hotbed

#endif  // HOTBED_ROW_MATH_POWERS_H_
