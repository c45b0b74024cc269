#include "client/output/output_batch.h"

#include "absl/strings/str_cat.h"

namespace hotbed {

absl::Status CheckBatch(const OutputShape& shape, absl::Span<const float> hidden,
                        absl::Span<const int64_t> targets) {
  const TableOptions& table = *shape.table;
  const uint32_t width = shape.width();
  if (hidden.size() != targets.size() * width) {
    return absl::InvalidArgumentError(absl::StrCat(
        "hidden has ", hidden.size(), " elements, allowed: ", targets.size() * width, ", ", width,
        " for each of ", targets.size(), " targets, since table ", table.name, " has dim ",
        table.dim, shape.bias ? ", the last of which is the bias" : ""));
  }
  size_t counted = 0;
  for (size_t t = 0; t < targets.size(); ++t) {
    if (targets[t] == shape.ignored_target) continue;
    ++counted;
    if (table.hashed) continue;
    if (targets[t] < 0 || static_cast<uint64_t>(targets[t]) >= table.rows) {
      return absl::InvalidArgumentError(absl::StrCat(
          "targets: element ", t, " is ", targets[t], ", allowed: 0..", table.rows - 1,
          " of table ", table.name, ", and ", shape.ignored_target, " to ignore a token"));
    }
  }
  const uint64_t bytes = uint64_t{counted} * width * sizeof(float);
  if (counted > kOutputTokensMax || bytes > kOutputHiddenBytesMax) {
    return absl::InvalidArgumentError(absl::StrCat(counted, " tokens of ", width, " elements are ",
                                                   bytes, " bytes, allowed: ", kOutputTokensMax,
                                                   " tokens and ", kOutputHiddenBytesMax,
                                                   " bytes; take smaller batches"));
  }
  if (const int64_t bad = FirstNotFinite(hidden); bad >= 0) {
    return absl::InvalidArgumentError(absl::StrCat("hidden: element ", bad % width, " of token ",
                                                   bad / width, " is ", hidden[bad],
                                                   ", allowed: finite numbers"));
  }
  return absl::OkStatus();
}

absl::Status CheckScales(absl::Span<const float> scales, size_t tokens) {
  if (scales.size() != tokens) {
    return absl::InvalidArgumentError(absl::StrCat(
        "scales has ", scales.size(), " elements, allowed: ", tokens, ", one per token"));
  }
  const int64_t bad = FirstNotFinite(scales);
  if (bad < 0) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("scales: element ", bad, " is ", scales[bad], ", allowed: finite numbers"));
}

OutputBatch::OutputBatch(const OutputShape& shape, absl::Span<const float> all_hidden,
                         absl::Span<const int64_t> all_targets) {
  const uint32_t width = shape.width();
  for (size_t t = 0; t < all_targets.size(); ++t) {
    if (all_targets[t] == shape.ignored_target) continue;
    places.push_back(t);
    targets.push_back(static_cast<uint64_t>(all_targets[t]));
    const auto from = all_hidden.begin() + static_cast<ptrdiff_t>(t * width);
    hidden.insert(hidden.end(), from, from + width);
  }
}

}  // namespace hotbed
