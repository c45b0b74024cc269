// Works that read: probe, gather, pooled gather, and decoding of wire rows.
#ifndef HOTBED_DEVICE_READ_WORK_H_
#define HOTBED_DEVICE_READ_WORK_H_

#include <cstdint>

#include "device/batch.h"
#include "device/buckets.h"
#include "device/row_bytes.h"
#include "device/table.h"
#include "row_math/pooling.h"

namespace hotbed {
namespace device {

// Ids to row numbers, kNoRow for rows that are not there. With `rows`, also writes the rows that
// are there and go in fours, in the segments' types. One unit per 32 ids. A LeftWork after it
// writes the other rows, where a segment LeavesRows: so most messages need few registers, and many
// rows are in flight.
struct ReadWork {
  static constexpr uint32_t kLanes = 32;
  const Table* tables = nullptr;
  Segments segments;
  const uint64_t* ids = nullptr;
  bool hold = false;            // rows that are found stay until they are released
  bool visit = true;            // counts a visit of each row found
  uint32_t* numbers = nullptr;  // out; one per id
  uint32_t* missing = nullptr;  // out; bit k % 32 of word k / 32: id k is kNoRow; or null
  uint8_t* rows = nullptr;      // out; or null
  uint8_t* flags = nullptr;     // out; one per id: 1 = the row exists; or null

  HOTBED_ROW_FN uint32_t units() const { return (segments.ids + kLanes - 1) / kLanes; }
};

// Sends rows [begin, end) of the unit whose first id is `from`, all of one segment, to the wire.
template <typename Team>
HOTBED_ROW_FN void SendRows(const Team& team, const ReadWork& work, uint32_t from,
                            const Segment& segment,
                            const typename Team::template Values<uint32_t>& slots, uint32_t begin,
                            uint32_t end) {
  const Table& table = work.tables[segment.table];
  if (!IsSentInFours(table.shape, segment.type)) return;
  const RowsInMemory rows = {table.weights, table.shape.weight_stride()};
  SendInFours(team, table.shape, segment.type, rows, slots, begin, end,
              work.rows + RowOffset(segment, table.shape.dim, from + begin));
}

// Each lane looks for an id of its own, so that the loads of 32 look-ups are in flight; then all
// lanes send the rows.
template <typename Team>
HOTBED_ROW_FN void DoUnit(const Team& team, const ReadWork& work, const Unit& unit) {
  const uint32_t from = Team::kLanes * unit.number;
  const uint32_t left = work.segments.ids - from;
  const uint32_t count = left < Team::kLanes ? left : Team::kLanes;
  const auto segments = team.Map(
      [&](uint32_t lane) { return SegmentOf(work.segments, from + (lane < count ? lane : 0)); });
  const auto table_of = [&](uint32_t lane) -> const Table& {
    return work.tables[work.segments.at[team.Own(segments, lane)].table];
  };
  const auto slots = team.Map([&](uint32_t lane) {
    if (lane >= count) return kNoRow;
    const Table& table = table_of(lane);
    return FindSlot(table, PositionOfId(table.shape, work.ids[from + lane]));
  });
  // Loaded before the rows, so that nothing waits for them alone.
  const auto bits = team.Map([&](uint32_t lane) {
    const uint32_t slot = team.Own(slots, lane);
    return slot != kNoRow && work.visit ? *table_of(lane).BitsAt(slot) : uint8_t{0};
  });
  for (uint32_t begin = 0, end = 0; work.rows != nullptr && begin < count; begin = end) {
    const uint32_t number = team.Get(segments, begin);
    end = EndOfSame(team, segments, number, begin, count);
    SendRows(team, work, from, work.segments.at[number], slots, begin, end);
  }
  if (work.missing != nullptr) {
    const uint32_t absent = team.Ballot(slots, [](uint32_t slot) { return slot == kNoRow; });
    const uint32_t ids = count == Team::kLanes ? ~0u : (1u << count) - 1;
    team.Once([&]() { work.missing[unit.number] = absent & ids; });
  }
  team.Strided(count, [&](uint32_t lane) {
    const uint32_t slot = team.Own(slots, lane);
    const bool found = slot != kNoRow;
    const Table& table = table_of(lane);
    work.numbers[from + lane] = found ? table.row_base + slot : kNoRow;
    if (work.flags != nullptr) work.flags[from + lane] = found;
    if (found && work.visit) Visit(team, table, slot, team.Own(bits, lane), work.hold);
  });
}

// Whether a ReadWork leaves rows of this segment to LeftWork.
HOTBED_ROW_FN bool LeavesRows(const Segment& segment, const RowShape& shape) {
  return segment.absent_is_initial || !IsSentInFours(shape, segment.type);
}

// Writes the rows that a ReadWork over the same batch has left: int8 rows, rows of a dim that is
// not IsInFours, first values of rows that exist nowhere. One unit per id.
struct LeftWork {
  static constexpr uint32_t kLanes = 16;
  ReadWork read;

  HOTBED_ROW_FN uint32_t units() const { return read.segments.ids; }
};

template <typename Team>
HOTBED_ROW_FN void DoUnit(const Team& team, const LeftWork& work, const Unit& unit) {
  const ReadWork& read = work.read;
  const uint32_t k = unit.number;
  const Segment& segment = read.segments.at[SegmentOf(read.segments, k)];
  const Table& table = read.tables[segment.table];
  const uint32_t number = read.numbers[k];
  uint8_t* const out = read.rows + RowOffset(segment, table.shape.dim, k);
  if (number == kNoRow) {
    if (!segment.absent_is_initial) return;
    WriteFirstWeights(team, table.shape, read.ids[k], segment.type, out);
  } else if (!IsSentInFours(table.shape, segment.type)) {
    EncodeRow(team, table.shape, table.WeightsAt(number - table.row_base), segment.type, out);
  }
}

// Pools bags of rows whose numbers a ReadWork has found, to one row each (row_math/pooling.h). Bag
// b has ids [offsets[b], offsets[b + 1]); segments cut bags as they cut ids elsewhere, with rows_at
// of pooled rows. A row that is not there counts with its first value if the segment says that it
// exists nowhere; else the bag is marked incomplete and its row holds no values. One unit per bag.
struct PoolWork {
  static constexpr uint32_t kLanes = 16;
  const Table* tables = nullptr;
  Segments segments;  // of bags
  const uint32_t* offsets = nullptr;
  const uint64_t* ids = nullptr;
  const uint32_t* numbers = nullptr;
  RowPooling pooling = RowPooling::kSum;
  bool mean = false;               // kSum: divided by the number of ids
  const float* weights = nullptr;  // kSum: one per id, or null
  uint8_t* rows = nullptr;         // out: fp32, fp16 or bf16
  uint32_t* arg_max = nullptr;     // kMax, out: dim per bag, at arg_max + bag * arg_stride; or null
  uint32_t arg_stride = 0;         // elements
  uint8_t* incomplete = nullptr;   // out: one per bag

  HOTBED_ROW_FN uint32_t units() const { return segments.ids; }
};

// Element i of row k of a batch of ids.
HOTBED_ROW_FN float PooledElement(const PoolWork& work, const Table& table, uint32_t k,
                                  uint32_t i) {
  const uint32_t number = work.numbers[k];
  if (number == kNoRow) return FirstWeight(table.shape, work.ids[k], i);
  return LoadElement(RowTypeOf(table.shape.weight_type), table.WeightsAt(number - table.row_base),
                     i);
}

HOTBED_ROW_FN float MeanOf(const PoolWork& work, float sum, uint32_t ids) {
  return work.mean && ids > 0 ? sum / static_cast<float>(ids) : sum;
}

HOTBED_ROW_FN float SumOfBag(const PoolWork& work, const Table& table, uint32_t first,
                             uint32_t limit, uint32_t i) {
  float sum = 0.0f;
  for (uint32_t k = first; k < limit; ++k) {
    const float value = PooledElement(work, table, k, i);
    sum += work.weights != nullptr ? value * work.weights[k] : value;
  }
  return MeanOf(work, sum, limit - first);
}

HOTBED_ROW_FN void MaxOfBag(const PoolWork& work, const Table& table, RowType type, uint32_t bag,
                            uint32_t i, uint8_t* out) {
  const uint32_t first = work.offsets[bag], limit = work.offsets[bag + 1];
  float largest = 0.0f;
  uint32_t arg = kNoArgMax;
  for (uint32_t k = first; k < limit; ++k) {
    const float value = PooledElement(work, table, k, i);
    if (k > first && !IsLarger(value, largest)) continue;
    largest = value;
    arg = k - first;
  }
  StoreElement(type, out, i, largest);
  if (work.arg_max != nullptr) work.arg_max[uint64_t{work.arg_stride} * bag + i] = arg;
}

// Pools any bag, one element after the other.
template <typename Team>
HOTBED_ROW_FN void PoolByElement(const Team& team, const PoolWork& work, const Table& table,
                                 RowType type, uint32_t bag, uint8_t* out) {
  team.Strided(table.shape.dim, [&](uint32_t i) {
    if (work.pooling == RowPooling::kMax) return MaxOfBag(work, table, type, bag, i, out);
    StoreElement(type, out, i, SumOfBag(work, table, work.offsets[bag], work.offsets[bag + 1], i));
  });
}

// A sum or mean of rows that are all there, of a dim that IsInFours. A lane adds rows in order
// while loads of later rows are in flight.
template <typename Team>
HOTBED_ROW_FN void SumInFours(const Team& team, const PoolWork& work, const Table& table,
                              RowType type, uint32_t bag, uint8_t* out) {
  const uint32_t first = work.offsets[bag], ids = work.offsets[bag + 1] - first;
  const RowType stored = RowTypeOf(table.shape.weight_type);
  const uint32_t quads = table.shape.dim / 4;
  // Kept in registers: exchanges between lanes are barriers to the compiler.
  const uint8_t* const rows_of_table = table.weights;
  const uint32_t stride = table.shape.weight_stride();
  for (uint32_t base = 0; base < quads; base += Team::kLanes) {
    auto sums = team.Map([&](uint32_t) { return Elements<4>{}; });
    for (uint32_t from = 0; from < ids; from += Team::kLanes) {
      const uint32_t rows = ids - from < Team::kLanes ? ids - from : Team::kLanes;
      const auto slots = team.Map([&](uint32_t lane) {
        return work.numbers[first + from + (lane < rows ? lane : 0)] - table.row_base;
      });
      const auto weights = team.Map([&](uint32_t lane) {
        return work.weights == nullptr ? 1.0f
                                       : work.weights[first + from + (lane < rows ? lane : 0)];
      });
      sums = team.Map([&](uint32_t lane) {
        // Lanes beyond the row's end repeat loads of others: Get needs all lanes.
        const uint32_t quad = base + lane < quads ? base + lane : quads - 1;
        Elements<4> sum = team.Own(sums, lane);
        ForRowsAhead<4>(
            rows, stored, quad,
            [&](uint32_t j) { return rows_of_table + uint64_t{stride} * team.Get(slots, j); },
            [&](uint32_t j, const Elements<4>& row) {
              const float weight = team.Get(weights, j);
              for (uint32_t e = 0; e < 4; ++e) {
                sum.of[e] += work.weights != nullptr ? row.of[e] * weight : row.of[e];
              }
            });
        return sum;
      });
    }
    team.Strided(Team::kLanes, [&](uint32_t lane) {
      if (base + lane >= quads) return;
      Elements<4> sum = team.Own(sums, lane);
      for (uint32_t e = 0; e < 4; ++e) sum.of[e] = MeanOf(work, sum.of[e], ids);
      StoreElements(type, out, base + lane, sum);
    });
  }
}

template <typename Team>
HOTBED_ROW_FN void DoUnit(const Team& team, const PoolWork& work, const Unit& unit) {
  const uint32_t bag = unit.number;
  const Segment& segment = work.segments.at[SegmentOf(work.segments, bag)];
  const Table& table = work.tables[segment.table];
  const uint32_t first = work.offsets[bag], limit = work.offsets[bag + 1];
  const uint32_t missing = team.Min(
      limit - first, [&](uint32_t k) { return work.numbers[first + k] == kNoRow ? k : kNoRow; });
  const bool is_whole = missing == kNoRow || segment.absent_is_initial;
  team.Once([&]() { work.incomplete[bag] = !is_whole; });
  if (!is_whole) return;
  uint8_t* const out = work.rows + RowOffset(segment, table.shape.dim, bag);
  const bool is_plain = missing == kNoRow && work.pooling != RowPooling::kMax;
  if (!is_plain || !IsInFours(table.shape.dim)) {
    return PoolByElement(team, work, table, segment.type, bag, out);
  }
  SumInFours(team, work, table, segment.type, bag, out);
}

}  // namespace device
}  // namespace hotbed

#endif  // HOTBED_DEVICE_READ_WORK_H_
