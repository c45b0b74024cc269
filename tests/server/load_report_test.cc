#include "server/cluster/load_report.h"

#include <gtest/gtest.h>

#include <vector>

namespace hotbed {
namespace load_report_test {

constexpr int64_t kSecond = 1'000'000'000;

ShardStatus& AddShard(uint32_t index, uint64_t pulled, uint64_t bytes, HostStatus* status) {
  ShardStatus& shard = status->shards.emplace_back();
  shard.shard = {1, index};
  shard.rows_pulled = pulled;
  shard.bytes = bytes;
  return shard;
}

std::vector<uint32_t> Order(const v1::ServerLoad& load) {
  std::vector<uint32_t> order;
  for (const v1::ShardLoad& shard : load.shards()) {
    order.push_back(ShardId::FromPacked(shard.shard()).index);
  }
  return order;
}

TEST(LoadReportTest, NamesTheBusiestOfTheLastInterval) {
  LoadReport report;
  HostStatus status;
  AddShard(0, 1'000'000, 5, &status);
  AddShard(1, 10, 500, &status).rows_pushed = 7;
  AddShard(2, 0, 900, &status);
  v1::ServerLoad load;
  report.Fill(status, {}, kSecond, &load);
  EXPECT_EQ(load.rows_pulled_total(), 1'000'010u);
  EXPECT_EQ(load.rows_pushed_total(), 7u);
  EXPECT_EQ(load.bytes_held(), 1405u);
  EXPECT_EQ(Order(load), (std::vector<uint32_t>{0, 1, 2}));

  status.shards[1].rows_pulled += 3;  // the others are idle; the larger one comes first
  load.Clear();
  report.Fill(status, {}, 2 * kSecond, &load);
  EXPECT_EQ(Order(load), (std::vector<uint32_t>{1, 2, 0}));
  EXPECT_EQ(load.shards(0).rows_pulled_total(), 13u);

  status.shards[2].rows_pushed += 100;  // too soon to measure again, but totals are current
  load.Clear();
  report.Fill(status, {}, 2 * kSecond + 1, &load);
  EXPECT_EQ(Order(load), (std::vector<uint32_t>{1, 2, 0}));
  EXPECT_EQ(load.shards(1).rows_pushed_total(), 100u);
  status.shards.pop_back();
  load.Clear();
  report.Fill(status, {}, 2 * kSecond + 2, &load);
  EXPECT_EQ(Order(load), (std::vector<uint32_t>{1, 0}));
}

TEST(LoadReportTest, AddsUpTheMemoryOfEachTable) {
  LoadReport report;
  HostStatus status;
  AddShard(0, 0, 0, &status).store = {.rows_resident = 3, .hot_bytes = 300, .hits = 100};
  AddShard(1, 0, 0, &status).store = {.rows_resident = 4, .hot_bytes = 400, .misses = 50};
  AddShard(0, 0, 0, &status).store = {.rows_resident = 9, .hot_bytes = 900};
  status.shards[2].shard = {2, 0};
  v1::ServerLoad load;
  report.Fill(status, {}, kSecond, &load);
  ASSERT_EQ(load.tables_size(), 2);
  EXPECT_EQ(load.tables(0).table(), 2u) << "it has most bytes";
  EXPECT_EQ(load.tables(1).rows_resident(), 7u);
  EXPECT_EQ(load.tables(1).hot_bytes(), 700u);
  EXPECT_EQ(load.tables(1).hits(), 100u);
  EXPECT_EQ(load.tables(1).misses(), 50u);

  // Accesses of the last window or two.
  const auto hits_at = [&](int64_t second) {
    load.Clear();
    report.Fill(status, {}, second * kSecond, &load);
    return load.tables(1).hits();
  };
  status.shards[0].store.hits = 1100;
  EXPECT_EQ(hits_at(12), 1100u);
  status.shards[0].store.hits = 1200;
  EXPECT_EQ(hits_at(13), 1100u) << "after the first report";
  EXPECT_EQ(hits_at(23), 1100u);
  EXPECT_EQ(hits_at(24), 100u) << "after the second";
  status.shards[0].store.hits = 7;
  EXPECT_EQ(hits_at(25), 7u) << "a shard was opened again";
}

TEST(LoadReportTest, SaysWhatIsFreeWhereItIsKnown) {
  LoadReport report;
  HostStatus status;
  v1::ServerLoad load;
  report.Fill(status, {}, kSecond, &load);
  EXPECT_FALSE(load.has_free_bytes());
  status.free_bytes = 0;
  report.Fill(status, {}, kSecond, &load);
  EXPECT_TRUE(load.has_free_bytes()) << "none is not unknown";
  EXPECT_EQ(load.free_bytes(), 0u);
}

TEST(LoadReportTest, SaysHowMuchDeviceMemoryWorks) {
  LoadReport report;
  HostStatus status;
  v1::ServerLoad load;
  report.Fill(status, {}, kSecond, &load);
  EXPECT_EQ(load.device_bytes_limit(), 0u);
  status.device_numbers.Add("device_bytes_limit", "", "", 4096);
  report.Fill(status, {}, kSecond, &load);
  EXPECT_EQ(load.device_bytes_limit(), 4096u);
  status.device_error = "it fell off the bus";
  load.Clear();
  report.Fill(status, {}, kSecond, &load);
  EXPECT_EQ(load.device_bytes_limit(), 0u);
}

TEST(LoadReportTest, IsBounded) {
  LoadReport report;
  HostStatus status;
  for (uint32_t i = 0; i < 3000; ++i) AddShard(i, (i * 7919) % 3000, 1, &status);
  v1::ServerLoad load;
  report.Fill(status, {}, kSecond, &load);
  ASSERT_EQ(load.shards_size(), static_cast<int>(LoadReport::kShardsMax));
  for (size_t i = 0; i < LoadReport::kShardsMax; ++i) {
    EXPECT_EQ(load.shards(static_cast<int>(i)).rows_pulled_total(), 2999 - i);
  }
}

TEST(LoadReportTest, TellsHowLongPullsTookLately) {
  LatencyHistogram pulls("hotbed_test_pull_seconds", "Of a test.");
  LoadReport report;
  v1::ServerLoad load;
  report.Fill({}, pulls.Read(), kSecond, &load);
  EXPECT_EQ(load.pull_p99_us(), 0u);
  for (int i = 0; i < 1000; ++i) pulls.RecordNs(100'000);
  report.Fill({}, pulls.Read(), 2 * kSecond, &load);
  EXPECT_NEAR(static_cast<double>(load.pull_p99_us()), 100, 15);
  for (int i = 0; i < 10; ++i)
    pulls.RecordNs(50'000'000);  // few in total, but all of the last interval
  report.Fill({}, pulls.Read(), 3 * kSecond, &load);
  EXPECT_NEAR(static_cast<double>(load.pull_p99_us()), 50'000, 7'000);
  report.Fill({}, pulls.Read(), 4 * kSecond, &load);
  EXPECT_EQ(load.pull_p99_us(), 0u);
}

}  // namespace load_report_test
}  // namespace hotbed
