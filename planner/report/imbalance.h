// Four measures of how unevenly a load is spread over servers; all are 0 for an even spread.
//
// p_i is the share of server i in the sum, k the number of servers (source: the statistics report
// of TorchRec, torchrec/distributed/planner/stats.py at a48cef7):
//   total variation  max_i |p_i - 1/k|
//   total distance   sum_i |p_i - 1/k|
//   chi-squared      sum_i (p_i - 1/k)^2 k, over its greatest value for k servers
//   KL divergence    sum_i p_i ln(k p_i),   over its greatest value, ln k
// The last two lie in [0, 1]; 1 means that one server has it all.
//
// Pure; safe from any thread. KL uses the C library's logarithm: for show, never to decide.
#ifndef HOTBED_PLANNER_REPORT_IMBALANCE_H_
#define HOTBED_PLANNER_REPORT_IMBALANCE_H_

#include <span>

namespace hotbed {

struct Imbalance {
  double total_variation = 0;
  double total_distance = 0;
  double chi_squared = 0;
  double kl_divergence = 0;
};

// All zeros when there is no load at all, or no server. Loads must be finite and not negative.
Imbalance MeasureImbalance(std::span<const double> loads);

}  // namespace hotbed

#endif  // HOTBED_PLANNER_REPORT_IMBALANCE_H_
