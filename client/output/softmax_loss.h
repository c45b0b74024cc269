// From the statistics of a softmax, joined over all shards, to losses, and from the scales of the
// losses to what shards need for gradients. Pure; the formulas are in docs/output_layer.md.
#ifndef HOTBED_CLIENT_OUTPUT_SOFTMAX_LOSS_H_
#define HOTBED_CLIENT_OUTPUT_SOFTMAX_LOSS_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "hotbed/output_layer.h"

namespace hotbed {

// Per token.
struct SoftmaxStatistics {
  explicit SoftmaxStatistics(size_t tokens);
  // Adds those of other classes, or of none.
  void Add(absl::Span<const float> other_maxima, absl::Span<const double> other_sums,
           absl::Span<const double> other_totals, absl::Span<const float> other_target_logits);

  std::vector<float> maxima;   // largest logit
  std::vector<double> sums;    // of exp(logit - maximum)
  std::vector<double> totals;  // of the logits
  std::vector<double> target_logits;
};

struct SoftmaxLosses {
  std::vector<double> losses;
  std::vector<uint8_t> correct;
  double bits = 0;  // of all tokens, without the z-loss
};
SoftmaxLosses LossesOf(const SoftmaxStatistics& statistics, uint64_t classes,
                       const OutputLayerOptions& options);

// The gradient of token t's logit is factors[t] exp(logit - maximum) - floors[t], and
// target_factors[t] less for the target.
struct SoftmaxFactors {
  std::vector<float> factors;
  std::vector<float> floors;
  std::vector<float> target_factors;
};
SoftmaxFactors FactorsOf(const SoftmaxStatistics& statistics, absl::Span<const float> scales,
                         uint64_t classes, const OutputLayerOptions& options);

}  // namespace hotbed

#endif  // HOTBED_CLIENT_OUTPUT_SOFTMAX_LOSS_H_
