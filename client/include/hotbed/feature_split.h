// How columns and features are divided among workers that hold parts of tables themselves, as pure
// functions. Clients of a cluster need none of this: Pull and Push find the shards.
#ifndef HOTBED_FEATURE_SPLIT_H_
#define HOTBED_FEATURE_SPLIT_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace hotbed {

// OK if rows of `dim` columns are cut into `slices` of the same width; otherwise InvalidArgument
// names both. Tables themselves accept a remainder, which goes to the first slices.
absl::Status CheckEvenSlices(uint32_t dim, uint32_t slices);

// The columns to the left and to the right of slice `rank`.
struct SlicePads {
  uint32_t left = 0;
  uint32_t right = 0;
};
// InvalidArgument as CheckEvenSlices, and for a rank that does not exist.
absl::StatusOr<SlicePads> PadsOfSlice(uint32_t dim, uint32_t slices, uint32_t rank);

// One worker's part of several features.
struct FeatureSplit {
  // The ids [first_id, limit_id) of a feature are the worker's rows from `first_row` on.
  struct Part {
    uint32_t feature = 0;
    uint64_t first_id = 0;
    uint64_t limit_id = 0;
    uint64_t first_row = 0;
  };
  std::vector<Part> parts;
  uint64_t rows = 0;  // of the worker
};
// Whole features: their rows, one after another in the order of `group`. `rows` are those of all
// features. InvalidArgument: a feature that does not exist.
absl::StatusOr<FeatureSplit> SplitByGroup(absl::Span<const uint64_t> rows,
                                          absl::Span<const uint32_t> group);
// Equal ranges: the rows of all features, one after another, are cut into `workers` ranges of
// sum / workers rows; the last takes the remainder, too. A worker has no feature without a row.
// InvalidArgument: no workers, or fewer rows than workers.
absl::StatusOr<std::vector<FeatureSplit>> SplitByRows(absl::Span<const uint64_t> rows,
                                                      uint32_t workers);

inline constexpr uint64_t kNotOnWorker = ~uint64_t{0};
// Picks the columns of the parts of `split` from `ids`, which has `features` ids for each sample,
// and makes them rows of the worker. kNotOnWorker: the row is on another one, or there is none.
// InvalidArgument: `ids` is not whole samples, or lacks a feature.
absl::StatusOr<std::vector<uint64_t>> ShardTensor(absl::Span<const uint64_t> ids, uint32_t features,
                                                  const FeatureSplit& split);

}  // namespace hotbed

#endif  // HOTBED_FEATURE_SPLIT_H_
