// Cuts a new table into shards for the `cost` strategy. Pure functions.
//
// n_b is the number of shards by bytes (planner/model/refine.h). n_t is the number that gives each
// shard at most 1 / kPartsOfFair of a server's fair share of all time (the sum over tables divided
// by usable servers); at least 4 for a skewed table above 1 MiB. A table without skew, or a hashed
// one (whose rows spread evenly over the buckets), is cut into max(n_b, n_t) equal ranges; with n_b
// that is the cut of planner/model/placement.h. A skewed bounded table, whose ids are ranks (0 the
// hottest), is cut into n_b + n_t ranges of equal
//   n_b * rows / all rows + n_t * time / all time
// so that, except for rounding to whole rows, no range has more than 1 / n_b of the bytes or 1 /
// n_t of the time: hot ranges come out narrow. At most kShardsPerTableMax shards, and one per row.
#ifndef HOTBED_PLANNER_COST_HEAT_CUT_H_
#define HOTBED_PLANNER_COST_HEAT_CUT_H_

#include <cstdint>
#include <vector>

#include "planner/cost/access_curve.h"
#include "planner/model/planner_input.h"
#include "planner/model/refine.h"

namespace hotbed {

constexpr double kPartsOfFair = 4;

// Unique rows per step and trainer of each stratum.
std::vector<double> UniqueByStratum(const std::vector<Stratum>& strata, double reads);

// Unique rows among rows [first, limit) of a bounded table, evenly spread within a stratum.
double UniqueInRows(const std::vector<Stratum>& strata, const std::vector<double>& unique,
                    uint64_t first, uint64_t limit);

// The shards of `slice` (all rows, some columns) of a new table. `fair_shares` is the slice's time
// in units of a server's fair share.
std::vector<PieceRange> CutByHeat(const InputTable& table, const std::vector<Stratum>& strata,
                                  const std::vector<double>& unique, const PieceRange& slice,
                                  uint64_t count_by_bytes, double fair_shares);

}  // namespace hotbed

#endif  // HOTBED_PLANNER_COST_HEAT_CUT_H_
