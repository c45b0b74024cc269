#include "planner/cost/plain_math.h"

#include <algorithm>
#include <cmath>

namespace hotbed {
namespace {

// ln 2 in two parts: the first has 32 trailing zero bits, so that k times it is exact.
constexpr double kLn2High = 6.93147180369123816490e-01;
constexpr double kLn2Low = 1.90821492927058770002e-10;
constexpr double kSqrtHalf = 0.70710678118654752440;

}  // namespace

// frexp, ldexp and floor are exact, hence the same everywhere.
double PlainLog(double x) {
  int exponent = 0;
  double m = std::frexp(x, &exponent);
  if (m < kSqrtHalf) {
    m *= 2;
    --exponent;
  }
  // ln m = 2 artanh(t), |t| <= 0.1716: the first term left out is below 1e-17.
  const double t = (m - 1) / (m + 1);
  const double t2 = t * t;
  double sum = 0;
  for (int k = 21; k >= 3; k -= 2) sum = (sum + 1.0 / k) * t2;
  return exponent * kLn2High + (exponent * kLn2Low + 2 * t * sum + 2 * t);
}

double PlainExp(double x) {
  if (x < -700) return 0;
  x = std::min(x, 700.0);
  const double k = std::floor(x / (kLn2High + kLn2Low) + 0.5);
  const double r = (x - k * kLn2High) - k * kLn2Low;
  double sum = 1;  // Taylor, |r| <= 0.3466: the first term left out is below 1e-18
  for (int i = 15; i >= 1; --i) sum = 1 + sum * r / i;
  return std::ldexp(sum, static_cast<int>(k));
}

double PlainExpMinusOne(double x) {
  if (std::fabs(x) > 0.1) return PlainExp(x) - 1;
  double sum = 1;
  for (int i = 12; i >= 2; --i) sum = 1 + sum * x / i;
  return sum * x;
}

double PlainPower(double x, double y) { return PlainExp(y * PlainLog(x)); }

}  // namespace hotbed
