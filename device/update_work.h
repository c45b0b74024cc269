// Updates: gradients of the same row are summed in a fixed order, and each row takes one step.
//
// Ids of a batch, sorted by row number (stable, so that equal ones stay in the order of the batch),
// form runs. A run's gradients are summed in fp32 in the order of the batch, beginning with the
// first; runs of more than kPieceRows in pieces of that many, then the pieces' sums in order. So
// the bits depend on the order of the batch alone. A batch has these works, in this order:
//
//   SumWork         the sums of short runs, and of the pieces of long ones
//   StepWork<kind>  one per optimizer kind: steps rows, four elements per lane at a time
//   AnyStepWork     the same for all other rows: any kind, element by element
//
// Runs are found by comparing neighbours, and the pieces of long runs by bisection: nothing is
// counted or listed beforehand.
#ifndef HOTBED_DEVICE_UPDATE_WORK_H_
#define HOTBED_DEVICE_UPDATE_WORK_H_

#include <cstdint>

#include "device/batch.h"
#include "device/row_sums.h"
#include "device/table.h"

namespace hotbed {
namespace device {

// The longest possible run takes twice this many rows in sequence: a batch has at most 2^20 ids.
constexpr uint32_t kPieceRows = 1024;

struct UpdateBatch {
  const Table* tables = nullptr;
  Segments segments;
  const uint32_t* sorted = nullptr;  // row numbers, ascending; kNoRow (rows elsewhere) comes last
  const uint32_t* order = nullptr;   // which id of the batch each one is
  const uint8_t* gradients = nullptr;
  uint8_t* sums = nullptr;  // SumsOf(ids) rows of sum_stride bytes
  uint32_t sum_stride = 0;  // 4 * the largest dim, a multiple of 16
};

// Runs and pieces of at least two gradients have their sums at half the index where they begin,
// which is unique to them; a single gradient is its own sum.
HOTBED_ROW_FN uint32_t SumsOf(uint32_t ids) { return ids / 2 + 1; }
HOTBED_ROW_FN uint8_t* SumAt(const UpdateBatch& batch, uint32_t first) {
  return batch.sums + uint64_t{batch.sum_stride} * (first / 2);
}

// Windows of kPieceRows sorted ids; in each of them at most one long run begins, and at most one
// further piece of a long run.
HOTBED_ROW_FN uint32_t Windows(uint32_t ids) { return (ids + kPieceRows - 1) / kPieceRows; }

// The index of the first sorted id that is `number` or more.
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

// The end of a run, at most `limit` after `at`.
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

// Sorted id `at`: its segment and table, and which id of the batch it is.
struct SortedId {
  const Segment* segment;
  const Table* table;
  uint32_t k;
};
HOTBED_ROW_FN SortedId SortedIdAt(const UpdateBatch& batch, uint32_t at) {
  const uint32_t k = batch.order[at];
  const Segment* const segment = &batch.segments.at[SegmentOf(batch.segments, k)];
  return {segment, &batch.tables[segment->table], k};
}

// Units of long runs come first, as they take longest; then units of short runs, each of which
// covers as many sorted ids as it has lanes.
HOTBED_ROW_FN uint32_t LongUnits(const UpdateBatch& batch) {
  return batch.segments.ids > kPieceRows ? Windows(batch.segments.ids) : 0;
}
HOTBED_ROW_FN uint32_t ShortUnits(const UpdateBatch& batch, uint32_t lanes) {
  return (batch.segments.ids + lanes - 1) / lanes;
}

// Where runs begin among as many sorted ids as a team has lanes; bit masks of lanes.
struct RunsOfUnit {
  uint32_t runs;    // a run begins here, of a row on the device
  uint32_t bounds;  // a run begins here, or the ids end
  uint32_t longer;  // a run of two ids or more begins here, of a row on the device
};
template <typename Team>
HOTBED_ROW_FN RunsOfUnit RunsIn(const Team& team, const UpdateBatch& batch, uint32_t from) {
  const auto numbers = team.Map([&](uint32_t lane) {
    return from + lane < batch.segments.ids ? batch.sorted[from + lane] : kNoRow;
  });
  const auto bounds = team.Map([&](uint32_t lane) {
    const uint32_t at = from + lane;
    return at == 0 || at >= batch.segments.ids || batch.sorted[at - 1] != team.Own(numbers, lane);
  });
  const auto goes_on = team.Map(
      [&](uint32_t lane) { return SameRun(batch, from + lane + 1, team.Own(numbers, lane)); });
  RunsOfUnit found;
  found.bounds = team.Ballot(bounds, [](bool is) { return is; });
  found.runs =
      found.bounds & team.Ballot(numbers, [](uint32_t number) { return number != kNoRow; });
  found.longer = found.runs & team.Ballot(goes_on, [](bool is) { return is; });
  return found;
}

// The end of the run that begins at a lane, at most kPieceRows + 1 further.
template <typename Team>
HOTBED_ROW_FN uint32_t EndOfRun(const Team& team, const UpdateBatch& batch, uint32_t from,
                                uint32_t lane, uint32_t bounds) {
  const uint32_t after = bounds & ~((2u << lane) - 1);
  return after != 0 ? from + LowestBit(after) : RunEnd(team, batch, from + lane, kPieceRows + 1);
}

struct SumWork {
  static constexpr uint32_t kLanes = 32;
  UpdateBatch batch;

  HOTBED_ROW_FN uint32_t units() const { return 2 * LongUnits(batch) + ShortUnits(batch, kLanes); }
};

// The sum of sorted ids [first, limit), all of one row. They may be in several segments, all of the
// same table; new weights have no sums.
template <typename Team>
HOTBED_ROW_FN void SumRun(const Team& team, const UpdateBatch& batch, uint32_t first,
                          uint32_t limit) {
  if (limit - first < 2) return;  // the last piece of a long run
  const SortedId id = SortedIdAt(batch, first);
  if (id.segment->assign) return;
  const uint32_t dim = id.table->shape.dim;
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
  if (unit.number < pieces) {
    const uint32_t window = unit.number / 2;
    const uint32_t first =
        unit.number % 2 != 0 ? LongRunIn(batch, window) : LaterPieceIn(batch, window);
    if (first == kNoRow) return;
    return SumRun(team, batch, first, RunEnd(team, batch, first, kPieceRows));
  }
  const uint32_t from = Team::kLanes * (unit.number - pieces);
  const RunsOfUnit found = RunsIn(team, batch, from);
  for (uint32_t mask = found.longer; mask != 0; mask &= mask - 1) {
    const uint32_t lane = LowestBit(mask);
    const uint32_t end = EndOfRun(team, batch, from, lane, found.bounds);
    // The units of a long run's windows sum it in pieces.
    if (end - from - lane <= kPieceRows) SumRun(team, batch, from + lane, end);
  }
}

// The gradient of sorted id `at`, or its new weights.
HOTBED_ROW_FN RowToAdd OneGradient(const UpdateBatch& batch, uint32_t at) {
  const SortedId id = SortedIdAt(batch, at);
  return {GradientOf(batch, *id.segment, id.table->shape.dim, id.k), id.segment->type};
}

// The sum of a long run from its pieces, stored in the place of the first piece.
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
        const RowToAdd last = OneGradient(batch, at);
        total += LoadElement(last.type, last.at, i);
      }
    }
    StoreAligned(sum, i, total);
  });
  team.Sync();
}

}  // namespace device
}  // namespace hotbed

#endif  // HOTBED_DEVICE_UPDATE_WORK_H_
