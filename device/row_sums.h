// The sum of many rows, in order, which reduces the gradients of one row.
//
// A lane has the same elements of every row and adds them row after row, beginning with the first.
// So the bits depend on the order alone, while loads of later rows are in flight: a long sum takes
// the time of its bytes, not of one load after the other.
#ifndef HOTBED_DEVICE_ROW_SUMS_H_
#define HOTBED_DEVICE_ROW_SUMS_H_

#include <cstdint>

#include "device/buckets.h"
#include "device/row_loads.h"

namespace hotbed {
namespace device {

struct RowToAdd {
  const uint8_t* at;
  RowType type;  // not int8
};

// The rows of one load of addresses, one per lane.
template <typename Team>
struct RowsToAdd {
  typename Team::template Values<uint64_t> at;
  typename Team::template Values<uint32_t> types;
  uint32_t count;

  // The first row from `begin` on that has another type than row `begin`.
  HOTBED_ROW_FN uint32_t EndOfType(const Team& team, uint32_t begin) const {
    const uint32_t type = team.Get(types, begin);
    uint32_t others = team.Ballot(types, [&](uint32_t other) { return other != type; });
    others &= ~((1u << begin) - 1);
    return others == 0 || LowestBit(others) > count ? count : LowestBit(others);
  }
};

// row(i): address of row i < count, of `dim` elements, aligned to 16 bytes if IsInFours(dim), else
// to its elements. `sum`: dim floats, aligned to 16 bytes; it may be the first row.
template <uint32_t kWidth, typename Team, typename F>
HOTBED_ROW_FN void SumRowsBy(const Team& team, uint32_t dim, uint32_t count, uint8_t* sum, F row) {
  const uint32_t units = dim / kWidth;
  for (uint32_t base = 0; base < units; base += Team::kLanes) {
    auto sums = team.Map([&](uint32_t) { return Elements<kWidth>{}; });
    for (uint32_t from = 0; from < count; from += Team::kLanes) {
      RowsToAdd<Team> rows;
      rows.count = count - from < Team::kLanes ? count - from : Team::kLanes;
      const auto found =
          team.Map([&](uint32_t lane) { return row(from + (lane < rows.count ? lane : 0)); });
      rows.at = team.Map([&](uint32_t lane) {
        return static_cast<uint64_t>(reinterpret_cast<uintptr_t>(team.Own(found, lane).at));
      });
      rows.types = team.Map(
          [&](uint32_t lane) { return static_cast<uint32_t>(team.Own(found, lane).type); });
      for (uint32_t begin = 0, end = 0; begin < rows.count; begin = end) {
        end = rows.EndOfType(team, begin);
        sums = team.Map([&](uint32_t lane) {
          // Lanes beyond the row's end repeat loads of others: Get needs all lanes.
          const uint32_t unit = base + lane < units ? base + lane : units - 1;
          Elements<kWidth> own = team.Own(sums, lane);
          ForRowsAhead<kWidth>(
              end - begin, static_cast<RowType>(team.Get(rows.types, begin)), unit,
              [&](uint32_t j) {
                return reinterpret_cast<const uint8_t*>(
                    static_cast<uintptr_t>(team.Get(rows.at, begin + j)));
              },
              [&](uint32_t j, const Elements<kWidth>& added) {
                const bool is_first = from + begin + j == 0;
                for (uint32_t e = 0; e < kWidth; ++e) {
                  own.of[e] = is_first ? added.of[e] : own.of[e] + added.of[e];
                }
              });
          return own;
        });
      }
    }
    team.Strided(Team::kLanes, [&](uint32_t lane) {
      if (base + lane < units) {
        StoreElements(RowType::kFp32, sum, base + lane, team.Own(sums, lane));
      }
    });
  }
  team.Sync();
}

template <typename Team, typename F>
HOTBED_ROW_FN void SumRows(const Team& team, uint32_t dim, uint32_t count, uint8_t* sum, F row) {
  if (IsInFours(dim)) {
    SumRowsBy<4>(team, dim, count, sum, row);
  } else {
    SumRowsBy<1>(team, dim, count, sum, row);
  }
}

}  // namespace device
}  // namespace hotbed

#endif  // HOTBED_DEVICE_ROW_SUMS_H_
