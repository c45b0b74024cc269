// The words that the planner's JSON, flags and messages use for its enumerations, both ways. Pure;
// safe from any thread. ShardingName, RoleName and PlanErrorKindName are declared with their types.
#ifndef HOTBED_PLANNER_MODEL_PLAN_NAMES_H_
#define HOTBED_PLANNER_MODEL_PLAN_NAMES_H_

#include <string>
#include <utility>
#include <vector>

#include "planner/model/plan_error.h"
#include "planner/model/planner_input.h"
#include "planner/model/planner_output.h"

namespace hotbed {

// Every value of an enumeration with its word, in the order of the enumeration.
template <typename T>
using NamesOf = std::vector<std::pair<const char*, T>>;

const NamesOf<PlannerWeight>& WeightNames();
const NamesOf<PlannerOptimizer>& OptimizerNames();
const NamesOf<PlannerCombiner>& CombinerNames();
const NamesOf<RowStatistics>& RowStatisticsNames();
const NamesOf<PlannerDevice>& DeviceNames();
const NamesOf<PlannerStrategy>& StrategyNames();
const NamesOf<FeatureOrder>& FeatureOrderNames();
const NamesOf<ReserveKind>& ReserveKindNames();
const NamesOf<Sharding>& ShardingNames();
const NamesOf<Role>& RoleNames();
const NamesOf<PlanErrorKind>& PlanErrorKindNames();

// The word for `value`, or "unknown" if it is not a value of the enumeration.
template <typename T>
const char* NameIn(const NamesOf<T>& names, T value) {
  for (const auto& [name, candidate] : names) {
    if (candidate == value) return name;
  }
  return "unknown";
}

const char* StrategyName(PlannerStrategy strategy);
const char* CombinerName(PlannerCombiner combiner);
const char* OptimizerName(PlannerOptimizer optimizer);

}  // namespace hotbed

#endif  // HOTBED_PLANNER_MODEL_PLAN_NAMES_H_
