#include "client/embedding/weight_gradients.h"

#include <vector>

namespace hotbed {
namespace {

double Dot(const float* a, const float* b, uint32_t dim) {
  double sum = 0;
  for (uint32_t d = 0; d < dim; ++d) sum += static_cast<double>(a[d]) * b[d];
  return sum;
}

}  // namespace

void AddWeightGradients(const BoundFeature& bound, const float* rows, const float* gradients,
                        uint64_t stride, float* out) {
  const uint32_t dim = bound.dim();
  std::vector<double> products;
  uint64_t begin = 0;
  for (uint32_t bag = 0; bag < bound.lengths.size(); ++bag) {
    const uint64_t end = begin + bound.lengths[bag];
    products.clear();
    double weighted = 0;
    for (uint64_t i = begin; i < end; ++i) {
      // The row of a skipped id is zeros.
      products.push_back(Dot(gradients + bag * stride, rows + i * dim, dim));
      weighted += static_cast<double>(bound.weights[i]) * products.back();
    }
    const bool mean = bound.feature->pooling == Pooling::kMean;
    const double divisor = mean ? bound.Divisor(begin, end) : 1.0;
    for (uint64_t i = begin; i < end; ++i) {
      const bool padding = bound.resolved.skip != nullptr && bound.resolved.skip[i] == kIdPadding;
      if (padding || divisor == 0) continue;
      const double product = products[i - begin];
      out[i] += static_cast<float>(mean ? (product - weighted / divisor) / divisor : product);
    }
    begin = end;
  }
}

}  // namespace hotbed
