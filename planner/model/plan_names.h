// The words that the planner's JSON, flags and messages use for its enumerations, both ways. Pure;
// safe from any thread.
#ifndef HOTBED_PLANNER_MODEL_PLAN_NAMES_H_
#define HOTBED_PLANNER_MODEL_PLAN_NAMES_H_

#include <cstddef>
#include <iterator>

#include "planner/model/plan_error.h"
#include "planner/model/planner_input.h"
#include "planner/model/planner_output.h"

namespace hotbed {

// The words of an enumeration in the order of its values, which count from 0.
template <typename T>
extern const char* const kPlanWords[];
template <>
inline constexpr const char* kPlanWords<PlannerWeight>[] = {"fp32", "fp16", "bf16", "int8"};
template <>
inline constexpr const char* kPlanWords<PlannerOptimizer>[] = {"sgd",
                                                               "adagrad",
                                                               "rowwise_adagrad",
                                                               "adam",
                                                               "momentum_sgd",
                                                               "adamw",
                                                               "partial_rowwise_adam",
                                                               "lamb",
                                                               "partial_rowwise_lamb",
                                                               "lars",
                                                               "ftrl",
                                                               "rmsprop",
                                                               "none",
                                                               "rowwise_rmsprop",
                                                               "lion",
                                                               "adadelta",
                                                               "amsgrad",
                                                               "rowwise_adagrad_counter"};
static_assert(std::size(kPlanWords<PlannerOptimizer>) ==
              static_cast<size_t>(kLastOptimizerKind) + 1);
template <>
inline constexpr const char* kPlanWords<PlannerCombiner>[] = {"sum", "mean", "max", "none"};
template <>
inline constexpr const char* kPlanWords<RowStatistics>[] = {"row", "slice"};
template <>
inline constexpr const char* kPlanWords<PlannerDevice>[] = {"cpu", "cuda"};
template <>
inline constexpr const char* kPlanWords<PlannerStrategy>[] = {
    "basic", "memory_balanced", "memory_optimized", "column_even", "fair", "whole_feature",
    "cost",  "torchrec"};
template <>
inline constexpr const char* kPlanWords<FeatureOrder>[] = {"difference", "ascending", "shuffled"};
template <>
inline constexpr const char* kPlanWords<ReserveKind>[] = {"none", "percentage", "heuristic",
                                                          "inference"};
template <>
inline constexpr const char* kPlanWords<TorchrecPartitioner>[] = {"greedy", "memory_balanced"};
template <>
inline constexpr const char* kPlanWords<TorchrecProposer>[] = {
    "grid_search", "greedy", "greedy_by_sum", "uniform", "dynamic_programming", "cache_scaleup"};
template <>
inline constexpr const char* kPlanWords<TorchrecPipeline>[] = {"none", "sparse_dist", "prefetch"};
template <>
inline constexpr const char* kPlanWords<TorchrecWire>[] = {"fp32", "fp16", "bf16",
                                                           "fp8",  "int8", "mx4"};
template <>
inline constexpr const char* kPlanWords<Sharding>[] = {
    "table_wise",        "row_wise", "column_wise",  "table_row_wise",
    "table_column_wise", "grid",     "data_parallel"};
template <>
inline constexpr const char* kPlanWords<Role>[] = {"primary", "backup", "replica"};
template <>
inline constexpr const char* kPlanWords<PlanErrorKind>[] = {
    "insufficient_storage", "strict_constraints", "partition", "input"};

// The word for `value`, or "unknown" if it is not a value of the enumeration.
template <typename T>
const char* PlanWord(T value) {
  const auto& words = kPlanWords<T>;
  return static_cast<size_t>(value) < std::size(words) ? words[static_cast<size_t>(value)]
                                                       : "unknown";
}

}  // namespace hotbed

#endif  // HOTBED_PLANNER_MODEL_PLAN_NAMES_H_
