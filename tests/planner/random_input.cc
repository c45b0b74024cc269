#include "tests/planner/random_input.h"

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "planner/model/placement.h"
#include "planner/model/refine.h"
#include "planner/model/table_bytes.h"

namespace hotbed {
namespace {

template <typename T>
const T& OneOf(Random& random, const std::vector<T>& values) {
  return values[random.Uniform(values.size())];
}

InputTable RandomTable(Random& random, const RandomInputLimits& limits, uint32_t index) {
  InputTable table;
  table.name = absl::StrCat("t", index);
  // Sizes over all magnitudes.
  uint64_t top = 1 + random.Uniform(limits.rows_max);
  for (uint64_t i = random.Uniform(4); i > 0; --i) top = 1 + random.Uniform(top);
  table.rows = top;
  table.dim = OneOf<uint32_t>(random, {1, 4, 8, 16, 64, 100});
  table.weight = OneOf<PlannerWeight>(random, {PlannerWeight::kFp32, PlannerWeight::kFp16,
                                               PlannerWeight::kBf16, PlannerWeight::kInt8});
  table.optimizer = OneOf<PlannerOptimizer>(
      random, {PlannerOptimizer::kNone, PlannerOptimizer::kSgd, PlannerOptimizer::kAdagrad,
               PlannerOptimizer::kAdam, PlannerOptimizer::kRowwiseAdagrad});
  table.hashed = random.OneIn(4);
  if (random.OneIn(4)) table.row_statistics = RowStatistics::kSlice;
  if (limits.replicas && random.OneIn(4)) table.replicas = 2;
  table.reads_per_step = static_cast<double>(random.Uniform(20000));
  switch (random.Uniform(3)) {
    case 0:
      table.zipf = 0.2 + random.Double() * 1.5;
      break;
    case 1:
      table.hotness = {{0.001, 0.3}, {0.01, 0.6 + 0.2 * random.Double()}, {0.2, 0.95}};
      break;
    default:
      break;
  }
  return table;
}

void AddServers(Random& random, const RandomInputLimits& limits, PlannerInput& input) {
  double needed = 0;
  for (const InputTable& table : input.tables) {
    needed += table.replicas * static_cast<double>(RangeBytesOf(table, 0, TableUnits(table),
                                                                RowBytes(table, table.dim)));
  }
  const uint32_t count = 1 + static_cast<uint32_t>(random.Uniform(limits.servers_max));
  const double room = needed * limits.room_min * (1 + 4 * random.Double() * random.Double());
  const bool shared_hosts = random.OneIn(3);
  const bool zones = random.OneIn(3);
  for (uint32_t s = 0; s < count; ++s) {
    InputServer server;
    server.name = absl::StrCat("s", s);
    server.host = shared_hosts ? absl::StrCat("h", s / 2) : server.name;
    if (zones) server.zone = absl::StrCat("z", s % 2);
    const double part = room / count * (0.7 + 0.8 * random.Double());
    const double host = random.OneIn(2) ? 1 : random.Double();
    server.host_bytes = static_cast<uint64_t>(part * host);
    server.spill_bytes = static_cast<uint64_t>(part * (1 - host));
    if (random.OneIn(4)) server.device_bytes = static_cast<uint64_t>(part / 4);
    server.draining = limits.drain && random.OneIn(8);
    if (random.OneIn(4)) server.load = random.Double();
    input.topology.servers.push_back(server);
  }
  if (random.OneIn(4)) input.topology.device = PlannerDevice::kCuda;
}

TableConstraint RandomConstraint(Random& random, uint32_t table, uint32_t servers) {
  TableConstraint constraint;
  constraint.table = table;
  if (random.OneIn(2)) {
    constraint.sharding = {OneOf<Sharding>(
        random,
        {Sharding::kTableWise, Sharding::kRowWise, Sharding::kColumnWise, Sharding::kTableRowWise,
         Sharding::kTableColumnWise, Sharding::kGrid, Sharding::kDataParallel})};
    if (random.OneIn(2)) constraint.columns_min = 4;
  }
  if (random.OneIn(2)) {
    for (uint32_t s = 0; s < servers; ++s) {
      if (random.OneIn(2)) constraint.servers.push_back(s);
    }
  }
  return constraint;
}

}  // namespace

PlannerInput RandomInput(Random& random, const RandomInputLimits& limits) {
  PlannerInput input;
  const uint32_t tables = 1 + static_cast<uint32_t>(random.Uniform(limits.tables_max));
  for (uint32_t t = 0; t < tables; ++t) {
    input.tables.push_back(RandomTable(random, limits, t));
    input.features.push_back({input.tables.back().name, t, 1.0, false});
  }
  AddServers(random, limits, input);
  const uint32_t servers = static_cast<uint32_t>(input.topology.servers.size());
  for (uint32_t t = 0; limits.constraints && t < tables; ++t) {
    if (random.OneIn(4)) {
      input.options.constraints.push_back(RandomConstraint(random, t, servers));
    }
  }
  if (random.OneIn(4)) input.options.column_slice_threshold = 1 + random.Uniform(1000000);
  if (random.OneIn(4)) input.options.row_slice_threshold = 1 + random.Uniform(1000000);
  if (random.OneIn(6)) input.options.data_parallel_threshold = random.Uniform(10000);
  input.workload.trainers = 1 + static_cast<uint32_t>(random.Uniform(4));
  input.options.evaluations_max = 20000;
  return input;
}

PlannerInput EqualServers(uint32_t servers, uint64_t host_bytes, uint64_t spill_bytes) {
  PlannerInput input;
  for (uint32_t s = 0; s < servers; ++s) {
    InputServer server;
    server.name = server.host = absl::StrCat("s", s);
    server.host_bytes = host_bytes;
    server.spill_bytes = spill_bytes;
    input.topology.servers.push_back(server);
  }
  return input;
}

uint32_t AddTable(PlannerInput& input, const std::string& name, uint64_t rows, uint32_t dim,
                  double reads) {
  InputTable table;
  table.name = name;
  table.rows = rows;
  table.dim = dim;
  table.reads_per_step = reads;
  input.tables.push_back(table);
  const uint32_t index = static_cast<uint32_t>(input.tables.size()) - 1;
  input.features.push_back({name, index, 1.0, false});
  return index;
}

}  // namespace hotbed
