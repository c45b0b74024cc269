// Reads: probe, gather, pooled gather, and wire rows to fp32.
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

// Ids to row numbers, kNoRow for rows that are not there; with `rows`, the rows too, in the
// segments' types. One unit an id.
struct ReadWork {
  static constexpr uint32_t kLanes = 16;
  const Table* tables = nullptr;
  Segments segments;
  const uint64_t* ids = nullptr;
  bool hold = false;            // what is found stays until it is released
  bool visit = true;            // counts a visit of each row found
  uint32_t* numbers = nullptr;  // out; one an id
  uint8_t* rows = nullptr;      // out; or null
  uint8_t* flags = nullptr;     // out; one an id: 1 = the row exists; or null

  HOTBED_ROW_FN uint32_t units() const { return segments.ids; }
};

template <typename Team>
HOTBED_ROW_FN void DoUnit(const Team& team, const ReadWork& work, const Unit& unit) {
  const uint32_t k = unit.number;
  const Segment& segment = work.segments.at[SegmentOf(work.segments, k)];
  const Table& table = work.tables[segment.table];
  const uint64_t id = work.ids[k];
  const uint32_t slot = FindSlot(team, table, PositionOfId(table.shape, id));
  const bool found = slot != kNoRow;
  if (found && work.visit) Visit(team, table, slot, work.hold);
  team.Once([&]() {
    work.numbers[k] = found ? table.row_base + slot : kNoRow;
    if (work.flags != nullptr) work.flags[k] = found;
  });
  if (work.rows == nullptr) return;
  uint8_t* const out = work.rows + RowOffset(segment, table.shape.dim, k);
  if (found) {
    EncodeRow(team, table.shape, table.WeightsAt(slot), segment.type, out);
  } else if (segment.absent_is_initial) {
    WriteRow(team, table.shape.dim, segment.type, out,
             [&](uint32_t i) { return FirstWeight(table.shape, id, i); });
  }
}

// Bags of rows whose numbers a ReadWork has found, to one row each (row_math/pooling.h). Bag b has
// ids [offsets[b], offsets[b + 1]); segments cut bags as they cut ids elsewhere, with rows_at of
// pooled rows. Rows that are not there count with their first value where the segment says that
// they exist nowhere; else the bag is marked incomplete, and its row means nothing. One unit a bag.
struct PoolWork {
  static constexpr uint32_t kLanes = 32;
  const Table* tables = nullptr;
  Segments segments;  // of bags
  const uint32_t* offsets = nullptr;
  const uint64_t* ids = nullptr;
  const uint32_t* numbers = nullptr;
  RowPooling pooling = RowPooling::kSum;
  bool mean = false;               // kSum: divided by the number of ids
  const float* weights = nullptr;  // kSum: one an id, or null
  uint8_t* rows = nullptr;         // out: fp32, fp16 or bf16
  uint32_t* arg_max = nullptr;     // kMax, out: dim a bag, at arg_max + bag * arg_stride; or null
  uint32_t arg_stride = 0;         // elements
  uint8_t* incomplete = nullptr;   // out: one a bag

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

HOTBED_ROW_FN float SumOfBag(const PoolWork& work, const Table& table, uint32_t first,
                             uint32_t limit, uint32_t i) {
  float sum = 0.0f;
  for (uint32_t k = first; k < limit; ++k) {
    const float value = PooledElement(work, table, k, i);
    sum += work.weights != nullptr ? value * work.weights[k] : value;
  }
  return work.mean && limit > first ? sum / static_cast<float>(limit - first) : sum;
}

template <typename Team>
HOTBED_ROW_FN void MaxOfBag(const Team& team, const PoolWork& work, const Table& table,
                            const Segment& segment, uint32_t bag, uint8_t* out) {
  const uint32_t first = work.offsets[bag], limit = work.offsets[bag + 1];
  team.Strided(table.shape.dim, [&](uint32_t i) {
    float largest = 0.0f;
    uint32_t arg = kNoArgMax;
    for (uint32_t k = first; k < limit; ++k) {
      const float value = PooledElement(work, table, k, i);
      if (k > first && !IsLarger(value, largest)) continue;
      largest = value;
      arg = k - first;
    }
    StoreElement(segment.type, out, i, largest);
    if (work.arg_max != nullptr) work.arg_max[uint64_t{work.arg_stride} * bag + i] = arg;
  });
}

template <typename Team>
HOTBED_ROW_FN void DoUnit(const Team& team, const PoolWork& work, const Unit& unit) {
  const uint32_t bag = unit.number;
  const Segment& segment = work.segments.at[SegmentOf(work.segments, bag)];
  const Table& table = work.tables[segment.table];
  const uint32_t first = work.offsets[bag], limit = work.offsets[bag + 1];
  const uint32_t missing = team.Min(limit - first, [&](uint32_t k) {
    return work.numbers[first + k] == kNoRow && !segment.absent_is_initial ? k : kNoRow;
  });
  team.Once([&]() { work.incomplete[bag] = missing != kNoRow; });
  if (missing != kNoRow) return;
  uint8_t* const out = work.rows + RowOffset(segment, table.shape.dim, bag);
  if (work.pooling == RowPooling::kMax) return MaxOfBag(team, work, table, segment, bag, out);
  team.Strided(table.shape.dim, [&](uint32_t i) {
    StoreElement(segment.type, out, i, SumOfBag(work, table, first, limit, i));
  });
}

// Wire rows of any type to fp32, as a client reads them. One unit a row.
struct DecodeWork {
  static constexpr uint32_t kLanes = 16;
  const uint8_t* rows = nullptr;  // count * RowWireBytes(type, dim)
  RowType type = RowType::kFp32;
  uint32_t dim = 0;
  uint32_t count = 0;
  uint8_t* out = nullptr;  // count * dim floats

  HOTBED_ROW_FN uint32_t units() const { return count; }
};

template <typename Team>
HOTBED_ROW_FN void DoUnit(const Team& team, const DecodeWork& work, const Unit& unit) {
  const uint64_t k = unit.number;
  DecodeWireRow(team, work.type, work.rows + k * RowWireBytes(work.type, work.dim), work.dim,
                work.out + 4 * k * work.dim);
}

}  // namespace device
}  // namespace hotbed

#endif  // HOTBED_DEVICE_READ_WORK_H_
