#include "planner/sources/slice_columns.h"

#include <algorithm>
#include <queue>

namespace hotbed {
namespace {

// size > threshold, exactly: comparing a double with an integer above 2^53 would round.
bool IsAbove(double size, int64_t threshold) {
  if (threshold < 0 || size >= 9223372036854775808.0) return true;
  const auto whole = static_cast<int64_t>(size);
  return whole > threshold || (whole == threshold && size > static_cast<double>(whole));
}

}  // namespace

TableGroup GroupOf(uint64_t size, std::optional<uint64_t> data_parallel_threshold,
                   std::optional<uint64_t> row_slice_threshold) {
  const uint64_t data_parallel = data_parallel_threshold.value_or(0);
  const uint64_t row_slice = row_slice_threshold.value_or(0);
  if (data_parallel != 0 && size <= data_parallel) return TableGroup::kDataParallel;
  if (row_slice != 0 && size >= row_slice) return TableGroup::kRow;
  return TableGroup::kColumn;
}

std::optional<int64_t> AutomaticColumnThreshold(const std::vector<uint64_t>& sizes,
                                                uint32_t workers) {
  std::optional<int64_t> threshold;
  if (sizes.empty()) return threshold;
  std::priority_queue<uint64_t> pieces(sizes.begin(), sizes.end());
  while (pieces.size() < workers) {
    const uint64_t largest = pieces.top();
    pieces.pop();
    threshold = static_cast<int64_t>(largest) - 1;
    pieces.push(largest / 2);
    pieces.push(largest / 2);
  }
  return threshold;
}

std::vector<uint32_t> SliceWidths(uint64_t rows, uint32_t dim, std::optional<int64_t> threshold,
                                  uint32_t workers) {
  const uint32_t slices_max = std::min(workers, dim);
  uint64_t slices = 1;
  const uint64_t whole = rows * dim;
  if (threshold && (*threshold < 0 || whole > static_cast<uint64_t>(*threshold))) {
    auto size = static_cast<double>(whole);
    do {
      slices *= 2;
      size /= 2;
    } while (slices < slices_max && IsAbove(size, *threshold));
  }
  slices = std::min<uint64_t>(slices, slices_max);
  std::vector<uint32_t> widths;
  for (const uint64_t width : EvenParts(dim, static_cast<uint32_t>(slices))) {
    widths.push_back(static_cast<uint32_t>(width));
  }
  return widths;
}

std::vector<uint64_t> EvenParts(uint64_t whole, uint32_t parts) {
  std::vector<uint64_t> sizes(parts, whole / parts);
  for (uint64_t i = 0; i < whole % parts; ++i) ++sizes[i];
  return sizes;
}

}  // namespace hotbed
