#include "planner/cost/heat_cut.h"

#include <algorithm>
#include <cmath>

#include "common/tables/table_spec.h"

namespace hotbed {
namespace {

constexpr double kHotPartsMin = 4;  // by time, of a skewed table above 1 MiB

// Rows at which the weighted sum of rows and time reaches each of count - 1 equal steps.
std::vector<uint64_t> Edges(const InputTable& table, const std::vector<Stratum>& strata,
                            const std::vector<double>& unique, double unique_sum, double by_rows,
                            double by_time, uint64_t count) {
  const double rows = static_cast<double>(table.rows);
  const double step = (by_rows + by_time) / static_cast<double>(count);
  std::vector<uint64_t> edges;
  double before = 0;
  for (size_t i = 0; i < strata.size(); ++i) {
    const double length = static_cast<double>(strata[i].limit - strata[i].first);
    const double weight = by_rows * length / rows + by_time * unique[i] / unique_sum;
    while (edges.size() + 1 < count) {
      const double wanted = step * static_cast<double>(edges.size() + 1) - before;
      if (wanted > weight) break;
      const double inside = std::floor(length * std::max(0.0, wanted) / weight + 0.5);
      edges.push_back(strata[i].first + static_cast<uint64_t>(std::min(inside, length)));
    }
    before += weight;
  }
  return edges;
}

}  // namespace

std::vector<double> UniqueByStratum(const std::vector<Stratum>& strata, double reads) {
  std::vector<double> unique;
  unique.reserve(strata.size());
  for (const Stratum& stratum : strata) unique.push_back(UniqueRows(stratum, reads));
  return unique;
}

double UniqueInRows(const std::vector<Stratum>& strata, const std::vector<double>& unique,
                    uint64_t first, uint64_t limit) {
  // The strata before it end at or before `first`: they are few, but shards are many.
  auto it = std::upper_bound(strata.begin(), strata.end(), first,
                             [](uint64_t row, const Stratum& s) { return row < s.limit; });
  double sum = 0;
  for (; it != strata.end() && it->first < limit; ++it) {
    const uint64_t overlap = std::min(limit, it->limit) - std::max(first, it->first);
    sum += unique[it - strata.begin()] * static_cast<double>(overlap) /
           static_cast<double>(it->limit - it->first);
  }
  return sum;
}

std::vector<PieceRange> CutByHeat(const InputTable& table, const std::vector<Stratum>& strata,
                                  const std::vector<double>& unique, const PieceRange& slice,
                                  uint64_t count_by_bytes, double fair_shares) {
  const uint64_t units = slice.row_limit - slice.row_first;
  const double most = static_cast<double>(kShardsPerTableMax);
  double by_time = std::clamp(std::ceil(fair_shares * kPartsOfFair), 1.0, most);
  std::vector<PieceRange> shards;
  const auto at_most = [&](uint64_t count) {
    return std::min({count, units, uint64_t{kShardsPerTableMax}});
  };
  double unique_sum = 0;
  for (const double u : unique) unique_sum += u;
  if (table.hashed || !IsSkewed(strata) || !(unique_sum > 0)) {
    CutEvenly(slice, at_most(std::max(count_by_bytes, static_cast<uint64_t>(by_time))), shards);
    return shards;
  }
  if (count_by_bytes > 1) by_time = std::max(by_time, kHotPartsMin);
  if (count_by_bytes == 1 && by_time == 1) return {slice};
  // One more where shards are near the limit: edges are rounded to whole rows.
  if (count_by_bytes > kShardsPerTableMin) ++count_by_bytes;
  const double by_rows = static_cast<double>(count_by_bytes);
  const uint64_t count = at_most(count_by_bytes + static_cast<uint64_t>(by_time));
  uint64_t first = 0;
  for (const uint64_t edge : Edges(table, strata, unique, unique_sum, by_rows, by_time, count)) {
    if (edge <= first || edge >= table.rows) continue;  // two steps within one hot row
    shards.push_back({first, edge, slice.column_first, slice.column_limit});
    first = edge;
  }
  shards.push_back({first, table.rows, slice.column_first, slice.column_limit});
  return shards;
}

}  // namespace hotbed
