// Sums of bytes are taken in 128 bits, and reported in 64.
#ifndef HOTBED_PLANNER_MODEL_SATURATED_H_
#define HOTBED_PLANNER_MODEL_SATURATED_H_

#include <cstdint>
#include <limits>

#include "absl/numeric/int128.h"

namespace hotbed {

// `v`, or the largest 64-bit number if that is less.
inline uint64_t Saturated(absl::uint128 v) {
  constexpr uint64_t kMax = std::numeric_limits<uint64_t>::max();
  return v > kMax ? kMax : absl::Uint128Low64(v);
}

}  // namespace hotbed

#endif  // HOTBED_PLANNER_MODEL_SATURATED_H_
