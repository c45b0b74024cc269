// The servers as TorchRec sees them: ranks of equal hosts, with capacities and bandwidths.
//
// Ranks are the servers that are not draining, host by host in the order in which hosts appear;
// where the input lists the servers of each host together, that is the input's order. A host is a
// group of servers with the same `host`; as in TorchRec each must have as many. Where no server
// names a host (each has its own name for one), all ranks are on one host, TorchRec's default.
//
// Defaults (planner/constants.py at a48cef7), bytes per ms: HBM 897, DDR 51, HBM to DDR 32,
// inside a host 600, between hosts 12.5, each times 2^30 / 1000; `topology.bandwidth` replaces
// those that it gives. Device memory counts for `cuda` only; where no server names any, each has
// TorchRec's 32 GiB.
//
// Pure; safe from any thread.
#ifndef HOTBED_PLANNER_TORCHREC_RANK_TOPOLOGY_H_
#define HOTBED_PLANNER_TORCHREC_RANK_TOPOLOGY_H_

#include <cstdint>
#include <vector>

#include "planner/model/plan_error.h"
#include "planner/model/planner_input.h"
#include "planner/torchrec/compute_kernel.h"
#include "planner/torchrec/estimate.h"

namespace hotbed::torchrec {

enum class Collective : uint8_t { kAllToAll, kReduceScatter, kAllGather, kAllReduce };

struct RankTopology {
  PlannerDevice device = PlannerDevice::kCpu;
  uint32_t ranks = 0;
  uint32_t ranks_per_host = 0;
  std::vector<uint32_t> server_of_rank;
  std::vector<Storage> capacity;  // by rank
  MemoryBandwidth memory;
  double intra_host = 0;
  double inter_host = 0;

  uint32_t hosts() const { return ranks / ranks_per_host; }
  // The bandwidth of a collective over `world` ranks, `local` of them on each host
  // (planner/types.py).
  double CollectiveBandwidth(uint32_t world, uint32_t local, Collective collective) const;
  // The capacities of the tier that the kernels of this device fill, or none where all are equal:
  // row-wise shards are then even.
  std::vector<double> UnevenMemory() const;
};

// An input error where hosts differ in their number of servers, or no server is left.
PlanResult<RankTopology> BuildRankTopology(const PlannerInput& input);

}  // namespace hotbed::torchrec

#endif  // HOTBED_PLANNER_TORCHREC_RANK_TOPOLOGY_H_
