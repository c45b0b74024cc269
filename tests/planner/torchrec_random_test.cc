// The invariants of every plan of TorchRec's planner, on random problems.
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "common/random.h"
#include "planner/torchrec/estimate.h"
#include "planner/torchrec/plan_like_torchrec.h"
#include "tests/common/test_seed.h"
#include "tests/planner/torchrec_inputs.h"

namespace hotbed::torchrec {
namespace torchrec_random_test {

PlannerInput RandomInput(Random* random) {
  const auto below = [&](uint64_t limit) { return random->Uniform(limit); };
  PlannerInput input = ServersOf(1 + below(3), 1 + below(4),
                                 below(3) == 0 ? PlannerDevice::kCpu : PlannerDevice::kCuda);
  const uint64_t memory = uint64_t{1} << (19 + below(8));
  for (InputServer& server : input.topology.servers) {
    server.device_bytes = memory * (below(4) == 0 ? 2 : 1);
    server.host_bytes = 4 * memory;
  }
  const uint64_t tables = 1 + below(7);
  for (uint64_t t = 0; t < tables; ++t) {
    const uint32_t index =
        AddTable(&input, 1 + below(5000), static_cast<uint32_t>(4 * (1 + below(96))));
    InputTable& table = input.tables[index];
    table.hashed = below(4) == 0;
    table.combiner = below(3) == 0 ? PlannerCombiner::kNone : PlannerCombiner::kSum;
    table.optimizer = below(2) == 0 ? PlannerOptimizer::kRowwiseAdagrad : PlannerOptimizer::kAdam;
    input.features[index].weighted = below(3) == 0;
    if (below(3) == 0) ConstraintOf(&input, index).columns_min = 4 * (1 + below(16));
    if (below(5) == 0) {
      ConstraintOf(&input, index).servers = {
          static_cast<uint32_t>(below(input.topology.servers.size()))};
    }
    if (below(6) == 0) ConstraintOf(&input, index).sharding = {Sharding::kGrid};
  }
  input.workload.batch_size = 1 + below(64);
  input.options.evaluations_max = 300;
  return input;
}

// Marks each element of the table with the number of primaries that own it.
void ExpectOwnedOnce(const InputTable& table, const PlacedTable& placed) {
  const uint64_t units = table.hashed ? 65536 : table.rows;
  absl::uint128 owned = 0;
  for (size_t i = 0; i < placed.ranges.size(); ++i) {
    const PlacedRange& a = placed.ranges[i];
    if (a.role != Role::kPrimary) continue;
    EXPECT_LT(a.row_first, a.row_limit);
    EXPECT_LT(a.column_first, a.column_limit);
    EXPECT_LE(a.row_limit, units);
    EXPECT_LE(a.column_limit, table.dim);
    owned += absl::uint128(a.row_limit - a.row_first) * (a.column_limit - a.column_first);
    for (size_t j = 0; j < i; ++j) {
      const PlacedRange& b = placed.ranges[j];
      if (b.role != Role::kPrimary) continue;
      EXPECT_TRUE(a.row_limit <= b.row_first || b.row_limit <= a.row_first ||
                  a.column_limit <= b.column_first || b.column_limit <= a.column_first)
          << table.name << ": ranges " << j << " and " << i << " overlap";
    }
  }
  EXPECT_EQ(owned, absl::uint128(units) * table.dim) << table.name;
}

void ExpectSound(const PlannerInput& input, const PlannerOutput& output) {
  for (size_t t = 0; t < input.tables.size(); ++t) {
    ExpectOwnedOnce(input.tables[t], output.tables[t]);
    EXPECT_TRUE(std::is_sorted(
        output.tables[t].ranges.begin(), output.tables[t].ranges.end(),
        [](const PlacedRange& a, const PlacedRange& b) { return a.server < b.server; }));
  }
  for (const TableConstraint& constraint : input.options.constraints) {
    if (constraint.servers.empty()) continue;
    for (const PlacedRange& range : output.tables[constraint.table].ranges) {
      EXPECT_EQ(range.server, constraint.servers[0]);
    }
  }
  double slowest = 0;
  uint64_t of_ranges = 0;
  uint64_t of_servers = 0;
  for (size_t s = 0; s < output.servers.size(); ++s) {
    const PlacedServer& server = output.servers[s];
    EXPECT_LE(server.bytes.host, input.topology.servers[s].host_bytes);
    if (input.topology.device == PlannerDevice::kCuda) {
      EXPECT_LE(server.bytes.device, input.topology.servers[s].device_bytes);
    } else {
      EXPECT_EQ(server.bytes.device, 0u);
    }
    slowest = std::max(slowest, TotalMs(*server.perf));
    of_servers += server.bytes.device + server.bytes.host;
  }
  for (const PlacedTable& table : output.tables) {
    for (const PlacedRange& range : table.ranges) of_ranges += range.bytes;
  }
  EXPECT_LE(of_ranges, of_servers);  // empty row shards have no range, and store nothing
  EXPECT_NEAR(output.cost.max_server_ms, slowest, 1e-9 * slowest);
  EXPECT_LE(output.cost.lower_bound_ms, output.cost.max_server_ms);
  EXPECT_GT(output.cost.lower_bound_ms, 0);
}

TEST(TorchrecRandomTest, PlansAreSound) {
  const TestSeed seed(20251004);
  Random random(seed.value());
  int planned = 0;
  int refused = 0;
  for (int i = 0; i < 400; ++i) {
    PlannerInput input = RandomInput(&random);
    for (int round = 0; round < 3; ++round) {
      TorchrecOptions& options = input.options.torchrec;
      options = {};
      if (round == 1) options.partitioner = TorchrecPartitioner::kMemoryBalanced;
      if (round == 2) {
        options.proposers = {TorchrecProposer::kDynamicProgramming, TorchrecProposer::kCacheScaleup,
                             TorchrecProposer::kUniform};
        options.pipeline = static_cast<TorchrecPipeline>(random.Uniform(3));
        options.run_embedding_at_peak_memory = random.Uniform(2) == 0;
        ConstraintOf(&input, 0).prefetch_passes = 1 + static_cast<uint32_t>(random.Uniform(4));
        options.forward_wire = static_cast<TorchrecWire>(random.Uniform(6));
        options.backward_wire = static_cast<TorchrecWire>(random.Uniform(6));
      }
      const auto plan = PlanLikeTorchrec(input);
      if (!plan.ok()) {
        ++refused;
        EXPECT_FALSE(plan.error().message.empty());
        EXPECT_TRUE(plan.error().table.has_value()) << plan.error().message;
        continue;
      }
      ++planned;
      ExpectSound(input, plan.value());
      EXPECT_TRUE(PlanLikeTorchrec(input).value() == plan.value());
    }
  }
  EXPECT_GT(planned, 200);
  EXPECT_GT(refused, 20);
}

// Absurd numbers are refused or planned, with finite times.
TEST(TorchrecRandomTest, AbsurdNumbers) {
  PlannerInput input = ServersOf(1, 2, PlannerDevice::kCuda);
  AddTable(&input, 100, 16);
  input.features[0].pooling_factor = 1e308;
  input.tables[0].hotness = {{.rows = 1, .accesses = 1}};
  ConstraintOf(&input, 0).cache_load_factor = 1;
  EXPECT_EQ(PlanLikeTorchrec(input).error().kind, PlanErrorKind::kInsufficientStorage);
  input.options.reserve = {.kind = ReserveKind::kHeuristic, .fraction = 1, .dense_bytes = ~0ull};
  EXPECT_EQ(PlanLikeTorchrec(input).error().kind, PlanErrorKind::kInsufficientStorage);
  input.options.reserve = {.kind = ReserveKind::kInference, .fraction = 0};
  EXPECT_EQ(PlanLikeTorchrec(input).error().kind, PlanErrorKind::kInsufficientStorage);
  input.tables[0].rows = 1;
  input.tables[0].dim = 4294967292u;
  ConstraintOf(&input, 0).columns_min = 4;
  EXPECT_EQ(PlanLikeTorchrec(input).error().kind, PlanErrorKind::kInsufficientStorage);
  ConstraintOf(&input, 0).sharding = {Sharding::kGrid, Sharding::kColumnWise};
  EXPECT_EQ(PlanLikeTorchrec(input).error().kind, PlanErrorKind::kStrictConstraints);
  ConstraintOf(&input, 0).sharding.clear();
  input.tables[0].dim = 16;
  input.features[0].pooling_factor = 0;
  input.workload.batch_size = 0;
  const auto idle = PlanLikeTorchrec(input);
  ASSERT_TRUE(idle.ok());
  EXPECT_EQ(idle.value().cost.max_server_ms, 0);
  EXPECT_EQ(idle.value().cost.gap, 0);
}

}  // namespace torchrec_random_test
}  // namespace hotbed::torchrec
