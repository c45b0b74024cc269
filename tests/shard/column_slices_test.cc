// Column slices: the same ordered pushes give the same bits for every number of slices and shards,
// hot budget, batch cut and number of restarts. An optimizer with row statistics keeps them per
// slice: then the table equals separate tables, one for each slice.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/random.h"
#include "tests/common/test_seed.h"
#include "tests/shard/host_fixture.h"

namespace hotbed {
namespace column_slices_test {

constexpr uint32_t kDim = 19;  // nothing divides it
constexpr uint64_t kRows = 1200;
constexpr uint64_t kSteps = 25;
constexpr TableId kTable = 1;

struct Layout {
  uint32_t slices;
  uint32_t shards;  // of a slice
  uint64_t hot_bytes;
  uint64_t parts;       // of a step
  uint64_t kill_every;  // steps; 0: never
  uint64_t stop_every;
};

constexpr uint64_t kAmple = 64ull << 20;
constexpr uint64_t kSliver = 48ull << 10;
constexpr Layout kLayouts[] = {{1, 1, kAmple, 1, 0, 0},  {2, 1, kAmple, 3, 0, 0},
                               {4, 3, kSliver, 1, 0, 0}, {8, 2, kSliver, 2, 7, 0},
                               {4, 1, kAmple, 1, 9, 11}, {8, 1, kAmple, 2, 0, 6},
                               {1, 5, kSliver, 2, 8, 0}};

std::string NameOf(const Layout& l) {
  return absl::StrCat(l.slices, " slices of ", l.shards, " shards, ", l.hot_bytes,
                      " bytes hot, steps in ", l.parts, " parts, killed every ", l.kill_every,
                      " and restarted every ", l.stop_every, " steps");
}

struct Case {
  const char* name;
  OptimizerKind optimizer;
  bool hashed;
};

struct Step {
  std::vector<uint64_t> ids;
  std::vector<float> gradients;
};

// A row's id of any table: so that hashed ids fall everywhere.
uint64_t IdOf(uint64_t row, bool hashed) { return hashed ? row * 0x9e3779b97f4a7c15ull : row; }

// Zipf-like ids with repeats, which are summed in the order of their appearance.
std::vector<Step> MakeSteps(uint64_t seed, bool hashed) {
  Random random(seed);
  std::vector<Step> steps(kSteps);
  for (Step& step : steps) {
    std::map<uint64_t, size_t> where;
    for (int i = 0; i < 150; ++i) {
      const double u = random.Double();
      const uint64_t id = IdOf(static_cast<uint64_t>(u * u * kRows), hashed);
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

TableSpec Spec(const Case& what, uint32_t slices) {
  TableSpec table = TestTable(kTable, "sliced", kRows, kDim, what.optimizer);
  table.hashed = what.hashed;
  table.initializer = {InitializerKind::kNormal, 0.0f, 0.1f};
  table.column_slices = slices;
  table.row_statistics = RowStatistics::kSlice;
  return table;
}

void PushInParts(TestClient* client, uint64_t step, const Step& data, uint64_t parts) {
  const size_t rows = data.ids.size();
  for (uint64_t part = 0; part < parts; ++part) {
    const size_t first = rows * part / parts;
    const size_t limit = rows * (part + 1) / parts;
    client->Push(kTable, step, {data.ids.begin() + first, data.ids.begin() + limit},
                 {data.gradients.begin() + first * kDim, data.gradients.begin() + limit * kDim},
                 part + 1);
  }
}

std::vector<float> AllRows(TestServer* server, bool hashed) {
  std::vector<float> rows;
  for (uint64_t first = 0; first < kRows; first += 400) {
    std::vector<uint64_t> ids;
    for (uint64_t row = first; row < first + 400; ++row) ids.push_back(IdOf(row, hashed));
    const std::vector<float> part = server->Pull(kTable, ids);
    rows.insert(rows.end(), part.begin(), part.end());
  }
  return rows;
}

std::vector<float> Train(const Layout& layout, const Case& what, const std::vector<Step>& steps) {
  const TempDir dir;
  ShardHostOptions options;
  options.data_dir = dir.path();
  options.host_bytes = 64ull << 20;
  options.hot_bytes = layout.hot_bytes;
  TestServer server(options, {Spec(what, layout.slices)}, layout.shards);
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
  if (layout.hot_bytes == kSliver) {
    uint64_t evictions = 0;
    for (const ShardStatus& shard : server.host()->Status().shards)
      evictions += shard.store.evictions;
    EXPECT_GT(evictions, 0u) << NameOf(layout) << ": meant to be short of room";
  }
  return AllRows(&server, what.hashed);
}

size_t Different(const std::vector<float>& a, const std::vector<float>& b) {
  if (a.size() != b.size()) return std::max(a.size(), b.size());
  size_t different = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    different += std::memcmp(&a[i], &b[i], sizeof(float)) != 0;
  }
  return different;
}

class ColumnSlicesTest : public testing::TestWithParam<Case> {};

TEST_P(ColumnSlicesTest, ToTheBitForEveryNumberOfSlices) {
  const TestSeed seed(20261122);
  const std::vector<Step> steps = MakeSteps(seed.value(), GetParam().hashed);
  const std::vector<float> expected = Train(kLayouts[0], GetParam(), steps);
  for (const Layout& layout : kLayouts) {
    if (&layout == &kLayouts[0]) continue;
    EXPECT_EQ(Different(Train(layout, GetParam(), steps), expected), 0u) << NameOf(layout);
  }
}

INSTANTIATE_TEST_SUITE_P(Optimizers, ColumnSlicesTest,
                         testing::Values(Case{"SgdBounded", OptimizerKind::kSgd, false},
                                         Case{"AdagradHashed", OptimizerKind::kAdagrad, true},
                                         Case{"AdamBounded", OptimizerKind::kAdam, false}),
                         [](const testing::TestParamInfo<Case>& info) {
                           return std::string(info.param.name);
                         });

// Row-wise Adagrad in four slices is four tables of row-wise Adagrad; and any four-slice layout is
// the same, whatever its shards and restarts.
TEST(ColumnSliceStatisticsTest, EachSliceIsATableOfItsOwn) {
  const TestSeed seed(20261123);
  constexpr uint32_t kSlices = 4;
  const Case what{"", OptimizerKind::kRowwiseAdagrad, false};
  const std::vector<Step> steps = MakeSteps(seed.value(), what.hashed);
  std::vector<float> expected(kRows * kDim);
  const TempDir dir;
  ShardHostOptions options;
  options.data_dir = dir.path();
  options.host_bytes = 64ull << 20;
  // The twin: one shard of the whole table for its first values, then the update by hand.
  TestServer server(options, {Spec(what, 1)}, 1);
  server.Start();
  expected = AllRows(&server, what.hashed);
  std::vector<std::array<float, kSlices>> sums(kRows);
  const TableSpec spec = Spec(what, kSlices);
  for (const Step& step : steps) {
    for (size_t i = 0; i < step.ids.size(); ++i) {
      for (uint32_t s = 0; s < kSlices; ++s) {
        const ColumnRange columns = SliceColumns(kDim, kSlices, s);
        float* const row = &expected[step.ids[i] * kDim + columns.first];
        const float* const g = &step.gradients[i * kDim + columns.first];
        double square = 0;
        for (uint32_t c = 0; c < columns.columns(); ++c) square += double{g[c]} * g[c];
        float& sum = sums[step.ids[i]][s];
        sum += static_cast<float>(square / columns.columns());
        const float rate = spec.optimizer.learning_rate / (std::sqrt(sum) + spec.optimizer.epsilon);
        for (uint32_t c = 0; c < columns.columns(); ++c) row[c] -= rate * g[c];
      }
    }
  }
  std::vector<float> first;
  for (const Layout& layout : kLayouts) {
    if (layout.slices != kSlices) continue;
    const std::vector<float> rows = Train(layout, what, steps);
    if (first.empty()) {
      first = rows;
      for (size_t i = 0; i < rows.size(); ++i) {
        ASSERT_NEAR(rows[i], expected[i], 1e-5) << "element " << i;
      }
    }
    EXPECT_EQ(Different(rows, first), 0u) << NameOf(layout);
  }
  // Statistics of the slice are not those of the row.
  EXPECT_GT(Different(Train(kLayouts[0], what, steps), first), kRows);
}

}  // namespace column_slices_test
}  // namespace hotbed
