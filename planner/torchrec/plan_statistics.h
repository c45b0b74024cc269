// The statistics that TorchRec reports along with a plan (planner/stats.py at a48cef7).
//
// The critical path supposes that all servers wait for each other after each phase: comms are the
// sum over (module, sharding type, direction) of the slowest server's, compute the sum over
// directions of the slowest server's. A module is what TorchRec would hold in one: tables that are
// pooled, pooled and weighted, or unpooled.
//
// Pure; safe from any thread.
#ifndef HOTBED_PLANNER_TORCHREC_PLAN_STATISTICS_H_
#define HOTBED_PLANNER_TORCHREC_PLAN_STATISTICS_H_

#include <cstdint>
#include <vector>

#include "planner/report/imbalance.h"
#include "planner/torchrec/plan_search.h"
#include "planner/torchrec/table_workload.h"

namespace hotbed::torchrec {

struct PlanStatistics {
  uint64_t proposals = 0;
  uint64_t plans = 0;
  Imbalance time;  // of the servers' ms
  Imbalance device_bytes;
  Imbalance host_bytes;
  double critical_comms_ms = 0;
  double critical_compute_ms = 0;
  Storage dense_reserved;  // of each server
  Storage ids_reserved;    // of each server
};

PlanStatistics MeasurePlan(const RankTopology& topology, const std::vector<TableWorkload>& loads,
                           const FoundPlan& plan);

}  // namespace hotbed::torchrec

#endif  // HOTBED_PLANNER_TORCHREC_PLAN_STATISTICS_H_
