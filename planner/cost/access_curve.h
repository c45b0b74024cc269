// The distribution of a table's accesses over its rows by rank, as strata of equally hot rows.
// Plain values and pure functions, safe from any thread.
//
// Sources of the masses:
//   neither zipf nor hotness: one stratum of all rows;
//   hotness: a stratum between each two points (piecewise linear), all rows from the last point on;
//   zipf s: the rows of rank (2^j, 2^(j+1)] are one stratum, whose mass is exact:
//     (H(b, s) - H(a, s)) / H(rows, s), H(n, s) = 1 + 2^-s + .. + n^-s, added up to rank 16 and by
//     Euler and Maclaurin's formula with three corrections behind it. Error of H below 3e-9
//     relative for 0 < s <= 4.
// Within a stratum, accesses count as even. For a Zipf law that understates the accesses to the
// hottest x rows by at most 9 % of one stratum's mass, below 1.5 % of all for 1,000 rows or more
// and s <= 1.2 (tests/planner/cost_model_test.cc).
#ifndef HOTBED_PLANNER_COST_ACCESS_CURVE_H_
#define HOTBED_PLANNER_COST_ACCESS_CURVE_H_

#include <cstdint>
#include <vector>

#include "planner/model/planner_input.h"

namespace hotbed {

// Rows of rank first .. limit - 1 (rank 0 is the hottest).
struct Stratum {
  uint64_t first = 0;
  uint64_t limit = 0;
  double mass = 0;  // of all accesses; all strata together 1
};

// first^-s + .. + last^-s; 0 when last < first; first >= 1.
double HarmonicSum(uint64_t first, uint64_t last, double s);

// The table's strata, hottest first; at least one, none empty.
std::vector<Stratum> AccessStrata(const InputTable& table);

// Whether the rows differ in heat at all.
bool IsSkewed(const std::vector<Stratum>& strata);

// The expected number of distinct rows of the stratum in a batch of `reads` independent draws,
// since the client removes duplicates before a request: rows * (1 - e^(-reads * mass / rows)),
// Poisson's limit.
double UniqueRows(const Stratum& stratum, double reads);

}  // namespace hotbed

#endif  // HOTBED_PLANNER_COST_ACCESS_CURVE_H_
