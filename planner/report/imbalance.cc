#include "planner/report/imbalance.h"

#include <algorithm>
#include <cmath>

namespace hotbed {

Imbalance MeasureImbalance(std::span<const double> loads) {
  double sum = 0;
  for (const double load : loads) sum += load;
  Imbalance measures;
  if (!(sum > 0)) return measures;
  const auto k = static_cast<double>(loads.size());
  double chi = 0;
  double kl = 0;
  for (const double load : loads) {
    const double share = load / sum;
    const double off = std::abs(share - 1.0 / k);
    measures.total_variation = std::max(measures.total_variation, off);
    measures.total_distance += off;
    chi += off * off * k;
    if (share > 0) kl += share * std::log(k * share);
  }
  // The greatest values are those of one server that has it all.
  const double chi_max = ((k - 1) / k) * ((k - 1) / k) * k + (k - 1) * (1 / k);
  const double kl_max = std::log(k);
  measures.chi_squared = chi_max > 0 ? chi / chi_max : 0;
  measures.kl_divergence = kl_max > 0 ? kl / kl_max : 0;
  return measures;
}

}  // namespace hotbed
