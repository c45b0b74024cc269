// The batch of a pass through an output layer: what is checked of it, and the tokens that count.
#ifndef HOTBED_CLIENT_OUTPUT_OUTPUT_BATCH_H_
#define HOTBED_CLIENT_OUTPUT_OUTPUT_BATCH_H_

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "hotbed/output_layer.h"

namespace hotbed {

// The place of the first number that is not finite, or -1.
inline int64_t FirstNotFinite(absl::Span<const float> values) {
  const auto bad =
      std::find_if(values.begin(), values.end(), [](float value) { return !std::isfinite(value); });
  return bad == values.end() ? -1 : bad - values.begin();
}

struct OutputShape {
  const TableOptions* table = nullptr;
  bool bias = false;
  int64_t ignored_target = 0;

  uint32_t width() const { return table->dim - (bias ? 1 : 0); }
};

// InvalidArgument names the argument, the element, and what is allowed.
absl::Status CheckBatch(const OutputShape& shape, absl::Span<const float> hidden,
                        absl::Span<const int64_t> targets);
absl::Status CheckScales(absl::Span<const float> scales, size_t tokens);

// The tokens whose target is not ignored.
struct OutputBatch {
  OutputBatch(const OutputShape& shape, absl::Span<const float> hidden,
              absl::Span<const int64_t> targets);

  std::vector<size_t> places;  // in the caller's batch
  std::vector<uint64_t> targets;
  std::vector<float> hidden;
};

}  // namespace hotbed

#endif  // HOTBED_CLIENT_OUTPUT_OUTPUT_BATCH_H_
