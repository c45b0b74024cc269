#include "planner/report/critical_path.h"

#include <algorithm>

namespace hotbed {

CriticalPath CriticalPathOf(const PlannerOutput& plan) {
  TablePerf slowest;
  for (const PlacedServer& server : plan.servers) {
    if (!server.perf) continue;
    const TablePerf& perf = *server.perf;
    slowest.forward_compute_ms = std::max(slowest.forward_compute_ms, perf.forward_compute_ms);
    slowest.forward_comms_ms = std::max(slowest.forward_comms_ms, perf.forward_comms_ms);
    slowest.backward_compute_ms = std::max(slowest.backward_compute_ms, perf.backward_compute_ms);
    slowest.backward_comms_ms = std::max(slowest.backward_comms_ms, perf.backward_comms_ms);
  }
  return {slowest.forward_comms_ms + slowest.backward_comms_ms,
          slowest.forward_compute_ms + slowest.backward_compute_ms};
}

}  // namespace hotbed
