// The softmax over the target and a sample of classes, for tables whose full softmax would take too
// long in training (docs/output_layer.md). The sample is shared by all tokens of a batch.
//
//   auto sampler = hotbed::ClassSampler::LogUniform(table->options().rows);
//   auto layer = hotbed::MakeSampledOutputLayer(client.get(), table, *sampler, {.samples = 1000});
//
// The layer is used as an OutputLayer. It pulls the rows of targets and sample, computes here, and
// pushes the gradients of these rows as Client::Push does, under the client's session; so the table
// may be of any kind, and a step has no other push to the table. From each logit the logarithm of
// the class's expected number of draws is subtracted, which makes the loss an estimate of that of
// the full softmax; a class of the sample that is the token's target counts as the target only.
#ifndef HOTBED_SAMPLED_SOFTMAX_H_
#define HOTBED_SAMPLED_SOFTMAX_H_

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "hotbed/client.h"
#include "hotbed/output_layer.h"

namespace hotbed {

// Draws classes. Immutable; thread-safe.
class ClassSampler {
 public:
  // P(class k) = (log(k + 2) - log(k + 1)) / log(classes + 1): for vocabularies in the order of
  // their frequency.
  static absl::StatusOr<ClassSampler> LogUniform(uint64_t classes);
  // P(class k) is proportional to counts[k]^power. InvalidArgument: a count is negative or not
  // finite, or all are 0.
  static absl::StatusOr<ClassSampler> Frequency(absl::Span<const double> counts,
                                                double power = 1.0);

  uint64_t classes() const { return classes_; }
  double Probability(uint64_t of_class) const;
  // The class at a place of [0, 1) on the line of all probabilities.
  uint64_t ClassAt(double place) const;

  struct Sample {
    std::vector<uint64_t> classes;
    uint64_t draws = 0;  // that it took
    bool distinct = false;
  };
  // `count` draws; or as many as it takes to have `count` distinct classes. The same seed gives the
  // same sample. InvalidArgument: there are not so many classes, or most draws are always the same.
  absl::StatusOr<Sample> Draw(uint64_t count, bool distinct, uint64_t seed) const;
  // How often a class is in such a sample on average: draws times its probability, or the
  // probability that it is among the distinct classes of so many draws, 1 - (1 - p)^draws.
  double Expected(const Sample& sample, uint64_t of_class) const;

 private:
  ClassSampler(uint64_t classes, std::vector<double> ends)
      : classes_(classes), ends_(std::move(ends)) {}

  uint64_t classes_;
  std::vector<double> ends_;  // sums of the probabilities up to each class; empty: log-uniform
};

struct SampledSoftmaxOptions {
  uint64_t samples = 0;  // of a batch, 1 to 65,536
  bool distinct = true;
  uint64_t seed = 0;  // with the number of the batch, gives its sample
  bool bias = false;  // as in OutputLayerOptions
  int64_t ignored_target = -100;
  absl::Duration deadline = absl::ZeroDuration();
};

// `client` outlives it. InvalidArgument names the option, its value and what is allowed. A pass
// takes no added gradients: lookups of the same table are features of another push, which a step
// cannot have.
absl::StatusOr<std::unique_ptr<OutputLayer>> MakeSampledOutputLayer(
    Client* client, const Table* table, const ClassSampler& sampler,
    const SampledSoftmaxOptions& options);

}  // namespace hotbed

#endif  // HOTBED_SAMPLED_SOFTMAX_H_
