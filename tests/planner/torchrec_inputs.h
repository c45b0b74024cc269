// Inputs of the tests of planner/torchrec.
#ifndef HOTBED_TESTS_PLANNER_TORCHREC_INPUTS_H_
#define HOTBED_TESTS_PLANNER_TORCHREC_INPUTS_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "planner/model/planner_input.h"

namespace hotbed::torchrec {

// `hosts` hosts of `per_host` servers with 32 GiB of device memory and 128 GiB of host memory.
inline PlannerInput ServersOf(uint32_t hosts, uint32_t per_host, PlannerDevice device) {
  PlannerInput input;
  input.topology.device = device;
  for (uint32_t h = 0; h < hosts; ++h) {
    for (uint32_t i = 0; i < per_host; ++i) {
      InputServer server;
      server.name = absl::StrCat("s", input.topology.servers.size());
      server.host = absl::StrCat("h", h);
      server.device_bytes = uint64_t{32} << 30;
      server.host_bytes = uint64_t{128} << 30;
      input.topology.servers.push_back(std::move(server));
    }
  }
  input.options.strategy = PlannerStrategy::kTorchrec;
  return input;
}

// A table with one feature and, as TorchRec's own tests have it, no optimizer.
inline uint32_t AddTable(PlannerInput* input, uint64_t rows, uint32_t dim) {
  const auto index = static_cast<uint32_t>(input->tables.size());
  InputTable table;
  table.name = absl::StrCat("table_", index);
  table.rows = rows;
  table.dim = dim;
  table.optimizer = PlannerOptimizer::kNone;
  input->tables.push_back(std::move(table));
  InputFeature feature;
  feature.name = absl::StrCat("feature_", index);
  feature.table = index;
  input->features.push_back(std::move(feature));
  return index;
}

// The table's constraint, made when there is none.
inline TableConstraint& ConstraintOf(PlannerInput* input, uint32_t table) {
  for (TableConstraint& constraint : input->options.constraints) {
    if (constraint.table == table) return constraint;
  }
  input->options.constraints.emplace_back().table = table;
  return input->options.constraints.back();
}

inline void Allow(PlannerInput* input, uint32_t table, std::vector<Sharding> sharding,
                  std::vector<std::string> kernels) {
  TableConstraint& constraint = ConstraintOf(input, table);
  constraint.sharding = std::move(sharding);
  constraint.kernels = std::move(kernels);
}

}  // namespace hotbed::torchrec

#endif  // HOTBED_TESTS_PLANNER_TORCHREC_INPUTS_H_
