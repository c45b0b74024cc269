// Updates: gradients of the same row are summed in a fixed order, and each row takes one step.
//
// Ids of a batch, sorted by row number (stable, so that equal ones stay in the order of the batch),
// form runs. A run's gradients are summed in fp32 in the order of the batch, beginning with the
// first; runs of more than kPieceRows in pieces of that many, and the pieces' sums in order. So the
// bits depend on the order of the batch alone. Works, in this order, for a batch:
//
//   SumWork         the sums of short runs, and of the pieces of long ones
//   StepWork<kind>  one a kind of optimizer: steps rows, four elements a lane at a time
//   AnyStepWork     the same for what is left: of whatever kind, element by element
//
// Runs are found by looking at neighbours, and the pieces of long ones by bisection: nothing is
// counted or listed beforehand.
#ifndef HOTBED_DEVICE_UPDATE_WORK_H_
#define HOTBED_DEVICE_UPDATE_WORK_H_

#include <cstdint>

#include "device/batch.h"
#include "device/row_step.h"
#include "device/row_sums.h"
#include "device/step_kinds.h"
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
  uint8_t* sums = nullptr;  // SumsOf(ids) rows of sum_stride bytes
  uint32_t sum_stride = 0;  // 4 * the largest dim, a multiple of 16
};

// Runs and pieces of two gradients or more have their sums at half the place where they begin,
// which no other begins at; one gradient is its own sum.
HOTBED_ROW_FN uint32_t SumsOf(uint32_t ids) { return ids / 2 + 1; }
HOTBED_ROW_FN uint8_t* SumAt(const UpdateBatch& batch, uint32_t first) {
  return batch.sums + uint64_t{batch.sum_stride} * (first / 2);
}

// Windows of kPieceRows sorted ids; in each of them at most one long run begins, and at most one
// further piece of a long run.
HOTBED_ROW_FN uint32_t Windows(uint32_t ids) { return (ids + kPieceRows - 1) / kPieceRows; }

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

// The row of sorted id `at`.
struct RunRow {
  const Segment* segment;
  const Table* table;
  uint32_t slot;
  uint32_t k;  // of the batch
};
HOTBED_ROW_FN RunRow RowOfRun(const UpdateBatch& batch, uint32_t at, uint32_t k, uint32_t segment) {
  RunRow row;
  row.k = k;
  row.segment = &batch.segments.at[segment];
  row.table = &batch.tables[row.segment->table];
  row.slot = batch.sorted[at] - row.table->row_base;
  return row;
}
HOTBED_ROW_FN RunRow RowOfRun(const UpdateBatch& batch, uint32_t at) {
  const uint32_t k = batch.order[at];
  return RowOfRun(batch, at, k, SegmentOf(batch.segments, k));
}

// One step of a row. The caller has looked that its kind is kKind.
template <OptimizerKind kKind, uint32_t kWidth, typename Team>
HOTBED_ROW_FN void StepOf(const Team& team, const RunRow& row, RowType type,
                          const uint8_t* gradient) {
  const Table& table = *row.table;
  const RowShape& shape = table.shape;
  const UpdatePlan plan{shape.optimizer, row.segment->scalars, shape.weight_type, type, shape.dim};
  RowKey key{shape.seed, 0, shape.column_first};
  if (shape.optimizer.stochastic_rounding) {
    key.id = IdOfPosition(shape, table.PositionAt(row.slot));
  }
  StepRow<kKind, kWidth>(team, plan, key, table.WeightsAt(row.slot), table.StateAt(row.slot),
                         gradient);
}

// Units of long runs first, as they take longest; then those of short ones, which look at as many
// sorted ids as they have lanes.
HOTBED_ROW_FN uint32_t LongUnits(const UpdateBatch& batch) {
  return batch.segments.ids > kPieceRows ? Windows(batch.segments.ids) : 0;
}
HOTBED_ROW_FN uint32_t ShortUnits(const UpdateBatch& batch, uint32_t lanes) {
  return (batch.segments.ids + lanes - 1) / lanes;
}

// The runs of two gradients or more that begin in a unit's sorted ids, as a mask; with `single`,
// the others too.
template <typename Team>
HOTBED_ROW_FN uint32_t RunsIn(const Team& team, const UpdateBatch& batch, uint32_t from,
                              bool single) {
  const auto begins = team.Map([&](uint32_t lane) {
    const uint32_t at = from + lane;
    if (at >= batch.segments.ids || batch.sorted[at] == kNoRow) return false;
    const bool first = at == 0 || batch.sorted[at - 1] != batch.sorted[at];
    return first && (single || SameRun(batch, at + 1, batch.sorted[at]));
  });
  return team.Ballot(begins, [](bool is) { return is; });
}

struct SumWork {
  static constexpr uint32_t kLanes = 32;
  UpdateBatch batch;

  HOTBED_ROW_FN uint32_t units() const { return 2 * LongUnits(batch) + ShortUnits(batch, kLanes); }
};

// The sum of sorted ids [first, limit), all of one row. They may be in several segments, all of the
// same table; of new weights there are no sums.
template <typename Team>
HOTBED_ROW_FN void SumRun(const Team& team, const UpdateBatch& batch, uint32_t first,
                          uint32_t limit) {
  const RunRow row = RowOfRun(batch, first);
  if (limit - first < 2 || row.segment->assign) return;
  const uint32_t dim = row.table->shape.dim;
  SumRows(team, dim, limit - first, SumAt(batch, first), [&](uint32_t i) {
    const uint32_t k = batch.order[first + i];
    const Segment& segment = batch.segments.at[SegmentOf(batch.segments, k)];
    return RowToAdd{GradientOf(batch, segment, dim, k), segment.type};
  });
}

template <typename Team>
HOTBED_ROW_FN void DoUnit(const Team& team, const SumWork& work, const Unit& unit) {
  const UpdateBatch& batch = work.batch;
  const uint32_t pieces = 2 * LongUnits(batch);
  uint32_t first, limit = kPieceRows, mask = 1;
  if (unit.number < pieces) {
    const uint32_t window = unit.number / 2;
    first = unit.number % 2 != 0 ? LongRunIn(batch, window) : LaterPieceIn(batch, window);
    if (first == kNoRow) return;
  } else {
    first = Team::kLanes * (unit.number - pieces);
    limit = kPieceRows + 1;
    mask = RunsIn(team, batch, first, false);
  }
  for (; mask != 0; mask &= mask - 1) {
    const uint32_t begin = first + LowestBit(mask);
    const uint32_t end = RunEnd(team, batch, begin, limit);
    // A long run is summed in pieces, by the units of its windows.
    if (end - begin <= kPieceRows) SumRun(team, batch, begin, end);
  }
}

// What a run's row is stepped with. Of several new weights for a row the last one counts.
struct RunGradient {
  RunRow row;
  RowType type;
  const uint8_t* at;
};
HOTBED_ROW_FN RunGradient OneGradient(const UpdateBatch& batch, const RunRow& row) {
  return {row, row.segment->type, GradientOf(batch, *row.segment, row.table->shape.dim, row.k)};
}

// The sum of a long run, out of its pieces: into the place of the first.
template <typename Team>
HOTBED_ROW_FN void JoinPieces(const Team& team, const UpdateBatch& batch, uint32_t dim,
                              uint32_t first, uint32_t end) {
  uint8_t* const sum = SumAt(batch, first);
  team.Strided(dim, [&](uint32_t i) {
    float total = LoadAligned<float>(sum, i);
    for (uint32_t at = first + kPieceRows; at < end; at += kPieceRows) {
      if (at + 1 < end) {
        total += LoadAligned<float>(SumAt(batch, at), i);
      } else {
        const RunGradient last = OneGradient(batch, RowOfRun(batch, at));
        total += LoadElement(last.type, last.at, i);
      }
    }
    StoreAligned(sum, i, total);
  });
  team.Sync();
}

// Which kinds of optimizer have a StepWork of their own in a message.
HOTBED_ROW_FN constexpr uint32_t BitOf(OptimizerKind kind) {
  return 1u << static_cast<uint32_t>(StepKind(kind));
}
// Whether a row is for its kind's own StepWork, if there is one; else it is AnyStepWork's.
HOTBED_ROW_FN bool IsSteppedInFours(const Segment& segment, const RowShape& shape) {
  return IsInFours(shape.dim) && !segment.assign;
}

HOTBED_ROW_FN uint32_t StepUnits(const UpdateBatch& batch, uint32_t lanes) {
  return LongUnits(batch) + ShortUnits(batch, lanes);
}

template <OptimizerKind kKind>
struct StepWork {
  static constexpr uint32_t kLanes = 32;
  UpdateBatch batch;

  HOTBED_ROW_FN uint32_t units() const { return StepUnits(batch, kLanes); }
};

struct AnyStepWork {
  static constexpr uint32_t kLanes = 32;
  UpdateBatch batch;
  uint32_t own_kinds = 0;  // bits of those that have a StepWork

  HOTBED_ROW_FN uint32_t units() const { return StepUnits(batch, kLanes); }
};

// `row`: of sorted id `first`, which begins the run.
template <typename Team, typename Wants, typename Step>
HOTBED_ROW_FN void StepRun(const Team& team, const UpdateBatch& batch, uint32_t first,
                           const RunRow& row, bool is_long, Wants wants, Step step) {
  if (!wants(*row.segment, row.table->shape)) return;
  const uint32_t end = is_long ? RunBegin(batch, batch.sorted[first] + 1, batch.segments.ids)
                               : RunEnd(team, batch, first, kPieceRows + 1);
  const bool is_of_pieces = end - first > kPieceRows;
  if (!is_long && is_of_pieces) return;  // of a unit of its own
  RunGradient gradient = OneGradient(batch, row.segment->assign ? RowOfRun(batch, end - 1) : row);
  if (end - first > 1 && !row.segment->assign) {
    if (is_of_pieces) JoinPieces(team, batch, row.table->shape.dim, first, end);
    gradient.type = RowType::kFp32;
    gradient.at = SumAt(batch, first);
  }
  step(gradient.row, gradient.type, gradient.at);
  team.Once([&]() { team.Or(gradient.row.table->BitsAt(gradient.row.slot), kDirty); });
}

// The runs of a unit: step(row, type, gradient) for those that wants(segment, shape).
template <typename Team, typename Wants, typename Step>
HOTBED_ROW_FN void StepRuns(const Team& team, const UpdateBatch& batch, const Unit& unit,
                            Wants wants, Step step) {
  const uint32_t long_units = LongUnits(batch);
  const bool is_long = unit.number < long_units;
  uint32_t first = 0, mask = 0;
  if (is_long) {
    first = LongRunIn(batch, unit.number);
    mask = first != kNoRow ? 1 : 0;
  } else {
    first = Team::kLanes * (unit.number - long_units);
    mask = RunsIn(team, batch, first, true);
  }
  if (mask == 0) return;
  // Each lane finds the segment of an id of its own, so that no row waits for that.
  const auto ids = team.Map([&](uint32_t lane) {
    return first + lane < batch.segments.ids ? batch.order[first + lane] : 0;
  });
  const auto segments =
      team.Map([&](uint32_t lane) { return SegmentOf(batch.segments, team.Own(ids, lane)); });
  for (; mask != 0; mask &= mask - 1) {
    const uint32_t lane = LowestBit(mask);
    const RunRow row = RowOfRun(batch, first + lane, team.Get(ids, lane), team.Get(segments, lane));
    StepRun(team, batch, first + lane, row, is_long, wants, step);
  }
}

template <OptimizerKind kKind, typename Team>
HOTBED_ROW_FN void DoUnit(const Team& team, const StepWork<kKind>& work, const Unit& unit) {
  StepRuns(
      team, work.batch, unit,
      [](const Segment& segment, const RowShape& shape) {
        return IsSteppedInFours(segment, shape) && StepKind(shape.optimizer.kind) == kKind;
      },
      [&](const RunRow& row, RowType type, const uint8_t* gradient) {
        StepOf<kKind, 4>(team, row, type, gradient);
      });
}

template <typename Team>
HOTBED_ROW_FN void DoUnit(const Team& team, const AnyStepWork& work, const Unit& unit) {
  StepRuns(
      team, work.batch, unit,
      [&](const Segment& segment, const RowShape& shape) {
        return !IsSteppedInFours(segment, shape) ||
               (work.own_kinds & BitOf(shape.optimizer.kind)) == 0;
      },
      [&](const RunRow& row, RowType type, const uint8_t* gradient) HOTBED_ALWAYS_INLINE {
        if (row.segment->assign) return AssignRow(team, *row.table, row.slot, type, gradient);
        ForStepKind(row.table->shape.optimizer.kind,
                    [&](auto of) { StepOf<decltype(of)::kKind, 1>(team, row, type, gradient); });
      });
}

}  // namespace device
}  // namespace hotbed

#endif  // HOTBED_DEVICE_UPDATE_WORK_H_
