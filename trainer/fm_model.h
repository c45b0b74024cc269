// Factorization machine (Rendle 2010): y = offset + bias + sum_f w_f + sum_{f<g} <v_f, v_g>, over
// the fields f of an example, with the pairwise term computed in O(fields x factors) as half of
// (|sum v|^2 - sum |v|^2).
//
// A row of an embedding table is [w, v_1 .. v_factors]: dim = 1 + factors. Pure functions over
// arrays; thread-safe.
#ifndef HOTBED_TRAINER_FM_MODEL_H_
#define HOTBED_TRAINER_FM_MODEL_H_

#include <cstddef>
#include <vector>

namespace hotbed {

enum class Loss {
  kLogistic,  // labels 0 and 1, y is a logit; loss in nats
  kSquared,   // half the squared error
};

struct FmShape {
  int fields = 0;
  int dim = 0;  // 1 + factors
  Loss loss = Loss::kLogistic;
  float offset = 0;  // a constant that is not trained, such as the mean rating
  float l2 = 0;      // applied to every row of an example, once per example
};

// Predicts `count` examples. rows[f] points to count x dim floats, one row per example; `bias` is
// added to each prediction.
void FmPredict(const FmShape& shape, const std::vector<const float*>& rows, float bias,
               size_t count, float* predictions);

// Returns the sum of the loss over the examples, and its gradient: gradients[f] receives count x
// dim floats, *bias_gradient the sum over the examples.
double FmGradient(const FmShape& shape, const std::vector<const float*>& rows, const float* labels,
                  const float* predictions, size_t count, const std::vector<float*>& gradients,
                  float* bias_gradient);

}  // namespace hotbed

#endif  // HOTBED_TRAINER_FM_MODEL_H_
