// Whole searches against TorchRec itself: the expected ratings, counts and ranks are what its own
// layouts, estimators, proposers and partitioners (a48cef7) gave for these problems.
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "planner/torchrec/enumerator.h"
#include "planner/torchrec/plan_like_torchrec.h"
#include "planner/torchrec/plan_search.h"
#include "tests/planner/torchrec_inputs.h"

namespace hotbed::torchrec {
namespace torchrec_golden_plans_test {

constexpr uint64_t kMib = 1 << 20;

struct Expected {
  double rating_ms;
  uint64_t proposals;
  uint64_t plans;
  std::vector<std::pair<Sharding, std::vector<uint32_t>>> tables;
};

PlannerInput Problem(uint32_t hosts, uint32_t per_host, PlannerDevice device, uint64_t device_bytes,
                     uint64_t host_bytes) {
  PlannerInput input = ServersOf(hosts, per_host, device);
  for (InputServer& server : input.topology.servers) {
    server.device_bytes = device_bytes;
    server.host_bytes = host_bytes;
  }
  input.workload.batch_size = 64;
  return input;
}

void Add(PlannerInput* input, uint64_t rows, uint32_t dim, double pooling_factor,
         PlannerOptimizer optimizer) {
  const uint32_t table = AddTable(input, rows, dim);
  input->tables[table].optimizer = optimizer;
  input->tables[table].row_statistics = RowStatistics::kSlice;
  input->features[table].pooling_factor = pooling_factor;
}

void ExpectSearch(const PlannerInput& input, PartitionerKind partitioner,
                  const Expected& expected) {
  const RankTopology topology = BuildRankTopology(input).value();
  const auto loads = BuildTableWorkloads(input, topology.ranks);
  const auto pins = PinnedRanks(input, topology);
  auto space = EnumerateOptions(input, topology, loads.value(), pins.value());
  ASSERT_TRUE(space.ok());
  const SearchResult result =
      SearchPlan(&space.value(), topology, topology.capacity, pins.value(),
                 {.evaluations_max = 100000, .partitioner = partitioner}, {});
  EXPECT_FALSE(result.cut_short);
  EXPECT_EQ(result.proposals, expected.proposals);
  EXPECT_EQ(result.plans, expected.plans);
  ASSERT_TRUE(result.best.has_value());
  EXPECT_LE(std::abs(result.best->rating_ms - expected.rating_ms), 1e-12 * expected.rating_ms);
  for (size_t t = 0; t < expected.tables.size(); ++t) {
    EXPECT_EQ(result.best->options[t]->sharding, expected.tables[t].first) << t;
    EXPECT_EQ(result.best->assignment[t], expected.tables[t].second) << t;
    EXPECT_EQ(result.best->options[t]->kernel, Kernel::kFused) << t;
  }
}

TEST(TorchrecGoldenPlansTest, TablesThatFillTheDevices) {
  PlannerInput input = Problem(1, 4, PlannerDevice::kCuda, 1536 * 1024, 16 * kMib);
  for (uint32_t i = 0; i < 4; ++i) {
    Add(&input, 500 * (i + 1), 32 * (i + 1), i + 1, PlannerOptimizer::kRowwiseAdagrad);
  }
  ExpectSearch(input, PartitionerKind::kGreedy,
               {.rating_ms = 0.0024737269849149945,
                .proposals = 126,
                .plans = 121,
                .tables = {{Sharding::kTableWise, {3}},
                           {Sharding::kTableWise, {2}},
                           {Sharding::kTableWise, {1}},
                           {Sharding::kTableWise, {0}}}});
}

TEST(TorchrecGoldenPlansTest, ColumnsOverTwoHosts) {
  PlannerInput input = Problem(2, 2, PlannerDevice::kCuda, 4 * kMib, 16 * kMib);
  for (uint32_t i = 0; i < 3; ++i) {
    Add(&input, 1000 * (3 - i), 64 * (i + 2), 2, PlannerOptimizer::kAdam);
    TableConstraint& constraint = ConstraintOf(&input, i);
    constraint.pooling_factors = {2, 3};
    constraint.columns_min = 32;
  }
  input.features[1].weighted = true;
  ExpectSearch(input, PartitionerKind::kGreedy,
               {.rating_ms = 0.055358720862347145,
                .proposals = 4096,
                .plans = 2896,
                .tables = {{Sharding::kColumnWise, {2, 3, 2, 3}},
                           {Sharding::kTableColumnWise, {0, 1, 0, 1, 0, 1}},
                           {Sharding::kColumnWise, {2, 3, 2, 3, 0, 1, 2, 3}}}});
}

TEST(TorchrecGoldenPlansTest, CpuWithUnpooledTables) {
  PlannerInput input = Problem(2, 2, PlannerDevice::kCpu, 0, 2 * kMib);
  for (uint32_t i = 0; i < 6; ++i) {
    Add(&input, 300 * (i + 1), 48, i + 1, PlannerOptimizer::kSgd);
    if (i % 2 == 1) input.tables[i].combiner = PlannerCombiner::kNone;
  }
  ExpectSearch(input, PartitionerKind::kGreedy,
               {.rating_ms = 0.0741431292365579,
                .proposals = 4096,
                .plans = 4096,
                .tables = {{Sharding::kTableWise, {3}},
                           {Sharding::kTableWise, {1}},
                           {Sharding::kTableWise, {2}},
                           {Sharding::kRowWise, {}},
                           {Sharding::kTableWise, {0}},
                           {Sharding::kRowWise, {}}}});
}

TEST(TorchrecGoldenPlansTest, MemoryBalanced) {
  PlannerInput input = Problem(1, 4, PlannerDevice::kCuda, 64 * kMib, 16 * kMib);
  for (uint32_t i = 0; i < 4; ++i) {
    Add(&input, 20000 * (i + 1), 32 * (i + 1), 1 + (3 - i) * 4, PlannerOptimizer::kRowwiseAdagrad);
  }
  ExpectSearch(input, PartitionerKind::kMemoryBalanced,
               {.rating_ms = 0.0027474538405470495,
                .proposals = 108,
                .plans = 39,
                .tables = {{Sharding::kTableWise, {0}},
                           {Sharding::kTableWise, {1}},
                           {Sharding::kTableWise, {2}},
                           {Sharding::kTableWise, {3}}}});
  input.options.strategy = PlannerStrategy::kTorchrec;
  input.options.torchrec.partitioner = PartitionerKind::kMemoryBalanced;
  const auto named = PlanLikeTorchrec(input);
  ASSERT_TRUE(named.ok()) << named.error().message;
  EXPECT_NEAR(named.value().cost.max_server_ms, 0.0027474538405470495, 1e-15);
}

}  // namespace torchrec_golden_plans_test
}  // namespace hotbed::torchrec
