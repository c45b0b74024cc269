#include "client/output/softmax_loss.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

namespace hotbed {
namespace {

// The number that the z-loss squares.
double LogZ(const SoftmaxStatistics& statistics, size_t token, ZLoss of) {
  const double shifted = std::log(statistics.sums[token]);
  return of == ZLoss::kShiftedMean ? shifted : shifted + double{statistics.maxima[token]};
}

}  // namespace

SoftmaxStatistics::SoftmaxStatistics(size_t tokens)
    : maxima(tokens, -std::numeric_limits<float>::infinity()),
      sums(tokens),
      totals(tokens),
      target_logits(tokens) {}

void SoftmaxStatistics::Add(absl::Span<const float> other_maxima,
                            absl::Span<const double> other_sums,
                            absl::Span<const double> other_totals,
                            absl::Span<const float> other_target_logits) {
  for (size_t t = 0; t < maxima.size(); ++t) {
    const double most = std::max(maxima[t], other_maxima[t]);
    if (std::isinf(most) && most < 0) continue;  // no class on either side
    sums[t] =
        sums[t] * std::exp(maxima[t] - most) + other_sums[t] * std::exp(other_maxima[t] - most);
    maxima[t] = static_cast<float>(most);
    totals[t] += other_totals[t];
    target_logits[t] += other_target_logits[t];
  }
}

SoftmaxLosses LossesOf(const SoftmaxStatistics& statistics, uint64_t classes,
                       const OutputLayerOptions& options) {
  const size_t tokens = statistics.sums.size();
  SoftmaxLosses result;
  const double smoothing = options.label_smoothing;
  double z_sum = 0;
  for (size_t t = 0; t < tokens; ++t) {
    const double log_sum = std::log(statistics.sums[t]);
    const double most = statistics.maxima[t];
    const double of_target = log_sum - (statistics.target_logits[t] - most);
    const double of_all = log_sum + most - statistics.totals[t] / static_cast<double>(classes);
    result.losses.push_back((1 - smoothing) * of_target + smoothing * of_all);
    result.bits += result.losses.back() / std::log(2.0);
    result.correct.push_back(statistics.target_logits[t] >= most ? 1 : 0);
    const double log_z = LogZ(statistics, t, options.z_loss_of);
    const double z_loss = options.z_loss * log_z * log_z;
    z_sum += z_loss;
    if (options.z_loss_of == ZLoss::kLogZ) result.losses.back() += z_loss;
  }
  if (options.z_loss_of == ZLoss::kLogZ) return result;
  for (double& loss : result.losses) loss += z_sum / static_cast<double>(tokens);
  return result;
}

SoftmaxFactors FactorsOf(const SoftmaxStatistics& statistics, absl::Span<const float> scales,
                         uint64_t classes, const OutputLayerOptions& options) {
  const size_t tokens = statistics.sums.size();
  const double sum = std::accumulate(scales.begin(), scales.end(), 0.0);
  SoftmaxFactors factors;
  for (size_t t = 0; t < tokens; ++t) {
    const double scale = scales[t];
    const double of_z =
        options.z_loss_of == ZLoss::kLogZ ? scale : sum / static_cast<double>(tokens);
    const double factor =
        scale + 2 * options.z_loss * LogZ(statistics, t, options.z_loss_of) * of_z;
    factors.factors.push_back(static_cast<float>(factor / statistics.sums[t]));
    factors.floors.push_back(
        static_cast<float>(scale * options.label_smoothing / static_cast<double>(classes)));
    factors.target_factors.push_back(static_cast<float>(scale * (1 - options.label_smoothing)));
  }
  return factors;
}

}  // namespace hotbed
