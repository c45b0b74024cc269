// The longest chain of a step. Pure; safe from any thread.
#ifndef HOTBED_PLANNER_REPORT_CRITICAL_PATH_H_
#define HOTBED_PLANNER_REPORT_CRITICAL_PATH_H_

#include "planner/model/planner_output.h"

namespace hotbed {

// In milliseconds. All servers wait for each other after forward compute, forward comms, backward
// compute and backward comms, so each term counts with its slowest server. This is TorchRec's
// statistics report (torchrec/distributed/planner/stats.py), which also waits between sharding
// types; a server's sums no longer show those.
struct CriticalPath {
  double comms_ms = 0;
  double compute_ms = 0;
};

// Zeros if no server has costs.
CriticalPath CriticalPathOf(const PlannerOutput& plan);

}  // namespace hotbed

#endif  // HOTBED_PLANNER_REPORT_CRITICAL_PATH_H_
