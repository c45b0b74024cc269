// How uneven a load is, as TorchRec's planner statistics measure it (torchrec/distributed/planner/
// stats.py). Pure; safe from any thread. For display: the logarithm may differ in its last bit from
// machine to machine.
#ifndef HOTBED_PLANNER_REPORT_IMBALANCE_H_
#define HOTBED_PLANNER_REPORT_IMBALANCE_H_

#include <optional>
#include <vector>

#include "planner/planner_output.h"

namespace hotbed {

// With p the loads divided by their sum, and k their number:
struct Imbalance {
  double total_variation = 0;  // max |p - 1/k|
  double total_distance = 0;   // sum |p - 1/k|
  double chi_squared = 0;      // k sum (p - 1/k)^2, divided by its bound (k-1)^2/k + (k-1)/k
  double kl = 0;               // sum p log(k p), divided by its bound log(k)
};

// Nothing where the loads are none or all 0. With one load all measures are 0.
std::optional<Imbalance> ImbalanceOf(const std::vector<double>& loads);

// The longest chain of a step, in milliseconds: all servers wait for each other after forward
// compute, forward comms, backward comms and backward compute; so each counts with its slowest
// server. (TorchRec also waits between sharding types, which a server's sums no longer show.)
struct CriticalPath {
  double comms_ms = 0;
  double compute_ms = 0;
};

CriticalPath CriticalPathOf(const PlannerOutput& plan);

}  // namespace hotbed

#endif  // HOTBED_PLANNER_REPORT_IMBALANCE_H_
