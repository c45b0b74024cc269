#include "planner/torchrec/table_workload.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace hotbed::torchrec {
namespace {

// Beyond any workload, and small enough that no product of it overflows.
constexpr double kIdsMax = 1e100;

struct TableInputs {
  std::vector<double> lengths;
  std::vector<double> poolings;
  std::vector<double> batches;
};

PlanError UnequalLists(const InputTable& table, const TableInputs& inputs) {
  PlanError error;
  error.table = table.name;
  error.limit = inputs.lengths.size();
  error.message = absl::StrCat(
      "table '", table.name, "': pooling_factors (", inputs.lengths.size(), "), num_poolings (",
      inputs.poolings.size(), ") and batch_sizes (", inputs.batches.size(),
      ") must be equally many, one for each feature of the table; give each list as many values");
  return error;
}

// Share of accesses that the hottest `fraction` of rows get: linear between the measured points.
double AccessesOfHottest(const std::vector<HotnessPoint>& hotness, double fraction) {
  HotnessPoint before;
  for (const HotnessPoint& point : hotness) {
    if (point.rows >= fraction) {
      if (point.rows <= before.rows) return point.accesses;
      const double along = (fraction - before.rows) / (point.rows - before.rows);
      return before.accesses + (point.accesses - before.accesses) * along;
    }
    before = point;
  }
  if (before.rows >= 1) return before.accesses;
  return before.accesses + (1 - before.accesses) * (fraction - before.rows) / (1 - before.rows);
}

// The integral of 1 - AccessesOfHottest over all fractions.
double Cacheability(const std::vector<HotnessPoint>& hotness) {
  double area = 0;
  HotnessPoint before;
  const auto add = [&](const HotnessPoint& point) {
    area += (point.rows - before.rows) * (1 - (before.accesses + point.accesses) / 2);
    before = point;
  };
  for (const HotnessPoint& point : hotness) add(point);
  if (before.rows < 1) add({.rows = 1, .accesses = 1});
  return area;
}

void ApplyConstraint(const TableConstraint& constraint, const Workload& workload,
                     TableInputs* inputs) {
  if (!constraint.pooling_factors.empty()) inputs->lengths = constraint.pooling_factors;
  inputs->poolings.assign(inputs->lengths.size(), 1.0);
  inputs->batches.assign(inputs->lengths.size(), static_cast<double>(workload.batch_size));
  if (!constraint.num_poolings.empty()) inputs->poolings = constraint.num_poolings;
  if (!constraint.batch_sizes.empty()) {
    inputs->batches.assign(constraint.batch_sizes.begin(), constraint.batch_sizes.end());
  }
}

}  // namespace

std::vector<const TableConstraint*> ConstraintsByTable(const PlannerInput& input) {
  std::vector<const TableConstraint*> by_table(input.tables.size(), nullptr);
  for (const TableConstraint& constraint : input.options.constraints) {
    by_table[constraint.table] = &constraint;
  }
  return by_table;
}

PlanResult<std::vector<TableWorkload>> BuildTableWorkloads(const PlannerInput& input,
                                                           uint32_t ranks) {
  std::vector<TableWorkload> loads(input.tables.size());
  std::vector<TableInputs> inputs(input.tables.size());
  for (const InputFeature& feature : input.features) {
    inputs[feature.table].lengths.push_back(feature.pooling_factor);
    loads[feature.table].weighted = loads[feature.table].weighted || feature.weighted;
  }
  const std::vector<const TableConstraint*> constraints = ConstraintsByTable(input);
  for (size_t t = 0; t < input.tables.size(); ++t) {
    const InputTable& table = input.tables[t];
    TableInputs& in = inputs[t];
    // A table without a feature is read all the same, as TorchRec's default has it.
    if (in.lengths.empty()) in.lengths.push_back(1.0);
    ApplyConstraint(constraints[t] ? *constraints[t] : TableConstraint{}, input.workload, &in);
    if (in.lengths.size() != in.poolings.size() || in.lengths.size() != in.batches.size()) {
      return UnequalLists(table, in);
    }
    TableWorkload& load = loads[t];
    for (size_t i = 0; i < in.lengths.size(); ++i) {
      load.ids += in.lengths[i] * in.poolings[i] * in.batches[i];
      load.poolings += in.poolings[i] * in.batches[i];
      load.ids_reserved += in.lengths[i] * in.batches[i];
    }
    load.ids = std::min(load.ids, kIdsMax);
    load.poolings = std::min(load.poolings, kIdsMax);
    load.ids_reserved = std::min(load.ids_reserved, kIdsMax);
    load.pooled = table.combiner != PlannerCombiner::kNone;
    load.inference = input.options.reserve.kind == ReserveKind::kInference;
    load.pipeline = input.options.torchrec.pipeline;
    load.outputs_at_peak = input.options.torchrec.run_embedding_at_peak_memory;
    if (constraints[t]) load.prefetch_passes = constraints[t]->prefetch_passes;
    load.forward_wire = input.options.torchrec.forward_wire;
    load.backward_wire = input.options.torchrec.backward_wire;
    if (!table.hotness.empty()) {
      load.lookups = table.reads_per_step > 0
                         ? std::min(table.reads_per_step, kIdsMax) * input.workload.trainers
                         : load.ids * ranks;
      load.cacheability = Cacheability(table.hotness);
    }
    if (constraints[t]) load = WithCache(load, table, constraints[t]->cache_load_factor);
  }
  return loads;
}

TableWorkload WithCache(TableWorkload load, const InputTable& table, std::optional<double> ratio) {
  load.caching_ratio = ratio;
  load.cache_misses = 0;
  if (ratio && load.lookups > 0) {
    const double hits = AccessesOfHottest(table.hotness, std::min(*ratio, 1.0));
    load.cache_misses = std::max(0.0, 1 - hits) * load.lookups;
  }
  return load;
}

}  // namespace hotbed::torchrec
