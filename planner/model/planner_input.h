// The planner's input: tables, features, topology, workload, options and the current plan. Plain
// values with the field names and units of docs/planner.md, which the JSON reader fills exactly;
// safe from any thread. Every strategy sees tables, features and servers in the order given here.
//
// Units: rows and columns are counts; bytes are bytes; bandwidths are bytes per millisecond;
// thresholds count elements (rows x dim). A reader must have called ValidateInput, which every
// strategy relies on.
#ifndef HOTBED_PLANNER_MODEL_PLANNER_INPUT_H_
#define HOTBED_PLANNER_MODEL_PLANNER_INPUT_H_

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/tables/table_spec.h"
#include "planner/model/cost_constants.h"
#include "planner/model/planner_output.h"

namespace hotbed {

enum class PlannerWeight : uint8_t { kFp32, kFp16, kBf16, kInt8 };

using PlannerOptimizer = OptimizerKind;

enum class PlannerCombiner : uint8_t { kSum, kMean, kMax, kNone };

// The fraction `accesses` of all accesses goes to the fraction `rows` of most frequent rows; both
// are in (0, 1].
struct HotnessPoint {
  double rows = 0;
  double accesses = 0;
};

// Measurements of one range of a live table.
struct MeasuredRange {
  uint64_t row_first = 0;
  uint32_t column_first = 0;
  uint64_t bytes = 0;  // of weights and state in one replica; 0: unknown
  double reads = -1;   // rows per step and trainer; below 0: reads and updates are unknown
  double updates = 0;
};

struct InputTable {
  std::string name;
  uint64_t rows = 0;  // for a hashed table: the expected number
  uint32_t dim = 0;
  PlannerWeight weight = PlannerWeight::kFp32;
  PlannerOptimizer optimizer = PlannerOptimizer::kRowwiseAdagrad;
  PlannerCombiner combiner = PlannerCombiner::kSum;
  bool hashed = false;
  RowStatistics row_statistics = RowStatistics::kRow;
  uint32_t replicas = 1;              // the primary and its backups
  double reads_per_step = 0;          // ids per step and trainer; 0: from features and batch size
  std::optional<double> zipf;         // exponent of the accesses over the rows by rank
  std::vector<HotnessPoint> hotness;  // ascending; takes precedence over `zipf`
  // For a cluster's table only: whether vectors of optimizer state are bf16, and the number of
  // 4-byte counters that the table's options keep with each row.
  bool state_bf16 = false;
  uint32_t row_counters = 0;
  // For a cluster's table only: measurements of each range of the current plan, by columns, then
  // rows; or empty. Known values replace those computed from the workload; bytes only if they are
  // more.
  std::vector<MeasuredRange> measured;
};

struct InputFeature {
  std::string name;
  uint32_t table = 0;  // index into PlannerInput::tables
  double pooling_factor = 1.0;
  bool weighted = false;
};

struct InputServer {
  std::string name;
  std::string host;  // the server's name if the input has none
  std::string zone;  // may be empty: unknown
  uint64_t device_bytes = 0;
  uint64_t host_bytes = 0;
  uint64_t spill_bytes = 0;
  bool draining = false;
  // For a live cluster only: the server gives and takes nothing and keeps its shards.
  bool unreachable = false;
  double load = 0;  // ms per step that the server spends on other work
};

enum class PlannerDevice : uint8_t { kCpu, kCuda };

// Bytes per millisecond; 0 means the default of the strategy (or what was calibrated).
struct Bandwidths {
  double device = 0;
  double host = 0;
  double device_host = 0;
  double intra_host = 0;
  double inter_host = 0;
  double spill = 0;
};

struct Topology {
  std::vector<InputServer> servers;
  PlannerDevice device = PlannerDevice::kCpu;
  Bandwidths bandwidth;
};

struct Workload {
  uint64_t batch_size = 512;
  uint32_t trainers = 1;
};

enum class PlannerStrategy : uint8_t {
  kBasic,
  kMemoryBalanced,
  kMemoryOptimized,
  kColumnEven,
  kFair,
  kWholeFeature,
  kCost,
  kTorchrec,
};

enum class FeatureOrder : uint8_t { kDifference, kAscending, kShuffled };

struct TableConstraint {
  uint32_t table = 0;                // index into PlannerInput::tables
  std::vector<Sharding> sharding;    // allowed; empty: all
  std::vector<std::string> kernels;  // allowed; empty: the defaults
  std::vector<uint32_t> servers;     // pins, indices into Topology::servers; empty: all
  std::optional<uint32_t> columns_min;
  // For a cluster's table under `cost` only: the exact number of column slices (SliceColumns),
  // whatever the sharding, all cut at the same rows.
  std::optional<uint32_t> column_slices;
  std::optional<double> cache_load_factor;
  uint32_t prefetch_passes = 1;         // in which `torchrec` fills a cache for a batch
  std::vector<uint64_t> batch_sizes;    // one per feature of the table
  std::vector<double> pooling_factors;  // one per feature of the table
  std::vector<double> num_poolings;     // one per feature of the table
};

enum class ReserveKind : uint8_t { kNone, kPercentage, kHeuristic, kInference };

struct Reserve {
  ReserveKind kind = ReserveKind::kNone;
  double fraction = 0.15;
  uint64_t dense_bytes = 0;
};

// The options that strategy `torchrec` takes besides (docs/planner.md, "TorchRec mode").
enum class TorchrecPartitioner : uint8_t { kGreedy, kMemoryBalanced };
enum class TorchrecProposer : uint8_t {
  kGridSearch,
  kGreedy,
  kGreedyBySum,
  kUniform,
  kDynamicProgramming,
  kCacheScaleup,
};
enum class TorchrecPipeline : uint8_t { kNone, kSparseDist, kPrefetch };
// The type of embeddings and their gradients between ranks.
enum class TorchrecWire : uint8_t { kFp32, kFp16, kBf16, kFp8, kInt8, kMx4 };

struct TorchrecOptions {
  TorchrecPartitioner partitioner = TorchrecPartitioner::kGreedy;
  std::vector<TorchrecProposer> proposers;  // in this order; empty: the first four
  TorchrecPipeline pipeline = TorchrecPipeline::kNone;
  // The embeddings run when memory is at its peak: pipelines hold their outputs too.
  bool run_embedding_at_peak_memory = false;
  // Both fp32: every table's own type.
  TorchrecWire forward_wire = TorchrecWire::kFp32;
  TorchrecWire backward_wire = TorchrecWire::kFp32;
  friend bool operator==(const TorchrecOptions&, const TorchrecOptions&) = default;
};

struct PlannerOptions {
  PlannerStrategy strategy = PlannerStrategy::kCost;
  std::optional<uint64_t> column_slice_threshold;  // elements; absent: off (or automatic)
  std::optional<uint64_t> row_slice_threshold;
  std::optional<uint64_t> data_parallel_threshold;
  bool strict = false;
  FeatureOrder order = FeatureOrder::kDifference;
  std::vector<TableConstraint> constraints;  // at most one per table
  Reserve reserve;
  uint64_t seed = 0;
  uint64_t evaluations_max = 100000;
  std::optional<uint64_t> move_bytes_max;
  TorchrecOptions torchrec;
  // For a live cluster only: shards keep the number of replicas that they have in the current plan,
  // even if the table asks for more, because Membership refills the missing ones.
  bool replicas_as_they_are = false;
};

struct PlannerInput {
  std::vector<InputTable> tables;
  std::vector<InputFeature> features;  // never empty: by default one per table, of its name
  Topology topology;
  Workload workload;
  PlannerOptions options;
  std::optional<PlannerOutput> current;
  std::optional<CostConstants> constants;  // of the cost model; absent: the defaults
};

}  // namespace hotbed

#endif  // HOTBED_PLANNER_MODEL_PLANNER_INPUT_H_
