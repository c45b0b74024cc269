// The proposer that gives spare device memory to caches (EmbeddingOffloadScaleupProposer,
// planner/proposers.py, and LuusJaakolaSearch, planner/utils.py, of torchrec 1.9.2).
//
// The first proposal has the fastest fused_uvm_caching option of each table, or its fastest option
// if it has none of these. A table is promoted to kernel fused where that takes less device memory
// than its cache and buffers do. If this proposal cannot be placed, no other follows.
//
// Further proposals add 0 to B bytes of device memory to it: B is what all ranks have left, at most
// what scaling tables would take with kernel fused. The amounts are those of a Luus-Jaakola search
// of 16 steps for the least time of the plan. An amount that could not be placed becomes the new
// upper end. Tables scale if they have a cache, a cache_load_factor above 0 and cache statistics.
//
// The amount is dealt to the tables in proportion to their priority (AllocateCaches), by a model of
// the device memory that is linear in the share of cached rows, through the estimates at 0.1 and
// 0.9. A table with more than 0.9999 of its rows cached gets kernel fused.
//
// Ours: doubles where there are floats; a search without room ends, where there it never does; a
// table that takes within 0.01 % of what kernel fused takes gets that kernel, where there it must
// take more (so the largest amount would promote all tables but the last).
// Not thread safe.
#ifndef HOTBED_PLANNER_TORCHREC_CACHE_SCALEUP_H_
#define HOTBED_PLANNER_TORCHREC_CACHE_SCALEUP_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <random>
#include <vector>

#include "planner/torchrec/cache_model.h"
#include "planner/torchrec/proposers.h"

namespace hotbed::torchrec {

// A search for the place in [left, right] with the least cost, by random steps from the best place
// so far. The steps get 5 % shorter with each success. Its random numbers are PyTorch's.
class LuusJaakolaSearch {
 public:
  // `left_cost`: the cost at `left`, where it is known.
  LuusJaakolaSearch(double left, double right, int iterations_max, uint32_t seed,
                    std::optional<double> left_cost);

  // The next place to try, given the cost of the one before (ignored at first). Absent: the end.
  std::optional<double> Next(double cost);
  // Places from `right` on cannot be had.
  void ShrinkRight(double right);

  double best() const { return best_; }
  double best_cost() const { return best_cost_; }

 private:
  double Uniform(double first, double limit);

  double left_;
  double right_;
  const int iterations_max_;
  int iteration_ = -1;
  std::mt19937 random_;
  double best_ = 0;
  double best_cost_ = 0;
  std::optional<double> tried_;
  bool left_known_;
  bool right_known_ = false;
  double reach_;
};

// Device memory of a table, in bytes: fixed + per_ratio x (share of rows cached).
struct ScalingCache {
  double per_ratio = 0;
  double fixed = 0;
  double fused = 0;  // with all rows on the device and no cache
  double ratio = 0;  // the share cached now
  double priority = 0;
};

// The shares after `budget` more bytes are dealt in proportion to the priorities, in up to 128
// rounds. A table that is full leaves the rest to the others. One that would take `fused`, give or
// take 0.01 %, gets a share of 1, and what it exceeds `fused` by goes back to the others.
std::vector<double> AllocateCaches(const std::vector<ScalingCache>& caches, double budget);

// `space` and `caches` must outlive it; `capacity` is read at once.
std::unique_ptr<Proposer> CacheScaleupProposer(SearchSpace* space,
                                               const std::vector<Storage>& capacity,
                                               const CacheModel& caches);

}  // namespace hotbed::torchrec

#endif  // HOTBED_PLANNER_TORCHREC_CACHE_SCALEUP_H_
