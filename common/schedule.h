// Learning rates as functions of the training step. Thread-safe: plain values.
//
// Sources: inverse square root with linear warm-up, A. Vaswani et al., NeurIPS 2017, as in
// fairseq; cosine, I. Loshchilov, F. Hutter, ICLR 2017.
#ifndef HOTBED_COMMON_SCHEDULE_H_
#define HOTBED_COMMON_SCHEDULE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"

namespace hotbed {

// Values are part of the wire format. Every kind begins with the warm-up if there is one.
enum class ScheduleKind : uint8_t { kConstant = 0, kInverseSqrt = 1, kCosine = 2, kStep = 3 };

// With W = warmup_steps, base = the table's or trainer's learning rate, t = the step, from 1:
//   warm-up, t < W:  warmup_from + (base - warmup_from) * t / W
//   constant:        base
//   inverse sqrt:    base * sqrt(max(W, 1) / t)
//   cosine:          low + (base - low) * (1 + cos(pi * min(1, (t - W) / (T - W)))) / 2,
//                    T = total_steps, low = min_factor * base
//   step:            base * gamma ^ floor((t - W) / step_size)
// Computed once, in double precision, by the primary that takes a push; the result is logged.
struct Schedule {
  ScheduleKind kind = ScheduleKind::kConstant;
  uint64_t warmup_steps = 0;
  float warmup_from = 0.0f;  // >= 0, a learning rate
  uint64_t total_steps = 0;  // cosine: > warmup_steps
  float min_factor = 0.0f;   // cosine: [0, 1]
  uint64_t step_size = 0;    // step: > 0
  float gamma = 0.1f;        // step: (0, 1]

  float RateAt(float base, uint64_t step) const;

  // For people: "constant", "cosine warmup-steps=100 total-steps=1000 min-factor=0.1".
  std::string ToText() const;

  friend bool operator==(const Schedule& a, const Schedule& b);
};

extern const std::vector<std::string> kScheduleWords;  // constant inverse-sqrt cosine step

// OK, or InvalidArgument naming the field (as in schedule.gamma), its value and the allowed range.
absl::Status ValidateSchedule(const Schedule& schedule);

}  // namespace hotbed

#endif  // HOTBED_COMMON_SCHEDULE_H_
