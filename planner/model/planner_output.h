// The planner's output: the owner of each range of each table, the cost of the plan, and the moves
// to reach it. Plain values; safe from any thread. Fields and units are those of docs/planner.md.
//
// The shards of a table here are ranges as the strategies make them; a cluster stores each range
// refined into immutable shards (planner/model/refine.h).
#ifndef HOTBED_PLANNER_MODEL_PLANNER_OUTPUT_H_
#define HOTBED_PLANNER_MODEL_PLANNER_OUTPUT_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "planner/model/plan.h"

namespace hotbed {

enum class Sharding : uint8_t {
  kTableWise,
  kRowWise,
  kColumnWise,
  kTableRowWise,
  kTableColumnWise,
  kGrid,
  kDataParallel,
};

// Half-open ranges; for a hashed table the rows are buckets out of 65,536.
struct PlacedRange {
  uint32_t server = 0;  // index into PlannerOutput::servers
  Role role = Role::kPrimary;
  uint64_t row_first = 0;
  uint64_t row_limit = 0;
  uint32_t column_first = 0;
  uint32_t column_limit = 0;
  uint64_t elements = 0;
  uint64_t weight_bytes = 0;
  uint64_t bytes = 0;  // weights, optimizer state and overhead
  std::string kernel;  // empty: none named
  friend bool operator==(const PlacedRange&, const PlacedRange&) = default;
};

// Milliseconds per step.
struct TablePerf {
  double forward_compute_ms = 0;
  double forward_comms_ms = 0;
  double backward_compute_ms = 0;
  double backward_comms_ms = 0;
  double prefetch_ms = 0;
  double Total() const {
    return forward_compute_ms + forward_comms_ms + backward_compute_ms + backward_comms_ms +
           prefetch_ms;
  }
  TablePerf& operator+=(const TablePerf& other);
  friend bool operator==(const TablePerf&, const TablePerf&) = default;
};

// Each term with its key in a plan file and its heading in a report.
struct PerfTerm {
  const char* key;
  const char* heading;
  double TablePerf::*ms;
};
inline constexpr PerfTerm kPerfTerms[] = {
    {"forward_compute_ms", "fwd compute", &TablePerf::forward_compute_ms},
    {"forward_comms_ms", "fwd comms", &TablePerf::forward_comms_ms},
    {"backward_compute_ms", "bwd compute", &TablePerf::backward_compute_ms},
    {"backward_comms_ms", "bwd comms", &TablePerf::backward_comms_ms},
    {"prefetch_ms", "prefetch", &TablePerf::prefetch_ms},
};

inline TablePerf& TablePerf::operator+=(const TablePerf& other) {
  for (const PerfTerm& term : kPerfTerms) this->*term.ms += other.*term.ms;
  return *this;
}

struct PlacedTable {
  std::string name;
  Sharding sharding = Sharding::kTableWise;
  std::vector<PlacedRange> ranges;  // by server, then rows, then columns
  std::optional<TablePerf> perf;
  std::optional<double> cache_load_factor;  // where the plan chose it
  friend bool operator==(const PlacedTable&, const PlacedTable&) = default;
};

// Tables of one server that would be fused, because dim and combiner agree. A view only.
struct FusedGroup {
  uint32_t dim = 0;
  std::string combiner;
  std::vector<std::string> tables;
  std::vector<uint64_t> row_offsets;  // where each table's rows begin
  friend bool operator==(const FusedGroup&, const FusedGroup&) = default;
};

struct TierBytes {
  uint64_t device = 0;
  uint64_t host = 0;
  uint64_t spill = 0;
  friend bool operator==(const TierBytes&, const TierBytes&) = default;
};

struct PlacedServer {
  std::string name;
  uint64_t elements = 0;
  TierBytes bytes;
  std::vector<FusedGroup> groups;
  std::optional<TablePerf> perf;  // the server's sums, if the strategy has a cost model
  // For `fair` and `whole_feature` only:
  std::optional<uint64_t> row_base;
  std::vector<std::string> features;
  std::vector<uint64_t> feature_offsets;
  // For composed tables of the server's rows (common/tables/composition.h): the dim of a block, and
  // the buckets of a quotient and remainder. They stand where row_base does.
  uint32_t block_dim = 0;
  uint64_t buckets = 0;
  friend bool operator==(const PlacedServer&, const PlacedServer&) = default;
};

// The position of a feature's columns in the joined output, which has the input's order of
// features.
struct FeatureOutput {
  std::string feature;
  std::string table;
  uint32_t width = 0;
  uint64_t position = 0;
  friend bool operator==(const FeatureOutput&, const FeatureOutput&) = default;
};

struct PlanCost {
  double max_server_ms = 0;
  double lower_bound_ms = 0;
  double gap = 0;       // max_server_ms / lower_bound_ms - 1
  std::string binding;  // the limit that binds, as in "host_bytes of s0"
  friend bool operator==(const PlanCost&, const PlanCost&) = default;
};

struct PlannedMove {
  std::string table;
  uint64_t row_first = 0;
  uint64_t row_limit = 0;
  uint32_t column_first = 0;
  uint32_t column_limit = 0;
  std::string from;  // empty: the server is gone
  std::string to;
  uint64_t bytes = 0;
  std::string reason;
  friend bool operator==(const PlannedMove&, const PlannedMove&) = default;
};

// For `fair`: the local rows within one feature at which a new server's range begins.
struct FeatureCuts {
  uint32_t feature = 0;
  std::vector<uint64_t> rows;
  friend bool operator==(const FeatureCuts&, const FeatureCuts&) = default;
};

struct PlannerOutput {
  std::string strategy;
  std::vector<PlacedTable> tables;    // in the input's order
  std::vector<PlacedServer> servers;  // in the input's order
  std::vector<FeatureOutput> outputs;
  PlanCost cost;
  std::vector<PlannedMove> moves;  // in an order that never breaks a capacity
  std::vector<FeatureCuts> cuts;
  std::string context_hash;  // of the input without its current plan
  friend bool operator==(const PlannerOutput&, const PlannerOutput&) = default;
};

}  // namespace hotbed

#endif  // HOTBED_PLANNER_MODEL_PLANNER_OUTPUT_H_
