#include "planner/model/tiling.h"

#include <algorithm>
#include <map>
#include <tuple>

#include "absl/numeric/int128.h"
#include "absl/strings/str_cat.h"

namespace hotbed {
namespace {

std::string Named(const PlacedRange& range) {
  return absl::StrCat("rows [", range.row_first, ", ", range.row_limit, ") x columns [",
                      range.column_first, ", ", range.column_limit, ")");
}

// Two of `ranges` that share an element, if there are any: a sweep over the rows that keeps the
// column intervals which are open. Open intervals are disjoint, so a new one can only meet its
// neighbours.
std::optional<std::string> Overlap(const std::vector<const PlacedRange*>& ranges) {
  struct Event {
    uint64_t row;
    bool opens;
    const PlacedRange* range;
  };
  std::vector<Event> events;
  events.reserve(2 * ranges.size());
  for (const PlacedRange* range : ranges) {
    events.push_back({range->row_first, true, range});
    events.push_back({range->row_limit, false, range});
  }
  std::sort(events.begin(), events.end(), [](const Event& a, const Event& b) {
    return std::make_tuple(a.row, a.opens, a.range->column_first) <
           std::make_tuple(b.row, b.opens, b.range->column_first);
  });
  std::map<uint32_t, const PlacedRange*> open;  // by the first column
  for (const Event& event : events) {
    if (!event.opens) {
      open.erase(event.range->column_first);
      continue;
    }
    const auto after = open.lower_bound(event.range->column_first);
    if (after != open.end() && after->second->column_first < event.range->column_limit) {
      return absl::StrCat(Named(*after->second), " and ", Named(*event.range), " overlap");
    }
    if (after != open.begin()) {
      const PlacedRange* const before = std::prev(after)->second;
      if (before->column_limit > event.range->column_first) {
        return absl::StrCat(Named(*before), " and ", Named(*event.range), " overlap");
      }
    }
    open.emplace(event.range->column_first, event.range);
  }
  return std::nullopt;
}

}  // namespace

std::optional<std::string> TilingFault(const std::vector<PlacedRange>& ranges, uint64_t rows,
                                       uint32_t columns) {
  std::vector<const PlacedRange*> primaries;
  absl::uint128 covered = 0;
  for (const PlacedRange& range : ranges) {
    if (range.role != Role::kPrimary) continue;
    if (range.row_first >= range.row_limit || range.column_first >= range.column_limit) {
      return absl::StrCat(Named(range), " is empty");
    }
    if (range.row_limit > rows || range.column_limit > columns) {
      return absl::StrCat(Named(range), " lies outside of the table's ", rows, " x ", columns);
    }
    primaries.push_back(&range);
    covered += absl::uint128(range.row_limit - range.row_first) *
               (range.column_limit - range.column_first);
  }
  if (std::optional<std::string> overlap = Overlap(primaries)) return overlap;
  const absl::uint128 all = absl::uint128(rows) * columns;
  if (covered != all) {
    return absl::StrCat("its primaries cover ", absl::Uint128Low64(covered), " of ",
                        absl::Uint128Low64(all), " elements");
  }
  return std::nullopt;
}

}  // namespace hotbed
