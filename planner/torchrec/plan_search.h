// The search of TorchRec's planner (EmbeddingShardingPlanner, planner/planners.py at a48cef7):
// every proposal of every proposer is partitioned, and the plan whose slowest rank is fastest wins,
// the first among equals.
//
// Proposers, in this order if the input names none: grid search, greedy by depth, greedy by sum,
// uniform. A proposal seen before is not tried again. There a timeout ends the search; here
// `evaluations_max` does: a proposal counts as one evaluation for each started kWorkPerEvaluation
// of what placing it takes. Each proposer first gets an equal share of what is left; a search that
// is not cut short gives what one proposer after the other would. Proposals whose storage is more
// than all ranks have together cannot be placed; they are passed over unpriced.
//
// Pure; safe from any thread.
#ifndef HOTBED_PLANNER_TORCHREC_PLAN_SEARCH_H_
#define HOTBED_PLANNER_TORCHREC_PLAN_SEARCH_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "planner/model/planner_input.h"
#include "planner/torchrec/cache_model.h"
#include "planner/torchrec/partitioner.h"
#include "planner/torchrec/rank_topology.h"
#include "planner/torchrec/sharding_option.h"

namespace hotbed::torchrec {

constexpr uint64_t kWorkPerEvaluation = 100;

using PartitionerKind = TorchrecPartitioner;

struct SearchLimits {
  uint64_t evaluations_max = 0;
  PartitionerKind partitioner = PartitionerKind::kGreedy;
  std::vector<TorchrecProposer> proposers;  // empty: the first four
};

struct FoundPlan {
  OptionsOfTables options;  // point into the search space
  Assignment assignment;
  double rating_ms = 0;
};

struct SearchResult {
  std::optional<FoundPlan> best;
  uint64_t proposals = 0;  // different ones
  uint64_t plans = 0;      // of them placed
  bool cut_short = false;  // by evaluations_max
  // Where nothing was found:
  Storage least;  // storage of the smallest proposal that failed
  std::vector<uint32_t> least_choice;
  std::optional<PartitionFailure> last_failure;  // of a proposal that would fit in sum
};

// `capacity` by rank after reservations; `pins` from PinnedRanks. The proposer by cache scale-up
// adds the options that it makes to `space`, which must outlive the result.
SearchResult SearchPlan(SearchSpace* space, const RankTopology& topology,
                        const std::vector<Storage>& capacity,
                        const std::vector<std::vector<uint32_t>>& pins, const SearchLimits& limits,
                        const CacheModel& caches);

}  // namespace hotbed::torchrec

#endif  // HOTBED_PLANNER_TORCHREC_PLAN_SEARCH_H_
