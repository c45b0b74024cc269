#include "planner/cost/access_curve.h"

#include <algorithm>
#include <cmath>

#include "planner/cost/plain_math.h"

namespace hotbed {
namespace {

constexpr uint64_t kDirectMax = 16;  // ranks up to here are added one by one

// The integral of x^-s over [a, b]: the formula through expm1 holds at s = 1 too.
double PowerIntegral(double a, double b, double s) {
  const double log_ratio = PlainLog(b / a);
  const double t = (1 - s) * log_ratio;
  const double growth = std::fabs(t) < 1e-12 ? 1 : PlainExpMinusOne(t) / t;
  return PlainPower(a, 1 - s) * log_ratio * growth;
}

// Sum over ranks a+1 .. b, a >= kDirectMax (Euler and Maclaurin).
double TailSum(double a, double b, double s) {
  const double fa = PlainPower(a, -s);
  const double fb = PlainPower(b, -s);
  const double first = -s * (fb / b - fa / a);
  const double third = -s * (s + 1) * (s + 2) * (fb / (b * b * b) - fa / (a * a * a));
  return PowerIntegral(a, b, s) + (fb - fa) / 2 + first / 12 - third / 720;
}

std::vector<Stratum> ZipfStrata(uint64_t rows, double s) {
  std::vector<Stratum> strata;
  double sum = 0;
  for (uint64_t first = 0; first < rows;) {
    const uint64_t doubled = first > (uint64_t{1} << 62) ? rows : std::max<uint64_t>(1, first * 2);
    const uint64_t limit = std::min(rows, doubled);
    strata.push_back({first, limit, HarmonicSum(first + 1, limit, s)});
    sum += strata.back().mass;
    first = limit;
  }
  for (Stratum& stratum : strata) stratum.mass /= sum;
  return strata;
}

// floor(fraction * rows), at least 1 row and at most all: the product of doubles may round above.
uint64_t RankOf(double fraction, uint64_t rows) {
  const double rank = std::floor(fraction * static_cast<double>(rows));
  if (rank >= static_cast<double>(rows)) return rows;
  return std::max<uint64_t>(1, static_cast<uint64_t>(rank));
}

std::vector<Stratum> HistogramStrata(const InputTable& table) {
  std::vector<Stratum> strata;
  uint64_t first = 0;
  double before = 0;
  const auto add = [&](uint64_t limit, double accesses) {
    const double mass = std::max(0.0, accesses - before);
    before = std::max(before, accesses);
    // Two points may fall on one row: their accesses are its.
    if (limit > first) {
      strata.push_back({first, limit, mass});
    } else if (!strata.empty()) {
      strata.back().mass += mass;
    }
    first = std::max(first, limit);
  };
  for (const HotnessPoint& point : table.hotness) {
    add(RankOf(point.rows, table.rows), std::min(1.0, point.accesses));
  }
  add(table.rows, 1.0);
  return strata;
}

}  // namespace

double HarmonicSum(uint64_t first, uint64_t last, double s) {
  double sum = 0;
  for (uint64_t rank = first; rank <= std::min(last, kDirectMax); ++rank) {
    sum += PlainPower(static_cast<double>(rank), -s);
  }
  const uint64_t before = std::max(kDirectMax, first - 1);
  if (last <= before) return sum;
  return sum + TailSum(static_cast<double>(before), static_cast<double>(last), s);
}

std::vector<Stratum> AccessStrata(const InputTable& table) {
  if (!table.hotness.empty()) return HistogramStrata(table);
  if (table.zipf.has_value() && *table.zipf > 0) return ZipfStrata(table.rows, *table.zipf);
  return {{0, table.rows, 1.0}};
}

bool IsSkewed(const std::vector<Stratum>& strata) { return strata.size() > 1; }

double UniqueRows(const Stratum& stratum, double reads) {
  const double rows = static_cast<double>(stratum.limit - stratum.first);
  return -rows * PlainExpMinusOne(-reads * stratum.mass / rows);
}

}  // namespace hotbed
