#include "planner/report/imbalance.h"

#include <algorithm>
#include <cmath>

namespace hotbed {

std::optional<Imbalance> ImbalanceOf(const std::vector<double>& loads) {
  double sum = 0;
  for (const double load : loads) sum += load;
  if (!(sum > 0)) return std::nullopt;
  const auto k = static_cast<double>(loads.size());
  Imbalance imbalance;
  for (const double load : loads) {
    const double p = load / sum;
    const double off = std::fabs(p - 1 / k);
    imbalance.total_variation = std::max(imbalance.total_variation, off);
    imbalance.total_distance += off;
    imbalance.chi_squared += off * off * k;
    if (p > 0) imbalance.kl += p * std::log(k * p);
  }
  const double chi_bound = (k - 1) / k * ((k - 1) / k) * k + (k - 1) / k;
  imbalance.chi_squared = chi_bound > 0 ? imbalance.chi_squared / chi_bound : 0;
  imbalance.kl = k > 1 ? imbalance.kl / std::log(k) : 0;
  return imbalance;
}

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
