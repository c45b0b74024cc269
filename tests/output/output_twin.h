// The output layer in plain loops over fp64, with no shards: logits, losses and gradients.
#ifndef HOTBED_TESTS_OUTPUT_OUTPUT_TWIN_H_
#define HOTBED_TESTS_OUTPUT_OUTPUT_TWIN_H_

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "hotbed/output_layer.h"

namespace hotbed {

struct OutputTwin {
  uint32_t dim = 0;
  std::vector<double> rows;  // classes x dim
  OutputLayerOptions options;

  struct Result {
    std::vector<double> losses;
    std::vector<uint8_t> correct;
    std::vector<double> hidden_gradient;
    std::vector<double> row_gradient;
  };
  uint32_t width() const { return dim - (options.bias ? 1 : 0); }
  uint64_t classes() const { return rows.size() / dim; }

  std::vector<double> Logits(const float* hidden) const {
    std::vector<double> logits;
    for (uint64_t c = 0; c < classes(); ++c) {
      const double* const row = rows.data() + c * dim;
      double logit = options.bias ? row[dim - 1] : 0;
      for (uint32_t i = 0; i < width(); ++i) logit += row[i] * hidden[i];
      logits.push_back(logit);
    }
    return logits;
  }

  Result Run(const std::vector<float>& hidden, const std::vector<int64_t>& targets,
             const std::vector<float>& scales) const {
    Result result;
    result.hidden_gradient.resize(hidden.size());
    result.row_gradient.resize(rows.size());
    double counted = 0;
    double z_sum = 0;
    double scale_sum = 0;
    for (size_t t = 0; t < targets.size(); ++t) {
      if (targets[t] == options.ignored_target) continue;
      counted += 1;
      scale_sum += scales[t];
    }
    for (size_t t = 0; t < targets.size(); ++t) {
      result.losses.push_back(0);
      result.correct.push_back(0);
      if (targets[t] == options.ignored_target) continue;
      const float* const state = hidden.data() + t * width();
      const std::vector<double> logits = Logits(state);
      const double most = *std::max_element(logits.begin(), logits.end());
      double sum = 0;
      double total = 0;
      for (const double logit : logits) sum += std::exp(logit - most), total += logit;
      const double log_z = std::log(sum) + most;
      const double of_target = logits[targets[t]];
      const double smoothing = options.label_smoothing;
      result.correct[t] = of_target >= most ? 1 : 0;
      result.losses[t] = (1 - smoothing) * (log_z - of_target) +
                         smoothing * (log_z - total / static_cast<double>(classes()));
      const bool shifted = options.z_loss_of == ZLoss::kShiftedMean;
      const double squared = shifted ? std::log(sum) : log_z;
      z_sum += options.z_loss * squared * squared;
      if (!shifted) result.losses[t] += options.z_loss * squared * squared;
      const double of_z = shifted ? scale_sum / counted : scales[t];
      for (uint64_t c = 0; c < classes(); ++c) {
        const double p = std::exp(logits[c] - log_z);
        double gradient = scales[t] * (p - smoothing / static_cast<double>(classes()));
        if (c == static_cast<uint64_t>(targets[t])) gradient -= scales[t] * (1 - smoothing);
        gradient += of_z * 2 * options.z_loss * squared * p;
        const double* const row = rows.data() + c * dim;
        double* const to = result.row_gradient.data() + c * dim;
        for (uint32_t i = 0; i < width(); ++i) {
          result.hidden_gradient[t * width() + i] += gradient * row[i];
          to[i] += gradient * state[i];
        }
        if (options.bias) to[dim - 1] += gradient;
      }
    }
    if (options.z_loss_of == ZLoss::kShiftedMean && counted > 0) {
      for (size_t t = 0; t < targets.size(); ++t) {
        if (targets[t] != options.ignored_target) result.losses[t] += z_sum / counted;
      }
    }
    return result;
  }
};

}  // namespace hotbed

#endif  // HOTBED_TESTS_OUTPUT_OUTPUT_TWIN_H_
