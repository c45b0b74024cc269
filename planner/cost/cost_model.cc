#include "planner/cost/cost_model.h"

#include <algorithm>
#include <vector>

#include "planner/model/cost_constants.h"
#include "planner/model/table_bytes.h"

namespace hotbed {
namespace {

constexpr double kReadsMax = 1e15;  // keeps every sum of times finite

// Clamped so that every time is finite; no measured bandwidth lies outside of the bounds.
double Chosen(double given, double fallback) {
  return std::clamp(given > 0 ? given : fallback, 1e-3, 1e15);
}

bool OneHost(const Topology& topology) {
  return std::all_of(topology.servers.begin(), topology.servers.end(),
                     [&](const InputServer& s) { return s.host == topology.servers.front().host; });
}

}  // namespace

CostModel::CostModel(const PlannerInput& input)
    : constants_(input.constants.value_or(CostConstants{})),
      device_(input.topology.device == PlannerDevice::kCuda),
      trainers_(static_cast<double>(input.workload.trainers)) {
  const Bandwidths& given = input.topology.bandwidth;
  const double network = OneHost(input.topology) ? given.intra_host : given.inter_host;
  for (double* const ns :
       {&constants_.gather_row_ns, &constants_.update_row_ns, &constants_.device_row_ns,
        &constants_.spill_row_ns, &constants_.segment_ns}) {
    *ns = std::clamp(*ns, 0.0, 1e12);
  }
  constants_.network_bandwidth = Chosen(network, constants_.network_bandwidth);
  constants_.host_bandwidth = Chosen(given.host, constants_.host_bandwidth);
  constants_.spill_bandwidth = Chosen(given.spill, constants_.spill_bandwidth);
  constants_.device_bandwidth = Chosen(given.device, constants_.device_bandwidth);
  constants_.device_host_bandwidth = Chosen(given.device_host, constants_.device_host_bandwidth);
}

RowCost CostModel::Row(const InputTable& table, uint32_t columns, Role role, uint32_t members,
                       double read_share, double update_share) const {
  const double weights = static_cast<double>(RowWeightBytes(table, columns));
  const double state = static_cast<double>(RowStateBytes(table, columns));
  const double gradient = 4.0 * columns;
  const bool trained = table.optimizer != PlannerOptimizer::kNone;
  const double reads = role == Role::kBackup ? 0 : read_share;
  const double updates = trained ? update_share : 0;
  const double update_bytes = 2 * weights + 2 * state + gradient;
  const auto ns = [](double bytes, double bandwidth) { return bytes / bandwidth * kNsPerMs; };
  const double network = constants_.network_bandwidth;
  const double host = constants_.host_bandwidth;
  const double host_gather = reads * (constants_.gather_row_ns + ns(weights, host));
  const double host_update = updates * (constants_.update_row_ns + ns(update_bytes, host));

  RowCost cost;
  cost.forward_compute = host_gather;
  cost.backward_compute = host_update;
  if (device_) {
    const double device = constants_.device_bandwidth;
    const double crossing = constants_.device_host_bandwidth;
    cost.forward_compute =
        reads * (constants_.device_row_ns + ns(weights, device) + ns(weights, crossing));
    cost.backward_compute =
        updates * (constants_.device_row_ns + ns(update_bytes, device) + ns(gradient, crossing));
    cost.host_extra = std::max(0.0, host_gather - cost.forward_compute) +
                      std::max(0.0, host_update - cost.backward_compute);
  }
  cost.forward_comms = reads * ns(kIdBytes + weights, network);
  const double followers = role == Role::kPrimary ? members - 1.0 : 0.0;
  cost.backward_comms = updates * (1 + followers) * ns(kIdBytes + gradient, network);
  cost.spill_extra =
      std::max(reads, updates) *
      (constants_.spill_row_ns + ns(2 * (weights + state), constants_.spill_bandwidth));
  return cost;
}

double CostModel::SegmentNs(Role role, double unique) const {
  const double parts = role == Role::kPrimary ? 2 : 1;
  return parts * trainers_ * constants_.segment_ns * std::min(1.0, unique);
}

std::vector<double> AllReadsPerStep(const PlannerInput& input) {
  std::vector<const TableConstraint*> constraint_of(input.tables.size(), nullptr);
  for (const TableConstraint& c : input.options.constraints) constraint_of[c.table] = &c;
  std::vector<double> reads(input.tables.size(), 0);
  std::vector<size_t> features(input.tables.size(), 0);  // seen so far
  const auto of_feature = [](const auto& values, size_t i, double fallback) {
    return i < values.size() ? static_cast<double>(values[i]) : fallback;
  };
  const double batch = static_cast<double>(input.workload.batch_size);
  for (const InputFeature& feature : input.features) {
    const size_t i = features[feature.table]++;
    const TableConstraint* const c = constraint_of[feature.table];
    double ids = feature.pooling_factor * batch;
    if (c != nullptr) {
      ids = of_feature(c->pooling_factors, i, feature.pooling_factor) *
            of_feature(c->num_poolings, i, 1) * of_feature(c->batch_sizes, i, batch);
    }
    reads[feature.table] += ids;
  }
  for (size_t t = 0; t < reads.size(); ++t) {
    if (input.tables[t].reads_per_step > 0) reads[t] = input.tables[t].reads_per_step;
    reads[t] = std::clamp(reads[t], 0.0, kReadsMax);
  }
  return reads;
}

}  // namespace hotbed
