// Gradients of rows: duplicates summed in fp32 in the order of first appearance, written in their
// wire form.
//
// The order depends on the caller's input alone, so that the same call gives the same bits for
// every number of shards. Many ids may share a row of gradients, as the ids of a bag do: the
// gradient of an id is never stored, only read as (row, coefficient). Thread-compatible.
#ifndef HOTBED_CLIENT_BATCH_GRADIENT_SUM_H_
#define HOTBED_CLIENT_BATCH_GRADIENT_SUM_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "client/batch/batch_plan.h"
#include "hotbed/client.h"
#include "row_math/types.h"

namespace hotbed {

// The gradients of one table, summed before they are cut into parts, where their norms are needed.
struct SummedGradients {
  std::vector<float> rows;  // unique ids x dim, in the order of first appearance; empty: not summed
  std::vector<float> scale_of_slice;  // the columns of each slice are multiplied by it last
};

class GradientSum {
 public:
  // The groups' runs refer to `features` by index. Every gradient is multiplied by `scale` first.
  // `features` outlive this.
  GradientSum(absl::Span<const PushFeature> features, float scale, RowType wire_type)
      : features_(features), scale_(scale), wire_type_(wire_type) {}

  // Whether the features of the group say shows and clicks; the bytes of a row on the wire, which
  // then ends with them.
  bool HasShows(const TableGroup& group) const;
  uint32_t RowBytes(const TableGroup& group, uint32_t columns) const {
    return RowWireBytes(wire_type_, columns) + (HasShows(group) ? kShowBytes : 0);
  }

  // Writes the part's columns of its rows to `out`, in wire form. Returns the index in the part of
  // the first row that has a NaN or infinite element on the wire, or kNoIndex. A table that skips
  // such rows skips them in every slice: where any column of a row is NaN or infinite, the first
  // element of the part's row becomes NaN.
  uint32_t Gather(const TableGroup& group, const PlanPart& part, const SummedGradients& summed,
                  uint8_t* out);

  // Writes all rows of the group, unique ids x dim floats, to `out`.
  void SumAll(const TableGroup& group, uint32_t dim, float* out);

 private:
  struct Columns {
    uint32_t first;
    uint32_t count;
  };
  // One input: a row (from column `first` on) and its coefficient.
  struct Term {
    const float* row;
    float coefficient;
    const PushFeature* feature;
    uint32_t input;  // of the feature
  };
  // Appends the terms of `unique` to terms_, and prefetches their rows.
  void Collect(const TableGroup& group, uint32_t unique, Columns columns);
  // The sum of terms_[begin, end): the row itself where there is one term and no product is needed.
  const float* SumTerms(uint32_t begin, uint32_t end, Columns columns, float* sum);
  // The group's only feature, whose sums are those of its rows as they are; or null.
  const PushFeature* PlainFeature(const TableGroup& group) const;
  // Writes the shows and clicks of the part's rows behind their gradients.
  void GatherShows(const TableGroup& group, const PlanPart& part, uint8_t* out) const;
  // Looks at all columns of a row, scaled.
  bool FiniteOnTheWire(const TableSpec& table, const SummedGradients& summed, const float* row);
  const float* Scaled(const float* row, float scale, uint32_t columns);
  // Calls take(row) with the sum of each of the unique ids order[begin, end).
  template <typename Take>
  void ForEachSum(const TableGroup& group, const uint32_t* order, uint32_t begin, uint32_t end,
                  Columns columns, Take take);
  // As ForEachSum, of a group for which PlainFeature is `feature`.
  template <typename Take>
  void ForEachPlainSum(const TableGroup& group, const PushFeature& feature, const uint32_t* order,
                       uint32_t begin, uint32_t end, Columns columns, Take take);

  const absl::Span<const PushFeature> features_;
  const float scale_;
  const RowType wire_type_;
  std::vector<Term> terms_;
  std::vector<const float*> rows_;
  std::vector<float> coefficients_;
  std::vector<float> sum_;
  std::vector<float> scaled_;
  std::vector<uint8_t> wire_;
};

}  // namespace hotbed

#endif  // HOTBED_CLIENT_BATCH_GRADIENT_SUM_H_
