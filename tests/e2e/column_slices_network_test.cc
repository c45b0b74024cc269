// Tables in column slices over the network, with real daemons and the real client. Their rows equal
// those of whole tables to the bit, also after a kill -9, and one message per server carries them.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/random.h"
#include "hotbed/client.h"
#include "tests/common/test_seed.h"
#include "tests/e2e/cluster_fixture.h"

namespace hotbed {
namespace column_slices_network_test {

using ColumnSlicesNetworkTest = ClusterTest;

TEST_F(ColumnSlicesNetworkTest, TrainingIsThatOfAWholeTableToTheBitOverAKill) {
  const TestSeed seed(20261124);
  Random random(seed.value());
  constexpr uint32_t kDim = 37;
  ClientOptions cut;
  cut.message_bytes_max = 64 << 10;  // so that a step takes several messages
  const std::unique_ptr<Client> clients[] = {Connect(), Connect(cut)};
  std::vector<std::vector<const Table*>> groups;  // with the same rows
  for (const OptimizerKind kind :
       {OptimizerKind::kSgd, OptimizerKind::kAdagrad, OptimizerKind::kAdam}) {
    std::vector<const Table*>& group = groups.emplace_back();
    for (const uint32_t slices : {1u, 2u, 4u, 8u}) {
      const std::string name = absl::StrCat("train-", static_cast<int>(kind), "-", slices);
      group.push_back(Create(clients[0].get(), Options(name, kDim, kind, slices)));
      ASSERT_NE(group.back(), nullptr);
    }
  }
  for (uint64_t step = 1; step <= 10; ++step) {
    const std::vector<Feature> batch = Batch(random, kDim);
    std::vector<PushFeature> features;
    for (const std::vector<const Table*>& group : groups) {
      for (const Table* table : group) {
        for (const Feature& f : batch) features.push_back({table, f.ids, f.gradients.data()});
      }
    }
    const Future<PushResult> push = clients[0]->Push(step, features);
    if (step == 6) KillAndRestart(2);
    EXPECT_TRUE(push.Wait().status.ok()) << push.Wait().status;
  }
  for (const std::vector<const Table*>& group : groups) {
    const std::vector<uint64_t> ids = AllIds(group[0]);
    std::vector<uint8_t> exists[2];
    const std::vector<float> whole =
        Rows(clients[0].get(), group[0], ids, RowType::kFp32, &exists[0]);
    EXPECT_GT(std::count(exists[0].begin(), exists[0].end(), 0), 0);
    EXPECT_GT(std::count(exists[0].begin(), exists[0].end(), 1), 1000);
    for (size_t i = 1; i < group.size(); ++i) {
      const auto opened = clients[1]->OpenTable(group[i]->name());
      ASSERT_TRUE(opened.ok()) << opened.status();
      const std::vector<float> sliced =
          Rows(clients[1].get(), *opened, ids, RowType::kFp32, &exists[1]);
      EXPECT_EQ(Different(whole, sliced), 0u) << group[i]->name();
      EXPECT_EQ(exists[0], exists[1]) << group[i]->name();
    }
  }
}

// Statistics of the slice: four slices are four tables of their columns.
TEST_F(ColumnSlicesNetworkTest, EachSliceHasStatisticsOfItsOwn) {
  const TestSeed seed(20261125);
  Random random(seed.value());
  constexpr uint32_t kDim = 36, kSlices = 4, kWidth = kDim / kSlices;
  const std::unique_ptr<Client> client = Connect();
  TableOptions options = Options("stat-sliced", kDim, OptimizerKind::kRowwiseAdagrad, kSlices);
  options.initializer = {InitializerKind::kConstant, 0.25f, 0.0f};
  EXPECT_EQ(client->CreateTable(options).status().code(), absl::StatusCode::kInvalidArgument);
  options.row_statistics = RowStatistics::kSlice;
  const Table* sliced = Create(client.get(), options);
  std::vector<const Table*> twins;
  for (uint32_t s = 0; s < kSlices; ++s) {
    options = Options(absl::StrCat("stat-", s), kWidth, OptimizerKind::kRowwiseAdagrad, 1);
    options.initializer = {InitializerKind::kConstant, 0.25f, 0.0f};
    twins.push_back(Create(client.get(), options));
  }
  for (uint64_t step = 1; step <= 5; ++step) {
    const std::vector<Feature> batch = Batch(random, kDim);
    std::vector<std::vector<float>> cut;
    std::vector<PushFeature> features;
    for (const Feature& f : batch) {
      features.push_back({sliced, f.ids, f.gradients.data()});
      for (uint32_t s = 0; s < kSlices; ++s) {
        std::vector<float>& columns = cut.emplace_back();
        for (size_t i = 0; i < f.ids.size(); ++i) {
          const float* const row = f.gradients.data() + i * kDim + s * kWidth;
          columns.insert(columns.end(), row, row + kWidth);
        }
        features.push_back({twins[s], f.ids, columns.data()});
      }
    }
    const PushResult pushed = client->Push(step, features).Wait();
    ASSERT_TRUE(pushed.status.ok()) << pushed.status;
  }
  const std::vector<uint64_t> ids = AllIds(sliced);
  const std::vector<float> rows = Rows(client.get(), sliced, ids);
  std::vector<float> joined(rows.size());
  for (uint32_t s = 0; s < kSlices; ++s) {
    const std::vector<float> columns = Rows(client.get(), twins[s], ids);
    for (size_t i = 0; i < ids.size(); ++i) {
      std::memcpy(&joined[i * kDim + s * kWidth], &columns[i * kWidth], 4 * kWidth);
    }
  }
  EXPECT_EQ(Different(rows, joined), 0u);
}

TEST_F(ColumnSlicesNetworkTest, OneMessageAServerWhateverTheSlicesAndTables) {
  const std::unique_ptr<Client> client = Connect();
  std::vector<const Table*> tables;
  for (const uint32_t slices : {1u, 3u, 8u}) {
    tables.push_back(Create(
        client.get(), Options(absl::StrCat("messages-", slices), 40, OptimizerKind::kSgd, slices)));
  }
  std::vector<uint64_t> ids;
  for (uint64_t id = 0; id < 9000; id += 100) ids.push_back(id);
  std::vector<std::vector<float>> rows;
  std::vector<PullFeature> pulls;
  std::vector<PushFeature> pushes;
  for (const Table* table : tables) {
    rows.emplace_back(ids.size() * 40);
    pulls.push_back({table, ids, rows.back().data()});
    pushes.push_back({table, ids, rows.back().data()});
  }
  ASSERT_TRUE(client->Push(1, pushes).Wait().status.ok());
  ASSERT_TRUE(client->Pull(pulls).Wait().ok());
  uint64_t before = client->Stats().messages;
  ASSERT_TRUE(client->Pull(pulls).Wait().ok());
  EXPECT_EQ(client->Stats().messages - before, kServers);
  before = client->Stats().messages;
  ASSERT_TRUE(client->Push(2, pushes).Wait().status.ok());
  EXPECT_EQ(client->Stats().messages - before, kServers);
  before = client->Stats().messages;
  ASSERT_TRUE(client->Lookup(pulls).Wait().ok());
  EXPECT_EQ(client->Stats().messages - before, kServers);
}

// A row that is not finite in one slice is skipped in all of them, or refused as a whole.
TEST_F(ColumnSlicesNetworkTest, ARowWithANanIsSkippedInEverySlice) {
  const std::unique_ptr<Client> client = Connect();
  constexpr uint32_t kDim = 8;
  std::vector<const Table*> tables;
  for (const uint32_t slices : {1u, 4u}) {
    TableOptions options =
        Options(absl::StrCat("skip-", slices), kDim, OptimizerKind::kSgd, slices);
    options.nan_policy = NanPolicy::kSkip;
    tables.push_back(Create(client.get(), options));
  }
  TableOptions rejects = Options("reject-4", kDim, OptimizerKind::kSgd, 4);
  const Table* strict = Create(client.get(), rejects);
  const std::vector<uint64_t> ids = {1, 2, 8999, 2};
  std::vector<float> gradients(ids.size() * kDim, 1.0f);
  gradients[3 * kDim + 5] = std::numeric_limits<float>::quiet_NaN();  // in the sum of id 2
  std::vector<std::vector<float>> rows;
  for (const Table* table : tables) {
    const std::vector<float> before = Rows(client.get(), table, ids);
    const PushFeature feature{table, ids, gradients.data()};
    const PushResult pushed = client->Push(1, {&feature, 1}).Wait();
    ASSERT_TRUE(pushed.status.ok()) << pushed.status;
    rows.push_back(Rows(client.get(), table, ids));
    for (uint32_t c = 0; c < kDim; ++c) {
      EXPECT_EQ(rows.back()[kDim + c], before[kDim + c]) << "id 2, column " << c;
      EXPECT_NE(rows.back()[c], before[c]) << "id 1, column " << c;
    }
  }
  EXPECT_EQ(Different(rows[0], rows[1]), 0u);
  const std::vector<float> before = Rows(client.get(), strict, ids);
  const PushFeature feature{strict, ids, gradients.data()};
  EXPECT_EQ(client->Push(1, {&feature, 1}).Wait().status.code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Different(Rows(client.get(), strict, ids), before), 0u);
}

}  // namespace column_slices_network_test
}  // namespace hotbed
