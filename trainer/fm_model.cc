#include "trainer/fm_model.h"

#include <algorithm>
#include <cmath>

namespace hotbed {
namespace {

// Writes sum_f v_f of one example to `sum` (dim floats; [0] is the sum of the linear weights).
void SumRows(const FmShape& shape, const std::vector<const float*>& rows, size_t i, float* sum) {
  std::fill_n(sum, shape.dim, 0.0f);
  for (int f = 0; f < shape.fields; ++f) {
    const float* row = rows[f] + i * shape.dim;
    for (int k = 0; k < shape.dim; ++k) sum[k] += row[k];
  }
}

}  // namespace

void FmPredict(const FmShape& shape, const std::vector<const float*>& rows, float bias,
               size_t count, float* predictions) {
  std::vector<float> sum(shape.dim);
  for (size_t i = 0; i < count; ++i) {
    SumRows(shape, rows, i, sum.data());
    float squares = 0;
    for (int f = 0; f < shape.fields; ++f) {
      const float* row = rows[f] + i * shape.dim;
      for (int k = 1; k < shape.dim; ++k) squares += row[k] * row[k];
    }
    float pairs = -squares;
    for (int k = 1; k < shape.dim; ++k) pairs += sum[k] * sum[k];
    predictions[i] = shape.offset + bias + sum[0] + 0.5f * pairs;
  }
}

double FmGradient(const FmShape& shape, const std::vector<const float*>& rows, const float* labels,
                  const float* predictions, size_t count, const std::vector<float*>& gradients,
                  float* bias_gradient) {
  std::vector<float> sum(shape.dim);
  double loss = 0;
  float bias_sum = 0;
  for (size_t i = 0; i < count; ++i) {
    float slope;
    if (shape.loss == Loss::kLogistic) {
      const float x = labels[i] > 0.5f ? -predictions[i] : predictions[i];
      loss += std::max(x, 0.0f) + std::log1p(std::exp(-std::abs(x)));
      slope = 1.0f / (1.0f + std::exp(-predictions[i])) - labels[i];
    } else {
      slope = predictions[i] - labels[i];
      loss += 0.5 * slope * slope;
    }
    bias_sum += slope;
    SumRows(shape, rows, i, sum.data());
    for (int f = 0; f < shape.fields; ++f) {
      const float* row = rows[f] + i * shape.dim;
      float* gradient = gradients[f] + i * shape.dim;
      gradient[0] = slope + shape.l2 * row[0];
      for (int k = 1; k < shape.dim; ++k)
        gradient[k] = slope * (sum[k] - row[k]) + shape.l2 * row[k];
    }
  }
  *bias_gradient = bias_sum;
  return loss;
}

}  // namespace hotbed
