// The size of a push, and the share of the learning rate that it is applied with, so that several
// trainers and large batches end where one trainer with small batches does.
//
// A gradient is computed on rows that lack the pushes that are in flight. So w trainers with pushes
// of b examples act like one trainer with batches of several w * b, and its steps overshoot once
// the learning rate times these examples exceeds what the optimizer damps: a constant for SGD; for
// Adagrad, whose rates fall with the root of the examples trained, a multiple of that root. Up to
// that limit the result does not depend on the size of a push. docs/training.md has measurements.
//
//   const hotbed::PushSize size = hotbed::PlanPush({.per_root = 1}, 4096,
//                                                  client->TrainersInGroup(), examples_trained);
//
// Pure.
#ifndef HOTBED_PUSH_SIZE_H_
#define HOTBED_PUSH_SIZE_H_

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>

namespace hotbed {

// The examples that one push of each trainer may hold together, after n examples were trained:
// constant + per_root * sqrt(n). 0 and 0: no limit.
struct StableExamples {
  double constant = 0;
  double per_root = 0;
};

struct PushSize {
  size_t examples = 1;  // 1..batch_size
  float rate = 1;       // factor of the learning rate, in (0, 1]
};

// Smaller pushes cost more in messages than they gain; below this size the rate falls instead.
constexpr size_t kPushExamplesMin = 16;

// The next push of one of `trainers` trainers, after `trained` examples of all of them.
inline PushSize PlanPush(const StableExamples& stable, size_t batch_size, uint64_t trainers,
                         uint64_t trained) {
  trainers = std::max<uint64_t>(trainers, 1);  // 0: not known
  if (stable.constant <= 0 && stable.per_root <= 0) return {batch_size, 1.0f};
  const size_t least = std::min(kPushExamplesMin, batch_size);
  const double n = static_cast<double>(trained + trainers * least);
  const double share =
      (stable.constant + stable.per_root * std::sqrt(n)) / static_cast<double>(trainers);
  const size_t examples = share >= static_cast<double>(batch_size)
                              ? batch_size
                              : std::max(least, static_cast<size_t>(share));
  const double rate = share / static_cast<double>(examples);
  return {examples, static_cast<float>(std::min(rate, 1.0))};
}

}  // namespace hotbed

#endif  // HOTBED_PUSH_SIZE_H_
