// How rows are compared with a vector.
#ifndef HOTBED_ROW_MATH_METRIC_H_
#define HOTBED_ROW_MATH_METRIC_H_

#include <cstdint>

namespace hotbed {

// Formulas in row_math/nearness.h. Values are part of the wire format.
enum class RowMetric : uint8_t { kDot = 0, kCosine = 1, kL2 = 2 };

// By l2 the smaller value is the nearer one, by the others the larger one.
constexpr bool SmallerIsNearer(RowMetric metric) { return metric == RowMetric::kL2; }

}  // namespace hotbed

#endif  // HOTBED_ROW_MATH_METRIC_H_
