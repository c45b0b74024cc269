// Updates: gradients of the same row are summed in a fixed order, and each row takes one step.
//
// Ids of a batch, sorted by row number (stable, so that equal ones stay in the order of the batch),
// form runs. A run's gradients are summed in fp32 in the order of the batch, beginning with the
// first; runs of more than kPieceRows in pieces of that many, and the pieces' sums in order. So the
// bits depend on the order of the batch alone. Two works, in this order, for a batch:
//
//   PieceWork       sums the pieces of long runs
//   StepWork<kind>  one a kind of optimizer: sums short runs, or the pieces' sums, and steps rows
//
// Runs are found by looking at neighbours, and the pieces of long ones by bisection: nothing is
// counted or listed beforehand.
#ifndef HOTBED_DEVICE_UPDATE_WORK_H_
#define HOTBED_DEVICE_UPDATE_WORK_H_

#include <cstdint>

#include "device/batch.h"
#include "device/row_step.h"
#include "device/table.h"

namespace hotbed {
namespace device {

// The square of it bounds the time of the longest possible run: a batch has at most 2^20 ids.
constexpr uint32_t kPieceRows = 1024;

struct UpdateBatch {
  const Table* tables = nullptr;
  Segments segments;
  const uint32_t* sorted = nullptr;  // row numbers, growing; kNoRow (rows elsewhere) comes last
  const uint32_t* order = nullptr;   // of each: which id of the batch
  const uint8_t* gradients = nullptr;
  uint8_t* sums = nullptr;    // a row of sum_stride bytes for each worker of StepWork
  uint8_t* pieces = nullptr;  // PieceSums(ids) rows of sum_stride bytes
  uint32_t sum_stride = 0;    // 4 * the largest dim, a multiple of 16
};

// Windows of kPieceRows sorted ids; in each of them at most one long run begins, and at most one
// further piece of a long run.
HOTBED_ROW_FN uint32_t Windows(uint32_t ids) { return (ids + kPieceRows - 1) / kPieceRows; }
HOTBED_ROW_FN uint32_t PieceSums(uint32_t ids) { return 2 * Windows(ids); }
HOTBED_ROW_FN uint32_t PieceAt(uint32_t at, bool begins_run) {
  return 2 * (at / kPieceRows) + begins_run;
}

// The first of the sorted ids that is `number` or more.
HOTBED_ROW_FN uint32_t RunBegin(const UpdateBatch& batch, uint32_t number, uint32_t limit) {
  uint32_t low = 0;
  for (uint32_t high = limit; low < high;) {
    const uint32_t middle = low + (high - low) / 2;
    batch.sorted[middle] < number ? low = middle + 1 : high = middle;
  }
  return low;
}

HOTBED_ROW_FN bool SameRun(const UpdateBatch& batch, uint32_t at, uint32_t number) {
  return at < batch.segments.ids && batch.sorted[at] == number;
}

// The long run that begins in a window, or the piece after the first that does; kNoRow: none.
HOTBED_ROW_FN uint32_t LongRunIn(const UpdateBatch& batch, uint32_t window) {
  const uint32_t end = (window + 1) * kPieceRows;
  if (end >= batch.segments.ids || batch.sorted[end] == kNoRow) return kNoRow;
  const uint32_t begin = RunBegin(batch, batch.sorted[end], end);
  const bool begins_here = begin < end && begin >= end - kPieceRows;
  return begins_here && SameRun(batch, begin + kPieceRows, batch.sorted[end]) ? begin : kNoRow;
}
HOTBED_ROW_FN uint32_t LaterPieceIn(const UpdateBatch& batch, uint32_t window) {
  const uint32_t from = window * kPieceRows;
  const uint32_t number = batch.sorted[from];
  if (number == kNoRow) return kNoRow;
  const uint32_t begin = RunBegin(batch, number, from);
  if (begin == from) return kNoRow;
  const uint32_t at = from + (kPieceRows - (from - begin) % kPieceRows) % kPieceRows;
  return SameRun(batch, at, number) ? at : kNoRow;
}

// The end of a run, but at most `limit` further than `at`.
template <typename Team>
HOTBED_ROW_FN uint32_t RunEnd(const Team& team, const UpdateBatch& batch, uint32_t at,
                              uint32_t limit) {
  const uint32_t number = batch.sorted[at];
  for (uint32_t from = at; from < at + limit; from += Team::kLanes) {
    const auto outside = team.Map([&](uint32_t lane) {
      return from + lane >= at + limit || !SameRun(batch, from + lane, number);
    });
    const uint32_t mask = team.Ballot(outside, [](bool is) { return is; });
    if (mask != 0) return from + LowestBit(mask);
  }
  return at + limit;
}

HOTBED_ROW_FN const uint8_t* GradientOf(const UpdateBatch& batch, const Segment& segment,
                                        uint32_t dim, uint32_t k) {
  return batch.gradients + RowOffset(segment, dim, k);
}

// Where the gradients of one row lie: its ids may be in several segments, all of the same table,
// but neighbours are mostly in the same.
class GradientCursor {
 public:
  HOTBED_ROW_FN explicit GradientCursor(const UpdateBatch& batch) : batch_(batch) {}
  HOTBED_ROW_FN float Load(uint32_t dim, uint32_t k, uint32_t i) {
    if (k < first_ || k >= limit_) Seek(k);
    const Segment& segment = batch_.segments.at[segment_];
    return LoadElement(segment.type, GradientOf(batch_, segment, dim, k), i);
  }

 private:
  HOTBED_ROW_FN void Seek(uint32_t k) {
    const Segments& segments = batch_.segments;
    segment_ = SegmentOf(segments, k);
    first_ = segments.at[segment_].first;
    limit_ = segment_ + 1 < segments.count ? segments.at[segment_ + 1].first : segments.ids;
  }

  const UpdateBatch& batch_;
  uint32_t segment_ = 0;
  uint32_t first_ = 0;
  uint32_t limit_ = 0;
};

// sum = the gradients of sorted ids [first, limit), all of one row.
template <typename Team>
HOTBED_ROW_FN void SumRun(const Team& team, const UpdateBatch& batch, uint32_t dim, uint32_t first,
                          uint32_t limit, uint8_t* sum) {
  team.Strided(dim, [&](uint32_t i) {
    GradientCursor cursor(batch);
    float total = cursor.Load(dim, batch.order[first], i);
    for (uint32_t at = first + 1; at < limit; ++at) {
      total += cursor.Load(dim, batch.order[at], i);
    }
    StoreAligned(sum, i, total);
  });
  team.Sync();
}

// The row of sorted id `at`.
struct RunRow {
  const Segment* segment;
  const Table* table;
  uint32_t slot;
  uint32_t k;  // of the batch
};
HOTBED_ROW_FN RunRow RowOfRun(const UpdateBatch& batch, uint32_t at) {
  RunRow row;
  row.k = batch.order[at];
  row.segment = &batch.segments.at[SegmentOf(batch.segments, row.k)];
  row.table = &batch.tables[row.segment->table];
  row.slot = batch.sorted[at] - row.table->row_base;
  return row;
}

// One step of a row, or its new weights; marks it dirty.
template <OptimizerKind kKind, typename Team>
HOTBED_ROW_FN void StepOf(const Team& team, const RunRow& row, RowType type,
                          const uint8_t* gradient) {
  const Table& table = *row.table;
  const RowShape& shape = table.shape;
  if (row.segment->assign) {
    AssignRow(team, table, row.slot, type, gradient);
  } else {
    const UpdatePlan plan{shape.optimizer, row.segment->scalars, shape.weight_type, type,
                          shape.dim};
    RowKey key{shape.seed, 0, shape.column_first};
    if (shape.optimizer.stochastic_rounding) {
      key.id = IdOfPosition(shape, table.PositionAt(row.slot));
    }
    StepRow<kKind>(team, plan, key, table.WeightsAt(row.slot), table.StateAt(row.slot), gradient);
  }
  team.Once([&]() { team.Or(table.BitsAt(row.slot), kDirty); });
}

// What a run's row is stepped with. Of several new weights for a row the last one counts.
struct RunGradient {
  RunRow row;
  RowType type;
  const uint8_t* at;
};
HOTBED_ROW_FN RunGradient OneGradient(const UpdateBatch& batch, uint32_t at) {
  const RunRow row = RowOfRun(batch, at);
  return {row, row.segment->type, GradientOf(batch, *row.segment, row.table->shape.dim, row.k)};
}

struct PieceWork {
  static constexpr uint32_t kLanes = 32;
  UpdateBatch batch;

  HOTBED_ROW_FN uint32_t units() const { return PieceSums(batch.segments.ids); }
};

template <typename Team>
HOTBED_ROW_FN void DoUnit(const Team& team, const PieceWork& work, const Unit& unit) {
  const UpdateBatch& batch = work.batch;
  const bool begins = unit.number % 2 != 0;
  const uint32_t at =
      begins ? LongRunIn(batch, unit.number / 2) : LaterPieceIn(batch, unit.number / 2);
  if (at == kNoRow) return;
  const RunRow row = RowOfRun(batch, at);
  SumRun(team, batch, row.table->shape.dim, at, RunEnd(team, batch, at, kPieceRows),
         batch.pieces + uint64_t{batch.sum_stride} * unit.number);
}

// Units of long runs first, one a window, as they take longest; then those of short ones, which
// look at as many sorted ids as they have lanes.
template <OptimizerKind kKind>
struct StepWork {
  static constexpr uint32_t kLanes = 32;
  UpdateBatch batch;

  HOTBED_ROW_FN uint32_t long_units() const {
    return batch.segments.ids > kPieceRows ? Windows(batch.segments.ids) : 0;
  }
  HOTBED_ROW_FN uint32_t units() const {
    return long_units() + (batch.segments.ids + kLanes - 1) / kLanes;
  }
};

// The sum of a run's gradients, which are more than one, in a row that stays until the team's next
// step. The pieces of a long run have been summed.
template <typename Team>
HOTBED_ROW_FN uint8_t* SumOfRun(const Team& team, const UpdateBatch& batch, uint32_t dim,
                                uint32_t first, uint32_t end, uint32_t worker) {
  if (end - first <= kPieceRows) {
    uint8_t* const sum = batch.sums + uint64_t{batch.sum_stride} * worker;
    team.Sync();  // the room may still be read for the row before
    SumRun(team, batch, dim, first, end, sum);
    return sum;
  }
  uint8_t* const sum = batch.pieces + uint64_t{batch.sum_stride} * PieceAt(first, true);
  for (uint32_t at = first + kPieceRows; at < end; at += kPieceRows) {
    const uint8_t* const piece = batch.pieces + uint64_t{batch.sum_stride} * PieceAt(at, false);
    team.Strided(dim, [&](uint32_t i) {
      StoreAligned(sum, i, LoadAligned<float>(sum, i) + LoadAligned<float>(piece, i));
    });
  }
  team.Sync();
  return sum;
}

template <OptimizerKind kKind, typename Team>
HOTBED_ROW_FN void StepRun(const Team& team, const UpdateBatch& batch, uint32_t first, bool is_long,
                           uint32_t worker) {
  const RunRow row = RowOfRun(batch, first);
  if (StepKind(row.table->shape.optimizer.kind) != kKind) return;
  const uint32_t end = is_long ? RunBegin(batch, batch.sorted[first] + 1, batch.segments.ids)
                               : RunEnd(team, batch, first, kPieceRows + 1);
  if (!is_long && end - first > kPieceRows) return;  // a long one, of a unit of its own
  const bool sums = end - first > 1 && !row.segment->assign;
  RunGradient gradient = OneGradient(batch, sums ? first : end - 1);
  if (sums) {
    gradient.type = RowType::kFp32;
    gradient.at = SumOfRun(team, batch, row.table->shape.dim, first, end, worker);
  }
  // The step stands here once: it is what the kernel's code and its compiling consist of.
  StepOf<kKind>(team, gradient.row, gradient.type, gradient.at);
}

template <OptimizerKind kKind, typename Team>
HOTBED_ROW_FN void DoUnit(const Team& team, const StepWork<kKind>& work, const Unit& unit) {
  const UpdateBatch& batch = work.batch;
  const uint32_t long_units = work.long_units();
  const bool is_long = unit.number < long_units;
  uint32_t first = 0, mask = 0;
  if (is_long) {
    first = LongRunIn(batch, unit.number);
    mask = first != kNoRow ? 1 : 0;
  } else {
    first = Team::kLanes * (unit.number - long_units);
    const auto begins = team.Map([&](uint32_t lane) {
      const uint32_t at = first + lane;
      return at < batch.segments.ids && batch.sorted[at] != kNoRow &&
             (at == 0 || batch.sorted[at - 1] != batch.sorted[at]);
    });
    mask = team.Ballot(begins, [](bool is) { return is; });
  }
  for (; mask != 0; mask &= mask - 1) {
    StepRun<kKind>(team, batch, first + LowestBit(mask), is_long, unit.worker);
  }
}

}  // namespace device
}  // namespace hotbed

#endif  // HOTBED_DEVICE_UPDATE_WORK_H_
