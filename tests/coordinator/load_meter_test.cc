#include "planner/coordinator/balance/load_meter.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "planner/model/placement.h"

namespace hotbed {
namespace load_meter_test {

using ::testing::DoubleEq;
using ::testing::DoubleNear;
using ::testing::ElementsAre;

// Two servers, a table of four shards by turns, bytes measured.
class LoadMeter : public ::testing::Test {
 protected:
  LoadMeter() {
    for (ServerId s = 1; s <= 2; ++s) {
      ClusterServer& server = view_.servers.emplace_back();
      server.id = s;
      server.incarnation = 1;
    }
    ClusterTable& table = view_.tables.emplace_back();
    table.spec.id = 7;
    table.spec.rows = 4;
    table.spec.dim = 4;
    for (uint64_t i = 0; i < 4; ++i) {
      ClusterShard& shard = table.shards.emplace_back();
      shard.range = {i, i + 1, 0, 4};
      shard.primary = 1 + i % 2;
      shard.bytes = i == 2 ? 2999 : 999;
    }
  }
  void Count(ServerId server, std::vector<ReplicaLoad> replicas, uint64_t pulled, uint64_t pushed) {
    ClusterServer& s = view_.servers[server - 1];
    s.replicas = std::move(replicas);
    s.rows_pulled_total = pulled;
    s.rows_pushed_total = pushed;
  }

  ClusterView view_;
};

TEST_F(LoadMeter, WhatIsNotNamedIsSpreadByBytes) {
  Count(1, {{{7, 0}, 100, 10, 0}}, 1000, 100);
  Count(2, {{{7, 1}, 5, 5, 0}, {{7, 3}, 5, 5, 0}}, 10, 10);
  const LoadSample since = SampleOf(1000, view_);
  Count(1, {{{7, 0}, 300, 50, 0}}, 2000, 340);
  Count(2, {{{7, 1}, 25, 5, 0}, {{7, 3}, 5, 45, 0}}, 30, 50);
  MeasuredLoads loads = LoadsBetween(since, SampleOf(3000, view_), view_);
  EXPECT_THAT(loads.pulled[0], ElementsAre(100, 10, 400, 0));
  EXPECT_THAT(loads.pushed[0], ElementsAre(20, 0, 100, 20));
  EXPECT_DOUBLE_EQ(loads.rows_per_s, (1000 + 240 + 20 + 40) / 2.0);
  // Two that are not named: of 1,000 and 3,000 bytes.
  Count(1, {}, 2000, 340);
  loads = LoadsBetween(since, SampleOf(3000, view_), view_);
  EXPECT_THAT(loads.pulled[0], ElementsAre(125, 10, 375, 0));
}

TEST_F(LoadMeter, ARestartedServerIsNotMeasured) {
  Count(1, {{{7, 0}, 100, 10, 0}}, 100, 10);
  const LoadSample since = SampleOf(1000, view_);
  Count(1, {{{7, 0}, 900, 90, 0}}, 900, 90);
  view_.servers[0].incarnation = 2;
  const MeasuredLoads loads = LoadsBetween(since, SampleOf(2000, view_), view_);
  EXPECT_EQ(loads.rows_per_s, 0);
  EXPECT_THAT(loads.pulled[0], ElementsAre(0, 0, 0, 0));
}

TEST_F(LoadMeter, ABoardCountsRolesAndBytes) {
  MeasuredLoads loads;
  loads.rows_per_s = 6000;
  loads.pulled = {{1000, 0, 0, 0}};
  loads.pushed = {{500, 0, 0, 0}};
  LoadBoard board(view_, loads, 100);
  // 600 by bytes of 6,000 in all: 400 lie on s1, 200 on s2.
  EXPECT_THAT(board.Load(1), DoubleNear(1900, 1e-6));
  EXPECT_THAT(board.Load(2), DoubleNear(200, 1e-6));
  EXPECT_EQ(board.BusiestServer(), 1u);
  EXPECT_THAT(board.Imbalance(), DoubleNear(1900 / 1050.0, 1e-9));
  board.Change(0, 0, {1}, {2, 1});  // s1 stays as a backup: pushes and bytes
  EXPECT_THAT(board.Load(1), DoubleNear(900, 1e-6));
  EXPECT_THAT(board.Load(2), DoubleNear(1800, 1e-6));
  view_.servers[0].usable = false;
  EXPECT_THAT(LoadBoard(view_, loads, 100).Mean(), DoubleNear(200, 1e-6)) << "of usable ones";
  EXPECT_TRUE(LoadBoard(view_, loads, 6001).idle());
}

TEST_F(LoadMeter, AnIdleBoardCountsBytes) {
  const LoadBoard board(view_, {0, {{0, 0, 0, 0}}, {{0, 0, 0, 0}}, {}}, 1);
  EXPECT_THAT(board.Load(1), DoubleEq(2 * board.Load(2)));
}

TEST_F(LoadMeter, BackupsKeepThePullsThatTheyServe) {
  view_.tables[0].shards[0].backups = {2};
  Count(1, {{{7, 0}, 0, 0, 0}}, 0, 0);
  Count(2, {{{7, 0}, 0, 0, 0}}, 0, 0);
  const LoadSample since = SampleOf(0, view_);
  Count(1, {{{7, 0}, 4000, 1000, 0}}, 4000, 1000);
  Count(2, {{{7, 0}, 3000, 1000, 0}}, 3000, 1000);
  const MeasuredLoads loads = LoadsBetween(since, SampleOf(1000, view_), view_);
  const LoadBoard board(view_, loads, 1);
  const double bytes = kIdleShare * 9000;
  // s1 has 4,000 of the 7,000 bytes (replicas included); a member counts the bytes of its replica.
  EXPECT_THAT(board.Load(1), DoubleNear(5000 + bytes * 4 / 6, 1e-6));
  EXPECT_THAT(board.Load(2), DoubleNear(4000 + bytes * 3 / 6, 1e-6));
}

}  // namespace load_meter_test
}  // namespace hotbed
