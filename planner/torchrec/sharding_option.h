// ShardingOption: one way to shard a table, with its estimates. SearchSpace: all ways, by table.
// Plain values; safe from any thread.
#ifndef HOTBED_PLANNER_TORCHREC_SHARDING_OPTION_H_
#define HOTBED_PLANNER_TORCHREC_SHARDING_OPTION_H_

#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "planner/model/planner_output.h"
#include "planner/torchrec/compute_kernel.h"
#include "planner/torchrec/estimate.h"

namespace hotbed::torchrec {

// How the shards of an option find their ranks (planner/enumerators.py).
enum class PartitionBy : uint8_t {
  kUniform,    // row_wise, data_parallel: shard i on rank i
  kDevice,     // table_wise, column_wise: any rank
  kHost,       // table_row_wise, table_column_wise: within one host
  kMultiHost,  // grid: each column block on a host
};

inline PartitionBy PartitionOf(Sharding sharding) {
  switch (sharding) {
    case Sharding::kRowWise:
    case Sharding::kDataParallel:
      return PartitionBy::kUniform;
    case Sharding::kTableWise:
    case Sharding::kColumnWise:
      return PartitionBy::kDevice;
    case Sharding::kTableRowWise:
    case Sharding::kTableColumnWise:
      return PartitionBy::kHost;
    case Sharding::kGrid:
      return PartitionBy::kMultiHost;
  }
  return PartitionBy::kDevice;
}

// `count` consecutive shards with the same size and storage.
struct StoredRun {
  uint32_t count = 0;
  uint64_t units = 0;  // rows, of a hashed table buckets
  uint32_t columns = 0;
  Storage storage;  // of one
};

struct ShardingOption {
  Sharding sharding = Sharding::kTableWise;
  Kernel kernel = Kernel::kFused;
  std::vector<StoredRun> runs;
  uint32_t shards = 0;
  uint32_t work = 0;  // to place it: its shards, of a uniform option its runs
  // The share of rows cached, where a proposer chose it; absent: the constraint's, or none.
  std::optional<double> cache_ratio;
  TablePerf perf;       // of each shard
  double shard_ms = 0;  // total of `perf`: the depth of the option
  double sum_ms = 0;    // over the shards
  Storage largest;      // over the shards, each tier for itself
  Storage sum;

  PartitionBy partition_by() const { return PartitionOf(sharding); }
};

// By table, in the enumerator's order, then what the cache scale-up added. Deques, because plans
// point to options.
using SearchSpace = std::vector<std::deque<ShardingOption>>;

// Fills in shards, work (shards), shard_ms, sum_ms, largest and sum from runs and perf.
void SumUp(ShardingOption* option);

}  // namespace hotbed::torchrec

#endif  // HOTBED_PLANNER_TORCHREC_SHARDING_OPTION_H_
