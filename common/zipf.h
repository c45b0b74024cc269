// Ranks 0..n-1 with P(rank) proportional to 1 / (rank + 1)^exponent: the traffic of embedding
// tables. No table of size n is built: rejection-inversion (Hoermann and Derflinger, 1996),
// about 1.1 draws per sample. Thread-safe once built.
#ifndef HOTBED_COMMON_ZIPF_H_
#define HOTBED_COMMON_ZIPF_H_

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "common/random.h"

namespace hotbed {

class ZipfSampler {
 public:
  // exponent >= 0 (0: uniform), n >= 1.
  ZipfSampler(double exponent, uint64_t n)
      : exponent_(exponent),
        n_(n),
        integral_first_(Integral(1.5) - 1.0),
        integral_last_(Integral(static_cast<double>(n) + 0.5)),
        shortcut_(2.0 - IntegralInverse(Integral(2.5) - Density(2.0))) {}

  uint64_t Sample(Random& random) const {
    while (true) {
      const double u = integral_last_ + random.Double() * (integral_first_ - integral_last_);
      const double x = IntegralInverse(u);
      const double k = std::clamp(std::floor(x + 0.5), 1.0, static_cast<double>(n_));
      if (k - x <= shortcut_ || u >= Integral(k + 0.5) - Density(k)) {
        return std::min(static_cast<uint64_t>(k) - 1, n_ - 1);
      }
    }
  }

 private:
  double Density(double x) const { return std::exp(-exponent_ * std::log(x)); }

  // The integral of the density from 1 to x, and its inverse; both are continuous in the exponent
  // at 1.
  double Integral(double x) const {
    const double log_x = std::log(x);
    const double t = (1.0 - exponent_) * log_x;
    return (std::fabs(t) > 1e-8 ? std::expm1(t) / t : 1.0 + t / 2) * log_x;
  }
  double IntegralInverse(double y) const {
    const double t = std::max(y * (1.0 - exponent_), -1.0);
    return std::exp((std::fabs(t) > 1e-8 ? std::log1p(t) / t : 1.0 - t / 2) * y);
  }

  double exponent_;
  uint64_t n_;
  double integral_first_;
  double integral_last_;
  double shortcut_;
};

}  // namespace hotbed

#endif  // HOTBED_COMMON_ZIPF_H_
