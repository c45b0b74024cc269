// The works that step rows (device/update_work.h): how rows are divided, and what they share.
//
// Rows of one table are adjacent once sorted, so values that all rows of a segment share are
// computed once and kept from row to row: a row costs only its loads, its arithmetic and its
// stores.
#ifndef HOTBED_DEVICE_STEP_WORK_H_
#define HOTBED_DEVICE_STEP_WORK_H_

#include <cstdint>

#include "device/row_step.h"
#include "device/step_kinds.h"
#include "device/update_work.h"

namespace hotbed {
namespace device {

// How a segment's rows are stepped. The first three ways have one work per optimizer kind each: the
// less a work can do, the fewer registers and branches it has, and the more rows are in flight.
enum class StepWay : uint8_t {
  kBare = 0,     // in fours, all fp32, gradients as they are; no norms and no counters
  kPlain = 1,    // the same, with gradients of any type, scaled or clipped by value
  kOptions = 2,  // in fours
  kAny = 3,      // element by element, any kind; also new weights
};
constexpr uint32_t kOwnWays = 3;

HOTBED_ROW_FN StepWay WayOf(const Segment& segment, const RowShape& shape) {
  if (!IsInFours(shape.dim) || segment.assign) return StepWay::kAny;
  const OptimizerParams& o = shape.optimizer;
  const bool is_plain = shape.weight_type == WeightType::kFp32 &&
                        o.state_type == StateType::kFp32 && !(o.max_norm > 0.0f) &&
                        !o.row_bias_correction && !o.lazy_decay && !(o.average.rate > 0.0f) &&
                        !CountsUpdates(o.kind) && !(segment.scalars.clip_row_norm > 0.0f);
  if (!is_plain) return StepWay::kOptions;
  const bool is_bare = segment.type == RowType::kFp32 && segment.scalars.gradient_scale == 1.0f &&
                       !(segment.scalars.clip_value > 0.0f);
  return is_bare ? StepWay::kBare : StepWay::kPlain;
}

// The set of StepWorks that a message has.
HOTBED_ROW_FN constexpr uint64_t BitOf(OptimizerKind kind, StepWay way) {
  return 1ull << (kOwnWays * static_cast<uint32_t>(StepKind(kind)) + static_cast<uint32_t>(way));
}

HOTBED_ROW_FN uint32_t StepUnits(const UpdateBatch& batch, uint32_t lanes) {
  return LongUnits(batch) + ShortUnits(batch, lanes);
}

template <OptimizerKind kOf, StepWay kWayOf>
struct StepWork {
  static constexpr uint32_t kLanes = 32;
  static constexpr OptimizerKind kKind = kOf;
  static constexpr StepWay kWay = kWayOf;
  UpdateBatch batch;

  HOTBED_ROW_FN uint32_t units() const { return StepUnits(batch, kLanes); }
};

struct AnyStepWork {
  static constexpr uint32_t kLanes = 32;
  UpdateBatch batch;
  uint64_t own = 0;  // one bit per StepWork of the message

  HOTBED_ROW_FN uint32_t units() const { return StepUnits(batch, kLanes); }
};

// The values that the rows of a segment share.
struct RowsToStep {
  const Table* table;
  bool wanted;
  bool assign;
  uint32_t row_base;
  uint32_t first;
  uint32_t gradient_bytes;
  uint32_t weight_stride;
  uint32_t state_stride;
  const uint8_t* gradients;
  uint8_t* weights;
  uint8_t* state;
  UpdatePlan plan;
  StepScalars scalars;
};

template <typename Work>
HOTBED_ROW_FN bool Wants(const Work&, const Segment& segment, const RowShape& shape) {
  return WayOf(segment, shape) == Work::kWay && StepKind(shape.optimizer.kind) == Work::kKind;
}
HOTBED_ROW_FN bool Wants(const AnyStepWork& work, const Segment& segment, const RowShape& shape) {
  const StepWay way = WayOf(segment, shape);
  return way == StepWay::kAny || (work.own & BitOf(shape.optimizer.kind, way)) == 0;
}

template <typename Work>
HOTBED_ROW_FN RowsToStep OpenSegment(const Work& work, uint32_t number) {
  const UpdateBatch& batch = work.batch;
  RowsToStep rows = {};
  const Segment& segment = batch.segments.at[number];
  rows.table = &batch.tables[segment.table];
  const RowShape& shape = rows.table->shape;
  rows.wanted = Wants(work, segment, shape);
  if (!rows.wanted) return rows;
  rows.assign = segment.assign;
  rows.row_base = rows.table->row_base;
  rows.first = segment.first;
  rows.gradient_bytes = RowWireBytes(segment.type, shape.dim);
  rows.weight_stride = shape.weight_stride();
  rows.state_stride = shape.state_stride();
  rows.gradients = batch.gradients + segment.rows_at;
  rows.weights = rows.table->weights;
  rows.state = rows.table->state;
  rows.plan = {shape.optimizer, segment.scalars, shape.weight_type, segment.type, shape.dim};
  rows.scalars = MakeStepScalars(shape.optimizer, segment.scalars);
  return rows;
}

// One step of the row in `slot`; kKind and kWay are its segment's.
template <OptimizerKind kKind, StepWay kWay, typename Team>
HOTBED_ROW_FN void StepOf(const Team& team, const RowsToStep& rows, uint32_t slot, RowType type,
                          const uint8_t* gradient) {
  UpdatePlan plan = rows.plan;
  plan.gradient_type = type;
  RowKey key = {0, 0, 0};
  if (kWay == StepWay::kBare) {  // as WayOf has it, for the compiler
    plan.gradient_type = RowType::kFp32;
    plan.scalars.gradient_scale = 1.0f;
    plan.scalars.clip_value = 0.0f;
  }
  if (kWay == StepWay::kBare || kWay == StepWay::kPlain) {
    plan.params.kind = kKind;
    plan.weight_type = WeightType::kFp32;
    plan.params.state_type = StateType::kFp32;
    plan.params.max_norm = 0.0f;
    plan.params.row_bias_correction = plan.params.lazy_decay = false;
    plan.params.average.rate = 0.0f;
    plan.params.stochastic_rounding = false;
    plan.scalars.clip_row_norm = 0.0f;
  } else if (plan.params.stochastic_rounding) {
    const RowShape& shape = rows.table->shape;
    key = {shape.seed, IdOfPosition(shape, rows.table->PositionAt(slot)), shape.column_first};
  }
  StepRow<kKind, kWay == StepWay::kAny ? 1 : 4>(
      team, plan, key, rows.scalars, rows.weights + uint64_t{rows.weight_stride} * slot,
      rows.state + uint64_t{rows.state_stride} * slot, gradient);
}

template <typename Work, typename Team>
HOTBED_ROW_FN void StepSlot(const Team& team, const Work&, const RowsToStep& rows, uint32_t slot,
                            RowType type, const uint8_t* gradient) {
  StepOf<Work::kKind, Work::kWay>(team, rows, slot, type, gradient);
}
template <typename Team>
HOTBED_ROW_FN void StepSlot(const Team& team, const AnyStepWork&, const RowsToStep& rows,
                            uint32_t slot, RowType type, const uint8_t* gradient) {
  if (rows.assign) return AssignRow(team, *rows.table, slot, type, gradient);
  ForStepKind(rows.plan.params.kind, [&](auto of) {
    StepOf<decltype(of)::kKind, StepWay::kAny>(team, rows, slot, type, gradient);
  });
}

// A run of sorted ids [first, end), which begins with id k of the batch: makes one step of its row,
// or assigns the last of its new weights.
template <typename Work, typename Team>
HOTBED_ROW_FN void StepRun(const Team& team, const Work& work, const RowsToStep& rows,
                           uint32_t first, uint32_t end, uint32_t k, uint32_t number) {
  const UpdateBatch& batch = work.batch;
  RowType type = rows.plan.gradient_type;
  const uint8_t* gradient = rows.gradients + uint64_t{rows.gradient_bytes} * (k - rows.first);
  if (end - first > 1 && rows.assign) {
    const RowToAdd last = OneGradient(batch, end - 1);  // the last of several new weights counts
    type = last.type;
    gradient = last.at;
  } else if (end - first > 1) {
    if (end - first > kPieceRows) JoinPieces(team, batch, rows.plan.dim, first, end);
    type = RowType::kFp32;
    gradient = SumAt(batch, first);
  }
  StepSlot(team, work, rows, number - rows.row_base, type, gradient);
}

template <typename Work, typename Team>
HOTBED_ROW_FN void StepUnit(const Team& team, const Work& work, const Unit& unit) {
  const UpdateBatch& batch = work.batch;
  const uint32_t long_units = LongUnits(batch), ids = batch.segments.ids;
  const bool is_long = unit.number < long_units;
  const uint32_t from =
      is_long ? LongRunIn(batch, unit.number) : Team::kLanes * (unit.number - long_units);
  if (from == kNoRow) return;
  const RunsOfUnit found = is_long ? RunsOfUnit{1, 0, 0} : RunsIn(team, batch, from);
  if (found.runs == 0) return;
  // Each lane looks up an id of its own, so that no row waits for the look-up.
  const auto at = [&](uint32_t lane) { return from + lane < ids ? from + lane : ids - 1; };
  const auto numbers = team.Map([&](uint32_t lane) { return batch.sorted[at(lane)]; });
  const auto ks = team.Map([&](uint32_t lane) { return batch.order[at(lane)]; });
  const auto segments =
      team.Map([&](uint32_t lane) { return SegmentOf(batch.segments, team.Own(ks, lane)); });
  RowsToStep rows = {};
  uint32_t opened = kNoRow, stepped = 0;
  for (uint32_t mask = found.runs; mask != 0; mask &= mask - 1) {
    const uint32_t lane = LowestBit(mask);
    const uint32_t segment = team.Get(segments, lane);
    if (segment != opened) rows = OpenSegment(work, segment);
    opened = segment;
    if (!rows.wanted) continue;
    const uint32_t number = team.Get(numbers, lane);
    const uint32_t end = is_long ? RunBegin(batch, number + 1, ids)
                                 : EndOfRun(team, batch, from, lane, found.bounds);
    if (!is_long && end - from - lane > kPieceRows) continue;  // it has a unit of its own
    // The only call of the step: it makes up most of the kernel's code and compile time.
    StepRun(team, work, rows, from + lane, end, team.Get(ks, lane), number);
    stepped |= 1u << lane;
  }
  team.Strided(Team::kLanes, [&](uint32_t lane) {
    if ((stepped >> lane & 1) == 0) return;
    const Table& table = batch.tables[batch.segments.at[team.Own(segments, lane)].table];
    team.Or(table.BitsAt(team.Own(numbers, lane) - table.row_base), kDirty);
  });
}

template <OptimizerKind kKind, StepWay kWay, typename Team>
HOTBED_ROW_FN void DoUnit(const Team& team, const StepWork<kKind, kWay>& work, const Unit& unit) {
  StepUnit(team, work, unit);
}
template <typename Team>
HOTBED_ROW_FN void DoUnit(const Team& team, const AnyStepWork& work, const Unit& unit) {
  StepUnit(team, work, unit);
}

}  // namespace device
}  // namespace hotbed

#endif  // HOTBED_DEVICE_STEP_WORK_H_
