#include "planner/model/plan_names.h"

namespace hotbed {

const NamesOf<PlannerWeight>& WeightNames() {
  static const NamesOf<PlannerWeight>* const kNames =
      new NamesOf<PlannerWeight>{{"fp32", PlannerWeight::kFp32},
                                 {"fp16", PlannerWeight::kFp16},
                                 {"bf16", PlannerWeight::kBf16},
                                 {"int8", PlannerWeight::kInt8}};
  return *kNames;
}

const NamesOf<PlannerOptimizer>& OptimizerNames() {
  static const NamesOf<PlannerOptimizer>* const kNames =
      new NamesOf<PlannerOptimizer>{{"none", PlannerOptimizer::kNone},
                                    {"sgd", PlannerOptimizer::kSgd},
                                    {"momentum_sgd", PlannerOptimizer::kMomentumSgd},
                                    {"adagrad", PlannerOptimizer::kAdagrad},
                                    {"rowwise_adagrad", PlannerOptimizer::kRowwiseAdagrad},
                                    {"adam", PlannerOptimizer::kAdam},
                                    {"adamw", PlannerOptimizer::kAdamW},
                                    {"partial_rowwise_adam", PlannerOptimizer::kPartialRowwiseAdam},
                                    {"lamb", PlannerOptimizer::kLamb},
                                    {"partial_rowwise_lamb", PlannerOptimizer::kPartialRowwiseLamb},
                                    {"lars", PlannerOptimizer::kLars},
                                    {"ftrl", PlannerOptimizer::kFtrl},
                                    {"rmsprop", PlannerOptimizer::kRmsprop},
                                    {"rowwise_rmsprop", PlannerOptimizer::kRowwiseRmsprop}};
  return *kNames;
}

const NamesOf<PlannerCombiner>& CombinerNames() {
  static const NamesOf<PlannerCombiner>* const kNames =
      new NamesOf<PlannerCombiner>{{"sum", PlannerCombiner::kSum},
                                   {"mean", PlannerCombiner::kMean},
                                   {"max", PlannerCombiner::kMax},
                                   {"none", PlannerCombiner::kNone}};
  return *kNames;
}

const NamesOf<RowStatistics>& RowStatisticsNames() {
  static const NamesOf<RowStatistics>* const kNames =
      new NamesOf<RowStatistics>{{"row", RowStatistics::kRow}, {"slice", RowStatistics::kSlice}};
  return *kNames;
}

const NamesOf<PlannerDevice>& DeviceNames() {
  static const NamesOf<PlannerDevice>* const kNames =
      new NamesOf<PlannerDevice>{{"cpu", PlannerDevice::kCpu}, {"cuda", PlannerDevice::kCuda}};
  return *kNames;
}

const NamesOf<PlannerStrategy>& StrategyNames() {
  static const NamesOf<PlannerStrategy>* const kNames =
      new NamesOf<PlannerStrategy>{{"basic", PlannerStrategy::kBasic},
                                   {"memory_balanced", PlannerStrategy::kMemoryBalanced},
                                   {"memory_optimized", PlannerStrategy::kMemoryOptimized},
                                   {"column_even", PlannerStrategy::kColumnEven},
                                   {"fair", PlannerStrategy::kFair},
                                   {"whole_feature", PlannerStrategy::kWholeFeature},
                                   {"cost", PlannerStrategy::kCost},
                                   {"torchrec", PlannerStrategy::kTorchrec}};
  return *kNames;
}

const NamesOf<FeatureOrder>& FeatureOrderNames() {
  static const NamesOf<FeatureOrder>* const kNames =
      new NamesOf<FeatureOrder>{{"difference", FeatureOrder::kDifference},
                                {"ascending", FeatureOrder::kAscending},
                                {"shuffled", FeatureOrder::kShuffled}};
  return *kNames;
}

const NamesOf<ReserveKind>& ReserveKindNames() {
  static const NamesOf<ReserveKind>* const kNames =
      new NamesOf<ReserveKind>{{"none", ReserveKind::kNone},
                               {"percentage", ReserveKind::kPercentage},
                               {"heuristic", ReserveKind::kHeuristic},
                               {"inference", ReserveKind::kInference}};
  return *kNames;
}

const NamesOf<Sharding>& ShardingNames() {
  static const NamesOf<Sharding>* const kNames =
      new NamesOf<Sharding>{{"table_wise", Sharding::kTableWise},
                            {"row_wise", Sharding::kRowWise},
                            {"column_wise", Sharding::kColumnWise},
                            {"table_row_wise", Sharding::kTableRowWise},
                            {"table_column_wise", Sharding::kTableColumnWise},
                            {"grid", Sharding::kGrid},
                            {"data_parallel", Sharding::kDataParallel}};
  return *kNames;
}

const NamesOf<Role>& RoleNames() {
  static const NamesOf<Role>* const kNames = new NamesOf<Role>{
      {"primary", Role::kPrimary}, {"backup", Role::kBackup}, {"replica", Role::kReplica}};
  return *kNames;
}

const NamesOf<PlanErrorKind>& PlanErrorKindNames() {
  static const NamesOf<PlanErrorKind>* const kNames =
      new NamesOf<PlanErrorKind>{{"insufficient_storage", PlanErrorKind::kInsufficientStorage},
                                 {"strict_constraints", PlanErrorKind::kStrictConstraints},
                                 {"partition", PlanErrorKind::kPartition},
                                 {"input", PlanErrorKind::kInput}};
  return *kNames;
}

const char* StrategyName(PlannerStrategy strategy) { return NameIn(StrategyNames(), strategy); }
const char* CombinerName(PlannerCombiner combiner) { return NameIn(CombinerNames(), combiner); }
const char* OptimizerName(PlannerOptimizer optimizer) {
  return NameIn(OptimizerNames(), optimizer);
}
const char* ShardingName(Sharding sharding) { return NameIn(ShardingNames(), sharding); }
const char* PlanErrorKindName(PlanErrorKind kind) { return NameIn(PlanErrorKindNames(), kind); }

}  // namespace hotbed
