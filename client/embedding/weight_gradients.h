// The gradients of the weights of a feature's ids. Pure.
#ifndef HOTBED_CLIENT_EMBEDDING_WEIGHT_GRADIENTS_H_
#define HOTBED_CLIENT_EMBEDDING_WEIGHT_GRADIENTS_H_

#include <cstdint>

#include "client/embedding/embedding_batch.h"

namespace hotbed {

// Adds the gradients of a weighted feature's weights, one per id, to those at `out`. `rows` has one
// row per id, zeros for skipped ones; the gradient of bag b is at gradients + b * stride. With g
// the gradient of a bag and p_k the product of g and row k, it is p_k for a sum, and
// (p_k - sum of w_i p_i / W) / W for a mean, W being its divisor. Padding ids get 0.
void AddWeightGradients(const BoundFeature& bound, const float* rows, const float* gradients,
                        uint64_t stride, float* out);

}  // namespace hotbed

#endif  // HOTBED_CLIENT_EMBEDDING_WEIGHT_GRADIENTS_H_
