#include "planner/report/critical_path.h"

#include <algorithm>

namespace hotbed {

CriticalPath CriticalPathOf(const PlannerOutput& plan) {
  TablePerf slowest;
  for (const PlacedServer& server : plan.servers) {
    if (!server.perf) continue;
    for (const PerfTerm& term : kPerfTerms) {
      slowest.*term.ms = std::max(slowest.*term.ms, (*server.perf).*term.ms);
    }
  }
  return {slowest.forward_comms_ms + slowest.backward_comms_ms,
          slowest.forward_compute_ms + slowest.backward_compute_ms};
}

}  // namespace hotbed
