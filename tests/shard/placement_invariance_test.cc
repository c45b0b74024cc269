// Placement does not change numbers: the same ordered pushes give the same bits for every shard
// count, hot budget, batch cut and number of restarts. Random floats, duplicate ids summed before
// the push, every optimizer, with options that feel a row's history, its id and its step.
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "common/random.h"
#include "tests/common/test_seed.h"
#include "tests/shard/host_fixture.h"
#include "tests/tiers/emulated_device.h"

namespace hotbed {
namespace placement_invariance_test {

constexpr uint32_t kDim = 12;
constexpr uint64_t kRows = 3000;
constexpr uint64_t kSteps = 40;

struct Layout {
  const char* name;
  uint32_t shards;
  uint64_t hot_bytes;
  uint64_t parts;       // of a step
  uint64_t kill_every;  // steps; 0: never
  uint64_t stop_every;
  uint64_t device_bytes = 0;  // of an emulated device's tables; 0: no device
};

constexpr Layout kLayouts[] = {
    {"one shard, all resident", 1, 64ull << 20, 1, 0, 0},
    {"eight shards, all resident, steps in three parts", 8, 64ull << 20, 3, 0, 0},
    {"three shards, a sliver of the rows resident", 3, 64ull << 10, 1, 0, 0},
    {"four shards, a sliver resident, killed and restarted", 4, 64ull << 10, 2, 7, 0},
    {"two shards, restarted in order and killed", 2, 64ull << 20, 1, 9, 11},
    {"two shards, half on a device, killed", 2, 64ull << 20, 2, 7, 0, 96ull << 10},
    {"three shards, a bucket each on a device, a sliver resident, killed and restarted", 3,
     64ull << 10, 1, 9, 11, 32ull << 10},
};

struct Step {
  std::vector<uint64_t> ids;
  std::vector<float> gradients;
};

// Zipf-like ids with repeats, as a batch has them; repeats are summed in the order of their
// appearance.
std::vector<Step> MakeSteps(uint64_t seed, bool hashed) {
  Random random(seed);
  std::vector<Step> steps(kSteps);
  for (Step& step : steps) {
    std::map<uint64_t, size_t> where;
    for (int i = 0; i < 300; ++i) {
      const double u = random.Double();
      const auto row = static_cast<uint64_t>(u * u * kRows);
      const uint64_t id = hashed ? row * 0x9e3779b97f4a7c15ull : row;
      const auto [it, is_new] = where.try_emplace(id, step.ids.size());
      if (is_new) {
        step.ids.push_back(id);
        step.gradients.resize(step.gradients.size() + kDim, 0.0f);
      }
      for (uint32_t c = 0; c < kDim; ++c) {
        step.gradients[it->second * kDim + c] += static_cast<float>(random.Double() - 0.5);
      }
    }
  }
  return steps;
}

void PushInParts(TestClient* client, uint64_t step, const Step& data, uint64_t parts) {
  const size_t rows = data.ids.size();
  for (uint64_t part = 0; part < parts; ++part) {
    const size_t first = rows * part / parts;
    const size_t limit = rows * (part + 1) / parts;
    client->Push(1, step, {data.ids.begin() + first, data.ids.begin() + limit},
                 {data.gradients.begin() + first * kDim, data.gradients.begin() + limit * kDim},
                 part + 1);
  }
}

struct Case {
  OptimizerKind optimizer;
  bool hashed;
  bool options;
};

TableSpec TableOf(const Case& c) {
  TableSpec table = TestTable(1, "placed", kRows, kDim, c.optimizer);
  table.hashed = c.hashed;
  table.initializer = {InitializerKind::kNormal, 0.0f, 0.1f};
  if (!c.options) return table;
  table.weight_type = WeightType::kBf16;
  OptimizerParams& o = table.optimizer;
  o.weight_decay = 0.05f;
  o.decay_mode = DecayMode::kDecoupled;
  o.lazy_decay = true;
  o.row_bias_correction = true;
  o.stochastic_rounding = true;
  o.state_type = StateType::kBf16;
  o.initial_accumulator = 0.1f;
  o.l1 = 0.01f;
  o.clip_value = 0.9f;
  o.clip_row_norm = 1.5f;
  o.max_norm = 2.0f;
  return table;
}

std::vector<float> Train(const Layout& layout, const TableSpec& table,
                         const std::vector<Step>& steps) {
  const bool hashed = table.hashed;
  const TempDir dir;
  ShardHostOptions options;
  options.data_dir = dir.path();
  options.host_bytes = 64ull << 20;
  options.hot_bytes = layout.hot_bytes;
  if (layout.device_bytes > 0) {
    options.open_device = EmulatedDevice(SmallMessages(256), layout.device_bytes);
  }
  TestServer server(options, {table}, layout.shards);
  server.Start();
  TestClient client(&server, 3);
  for (uint64_t step = 1; step <= kSteps; ++step) {
    PushInParts(&client, step, steps[step - 1], layout.parts);
    if (layout.kill_every != 0 && step % layout.kill_every == 0) {
      server.Kill();
      server.Start();
      client.ResendLast();
    }
    if (layout.stop_every != 0 && step % layout.stop_every == 0) {
      EXPECT_TRUE(server.Stop().ok());
      server.Start();
    }
  }
  if (layout.device_bytes > 0) {
    uint64_t hits = 0;
    for (const ShardStatus& shard : server.host()->Status().shards) hits += shard.store.device_hits;
    EXPECT_GT(hits, 0u) << layout.name << ": meant to have rows on the device";
  }
  if (layout.hot_bytes < 1ull << 20 && layout.device_bytes == 0) {
    uint64_t evictions = 0;
    for (const ShardStatus& shard : server.host()->Status().shards)
      evictions += shard.store.evictions;
    EXPECT_GT(evictions, 0u) << layout.name << ": meant to be short of room";
  }
  std::vector<float> rows;
  for (uint64_t first = 0; first < kRows; first += 500) {
    std::vector<uint64_t> ids;
    for (uint64_t row = first; row < first + 500; ++row) {
      ids.push_back(hashed ? row * 0x9e3779b97f4a7c15ull : row);
    }
    const std::vector<float> part = server.Pull(1, ids);
    rows.insert(rows.end(), part.begin(), part.end());
  }
  const HostStatus status = server.host()->Status();
  EXPECT_EQ(status.device_numbers["device_rows_direct_bytes"] > 0, layout.device_bytes > 0)
      << layout.name;
  EXPECT_EQ(status.device_numbers["device_rows_copied_bytes"], 0u) << layout.name;
  return rows;
}

class PlacementInvarianceTest : public testing::TestWithParam<Case> {};

TEST_P(PlacementInvarianceTest, ToTheBit) {
  const TestSeed seed(20260117);
  const std::vector<Step> steps = MakeSteps(seed.value(), GetParam().hashed);
  const TableSpec table = TableOf(GetParam());
  const std::vector<float> expected = Train(kLayouts[0], table, steps);
  for (const Layout& layout : kLayouts) {
    if (&layout == &kLayouts[0]) continue;
    const std::vector<float> rows = Train(layout, table, steps);
    ASSERT_EQ(rows.size(), expected.size());
    size_t different = 0;
    for (size_t i = 0; i < rows.size(); ++i) {
      different += std::memcmp(&rows[i], &expected[i], sizeof(float)) != 0;
    }
    EXPECT_EQ(different, 0u) << layout.name << ": elements that differ, of " << rows.size();
  }
}

std::vector<Case> Cases() {
  std::vector<Case> cases = {{OptimizerKind::kRowwiseAdagrad, false, false},
                             {OptimizerKind::kAdam, true, false}};
  for (int k = 0; k <= static_cast<int>(kLastOptimizerKind); ++k) {
    if (static_cast<OptimizerKind>(k) == OptimizerKind::kNone) continue;
    cases.push_back({static_cast<OptimizerKind>(k), k % 2 == 0, true});
  }
  return cases;
}

INSTANTIATE_TEST_SUITE_P(Optimizers, PlacementInvarianceTest, testing::ValuesIn(Cases()),
                         [](const testing::TestParamInfo<Case>& info) {
                           const Case& c = info.param;
                           std::string name = kOptimizerWords[static_cast<int>(c.optimizer)];
                           std::erase(name, '-');
                           return name + (c.hashed ? "Hashed" : "Bounded") +
                                  (c.options ? "WithOptions" : "");
                         });

}  // namespace placement_invariance_test
}  // namespace hotbed
