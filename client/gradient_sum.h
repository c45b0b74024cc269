// Gradients of a part (its columns of them), duplicates summed in fp32 in the order of first
// appearance, in their wire form.
//
// The order is fixed by the caller's input alone, so the same call gives the same bits whatever the
// number of shards (DESIGN section 4).
#ifndef HOTBED_CLIENT_GRADIENT_SUM_H_
#define HOTBED_CLIENT_GRADIENT_SUM_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "client/batch_plan.h"
#include "row_math/types.h"

namespace hotbed {

class GradientSum {
 public:
  // gradients[f] are those of feature f: ids x dim floats.
  GradientSum(absl::Span<const float* const> gradients, RowType wire_type)
      : gradients_(gradients), wire_type_(wire_type) {}

  // Writes the part's columns of its rows to `out`. The index in the part of the first row with an
  // element of these that is NaN or infinite on the wire, or kNoIndex. A table that skips such rows
  // skips them in every slice: where any column of a row is so, the part's first becomes NaN.
  uint32_t Gather(const TableGroup& group, const PlanPart& part, uint8_t* out);

 private:
  uint32_t GatherOfWholeRows(const TableGroup& group, const PlanPart& part, uint8_t* out);
  // The gradient of the row that occurs first at input `first`; valid until the next call.
  const float* Sum(const TableGroup& group, uint32_t first, uint32_t column_first,
                   uint32_t columns);
  const float* RowOf(const TableGroup& group, uint32_t input, uint32_t column_first) const;

  absl::Span<const float* const> gradients_;
  RowType wire_type_;
  std::vector<float> sum_;
  std::vector<uint8_t> whole_;
};

}  // namespace hotbed

#endif  // HOTBED_CLIENT_GRADIENT_SUM_H_
