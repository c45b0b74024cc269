#include "hotbed/feature_split.h"

#include <algorithm>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"

namespace hotbed {

absl::Status CheckEvenSlices(uint32_t dim, uint32_t slices) {
  if (slices > 0 && dim % slices == 0) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("dim is ", dim, " and column_slices is ", slices,
                                                 "; even slices need a dim ",
                                                 "that is divisible by the number of slices"));
}

absl::StatusOr<SlicePads> PadsOfSlice(uint32_t dim, uint32_t slices, uint32_t rank) {
  HOTBED_RETURN_IF_ERROR(CheckEvenSlices(dim, slices));
  if (rank >= slices) {
    return absl::InvalidArgumentError(absl::StrCat("rank is ", rank, "; allowed: 0..", slices - 1));
  }
  const uint32_t width = dim / slices;
  return SlicePads{rank * width, (slices - 1 - rank) * width};
}

absl::StatusOr<FeatureSplit> SplitByGroup(absl::Span<const uint64_t> rows,
                                          absl::Span<const uint32_t> group) {
  FeatureSplit split;
  for (const uint32_t feature : group) {
    if (feature >= rows.size()) {
      return absl::InvalidArgumentError(
          absl::StrCat("the group has feature ", feature, "; there are ", rows.size()));
    }
    split.parts.push_back({feature, 0, rows[feature], split.rows});
    split.rows += rows[feature];
  }
  return split;
}

absl::StatusOr<std::vector<FeatureSplit>> SplitByRows(absl::Span<const uint64_t> rows,
                                                      uint32_t workers) {
  const uint64_t sum = std::accumulate(rows.begin(), rows.end(), uint64_t{0});
  if (workers == 0 || sum < workers) {
    return absl::InvalidArgumentError(
        absl::StrCat(sum, " rows for ", workers, " workers; each needs a row"));
  }
  const uint64_t each = sum / workers;
  std::vector<FeatureSplit> splits(workers);
  for (uint32_t w = 0; w < workers; ++w) {
    const uint64_t begin = w * each;
    const uint64_t end = w + 1 == workers ? sum : begin + each;
    splits[w].rows = end - begin;
    uint64_t first = 0;  // of the feature, among all rows
    for (uint32_t f = 0; f < rows.size(); first += rows[f++]) {
      const uint64_t from = std::max(first, begin);
      const uint64_t to = std::min(first + rows[f], end);
      if (from < to) splits[w].parts.push_back({f, from - first, to - first, from - begin});
    }
  }
  return splits;
}

absl::StatusOr<std::vector<uint64_t>> ShardTensor(absl::Span<const uint64_t> ids, uint32_t features,
                                                  const FeatureSplit& split) {
  if (features == 0 || ids.size() % features != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(ids.size(), " ids are not whole samples of ", features, " features"));
  }
  for (const FeatureSplit::Part& part : split.parts) {
    if (part.feature < features) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("the split has feature ", part.feature, "; the ids have ", features));
  }
  std::vector<uint64_t> out;
  for (size_t sample = 0; sample < ids.size(); sample += features) {
    for (const FeatureSplit::Part& part : split.parts) {
      const uint64_t id = ids[sample + part.feature];
      const bool here = id >= part.first_id && id < part.limit_id;
      out.push_back(here ? id - part.first_id + part.first_row : kNotOnWorker);
    }
  }
  return out;
}

}  // namespace hotbed
