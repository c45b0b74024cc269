#include "planner/coordinator/balance/rebalance_policy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "common/random.h"
#include "tests/common/test_seed.h"
#include "tests/coordinator/rebalance_rig.h"

namespace hotbed {
namespace rebalance_policy_test {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::Ge;
using ::testing::HasSubstr;
using ::testing::Le;
using ::testing::Pair;
using ::testing::SizeIs;

using Rate = RebalanceRig::Rate;

constexpr int64_t kMinute = 60'000;
constexpr int64_t kHour = 60 * kMinute;

Rate Even(int64_t, ShardId) { return {1000, 1000}; }

// Shards of s1 (every other one) are five times as busy as those of s2.
Rate Skewed(int64_t, ShardId shard) {
  const double rows = shard.index % 2 == 0 ? 5000 : 1000;
  return {rows, rows};
}

TEST(RebalancePolicy, EvenLoadIsLeftAlone) {
  RebalanceRig rig;
  for (ServerId s = 1; s <= 3; ++s) rig.AddServer(s);
  rig.AddTable(1, 24, {1, 2, 3});
  rig.Run(kHour, Even);
  EXPECT_THAT(rig.waves, SizeIs(0)) << rig.waves.front().reason;
  EXPECT_NEAR(rig.policy.report().imbalance, 1, 0.01);
  EXPECT_EQ(rig.policy.report().last_ms, 0);
}

TEST(RebalancePolicy, AnIdleClusterIsNotJudged) {
  RebalanceRig rig;
  for (ServerId s = 1; s <= 3; ++s) rig.AddServer(s);
  rig.AddTable(1, 24, {1, 1, 1, 1, 2, 3});
  rig.Run(kHour, [](int64_t, ShardId shard) { return Rate{shard.index == 0 ? 90.0 : 0, 0}; });
  EXPECT_THAT(rig.waves, SizeIs(0)) << rig.waves.front().reason;
  EXPECT_EQ(rig.policy.report().imbalance, 0) << "not known";
}

TEST(RebalancePolicy, LastingImbalanceIsEvenedOutOnce) {
  RebalanceRig rig;
  rig.AddServer(1);
  rig.AddServer(2);
  rig.AddTable(1, 16, {1, 2});
  rig.Run(50'000, Skewed);
  EXPECT_THAT(rig.waves, SizeIs(0)) << "not before it lasts";
  EXPECT_NEAR(rig.policy.report().imbalance, 1.6, 0.1);
  rig.Run(2 * kHour, Skewed);
  ASSERT_THAT(rig.waves, SizeIs(1));
  EXPECT_EQ(rig.waves[0].cause, "imbalance");
  EXPECT_THAT(rig.waves[0].reason, HasSubstr("s1 has had 1.30 times the mean load or more"));
  EXPECT_THAT(rig.waves[0].goals.front().reason, HasSubstr("rebalance: s1"));
  // 8 x 10,000 against 8 x 2,000 rows: three of the busy ones make it 50,000 to 46,000.
  EXPECT_EQ(rig.moves, 3u);
  EXPECT_LT(rig.Imbalance(Skewed), 1.1);
  EXPECT_EQ(rig.waves[0].bytes, 3 * 62500u * 68);
}

TEST(RebalancePolicy, ServersThatNameOnlySomeReplicasAreEvenedOutToo) {
  RebalanceRig rig;
  rig.AddServer(1);
  rig.AddServer(2);
  rig.AddTable(1, 16, {1, 2});
  rig.replicas_named_max = 4;  // 20,000 rows/s of the other busy ones are named by no report
  rig.Run(10 * kMinute, Skewed);
  ASSERT_THAT(rig.waves, SizeIs(1));
  EXPECT_EQ(rig.moves, 3u);
  EXPECT_LT(rig.Imbalance(Skewed), 1.1);
}

TEST(RebalancePolicy, ASpikeMovesNothing) {
  RebalanceRig rig;
  rig.AddServer(1);
  rig.AddServer(2);
  rig.AddTable(1, 16, {1, 2});
  // Half a minute in every two.
  rig.Run(kHour, [](int64_t now, ShardId shard) {
    return now % (2 * kMinute) < 30'000 ? Skewed(now, shard) : Even(now, shard);
  });
  EXPECT_THAT(rig.waves, SizeIs(0)) << rig.waves.front().reason;
}

// The load swings between the servers: at any time one of them has far too much, and no placement
// would help.
TEST(RebalancePolicy, OscillatingLoadDoesNotFlap) {
  for (const int64_t period : {20'000, 40'000, 100'000, 400'000, 1'800'000}) {
    RebalanceRig rig;
    rig.AddServer(1);
    rig.AddServer(2);
    rig.AddTable(1, 16, {1, 2});
    rig.Run(4 * kHour, [&](int64_t now, ShardId shard) {
      const bool even = (shard.index + now / (period / 2)) % 2 == 0;
      return even ? Rate{5000, 5000} : Rate{1000, 1000};
    });
    if (period <= 100'000) {
      EXPECT_THAT(rig.waves, SizeIs(0)) << period << ": " << rig.waves.front().reason;
    } else {
      // Each half an hour at most, and half of it comes back the next time.
      EXPECT_LE(rig.waves.size(), 8u) << period;
      EXPECT_LE(rig.moves, 8u * 6) << period;
    }
  }
}

// The busy rows wander over the table in four hours.
TEST(RebalancePolicy, DriftIsFollowed) {
  RebalanceRig rig;
  for (ServerId s = 1; s <= 4; ++s) rig.AddServer(s);
  // Neighbours on one server: the worst placement for a load that comes by.
  rig.AddTable(1, 32, {1});
  for (uint32_t i = 0; i < 32; ++i) rig.view.tables[0].shards[i].primary = 1 + i / 8;
  const auto trace = [](int64_t now, ShardId shard) {
    const double centre = 32.0 * static_cast<double>(now) / (4 * kHour);
    const double away = std::abs(static_cast<double>(shard.index) - centre);
    return Rate{500 + 8000 * std::max(0.0, 1 - away / 6), 500};
  };
  double worst = 0;
  for (int i = 0; i < 48; ++i) {
    rig.Run(5 * kMinute, trace);
    if (i >= 2) worst = std::max(worst, rig.Imbalance(trace));
  }
  // The load has left every server in turn: 24 shards' worth at the least.
  EXPECT_GE(rig.waves.size(), 4u);
  EXPECT_LE(rig.waves.size(), 20u);
  EXPECT_LE(rig.moves, 50u);
  EXPECT_LT(worst, 1.9) << "unmoved it would be up to 3.2";
}

TEST(RebalancePolicy, TwoServersBecomeFour) {
  for (const bool idle : {false, true}) {
    RebalanceRig rig;
    rig.AddServer(1);
    rig.AddServer(2);
    rig.AddTable(1, 32, {1, 2});
    const auto trace = [&](int64_t, ShardId) { return idle ? Rate{} : Rate{1000, 500}; };
    rig.Run(kMinute, trace);
    EXPECT_THAT(rig.waves, SizeIs(0));
    rig.AddServer(3);
    rig.Run(3000, trace);
    rig.AddServer(4);
    rig.Run(4000, trace);
    EXPECT_THAT(rig.waves, SizeIs(0)) << "s4 is not settled";
    rig.Run(kHour, trace);
    ASSERT_THAT(rig.waves, SizeIs(1)) << "one for both";
    EXPECT_EQ(rig.waves[0].cause, "arrival");
    EXPECT_THAT(rig.waves[0].reason, HasSubstr("s3, s4 came"));
    EXPECT_THAT(rig.waves[0].reason, HasSubstr("from 2.00 to 1.00 times the mean"));
    EXPECT_EQ(rig.moves, 16u) << "no more than half has to move";
    EXPECT_THAT(rig.Primaries(), SizeIs(4));
    EXPECT_THAT(rig.Primaries(), Each(Pair(Ge(1u), 8)));
  }
}

TEST(RebalancePolicy, FourServersBecomeTwo) {
  RebalanceRig rig;
  for (ServerId s = 1; s <= 4; ++s) rig.AddServer(s);
  rig.AddTable(1, 32, {1, 2, 3, 4});
  rig.policy.Switch(false);  // a drain was asked for
  rig.Run(kMinute, Even);
  for (const ServerId s : {3, 4}) {
    rig.Server(s).draining = true;
    rig.Server(s).usable = false;
  }
  rig.Run(kMinute, Even);
  ASSERT_THAT(rig.waves, SizeIs(1));
  EXPECT_EQ(rig.waves[0].cause, "drain");
  EXPECT_EQ(rig.waves[0].reason, "drain of s3, s4");
  EXPECT_EQ(rig.moves, 16u);
  EXPECT_THAT(rig.Replicas(), testing::ElementsAre(Pair(1, 16), Pair(2, 16)));
  rig.Run(kHour, Even);
  EXPECT_THAT(rig.waves, SizeIs(1));
}

TEST(RebalancePolicy, NothingHappensWhenItIsOff) {
  RebalanceOptions options;
  options.on = false;
  RebalanceRig rig(options);
  rig.AddServer(1);
  rig.AddServer(2);
  rig.AddTable(1, 16, {1, 2});
  rig.Run(10 * kMinute, Skewed);
  rig.AddServer(3);
  rig.Run(10 * kMinute, Skewed);
  EXPECT_THAT(rig.waves, SizeIs(0));
  EXPECT_FALSE(rig.policy.report().on);
  rig.policy.Switch(true);
  rig.Run(10 * kMinute, Skewed);
  ASSERT_GE(rig.waves.size(), 1u);
  EXPECT_EQ(rig.waves[0].cause, "arrival") << "the server has still nothing";
}

TEST(RebalancePolicy, TheRateLimitCutsAWaveAndItGoesOnLater) {
  RebalanceOptions options;
  options.moves_per_hour = 6;
  RebalanceRig rig(options);
  rig.AddServer(1);
  rig.AddTable(1, 32, {1});
  rig.Run(kMinute, Even);
  rig.AddServer(2);
  rig.Run(30 * kMinute, Even);
  EXPECT_EQ(rig.moves, 6u);
  EXPECT_THAT(rig.policy.report().last_reason, HasSubstr("the limit"));
  rig.Run(4 * kHour, Even);
  EXPECT_THAT(rig.moves, AllOf(Ge(14u), Le(16u))) << "in the end it is even";
  EXPECT_THAT(rig.waves, SizeIs(3));
  for (const RebalanceWave& wave : rig.waves) EXPECT_EQ(wave.cause, "arrival");
}

TEST(RebalancePolicy, NothingBeginsWhileGoalsAreOpen) {
  RebalanceRig rig;
  rig.AddServer(1);
  rig.AddServer(2);
  rig.AddTable(1, 16, {1, 2});
  rig.Run(40'000, Skewed);
  rig.open = {{{1, 0}, {1}, "somebody's"}};
  rig.done_ms = rig.now_ms + 10 * kMinute;
  rig.Run(9 * kMinute, Skewed);
  EXPECT_THAT(rig.waves, SizeIs(0));
  rig.Run(kMinute + 30'000, Skewed);
  EXPECT_THAT(rig.waves, SizeIs(0)) << "what was measured meanwhile does not count";
  rig.Run(kMinute, Skewed);
  EXPECT_THAT(rig.waves, SizeIs(1));
}

// One shard has all the load: wherever it is, its server is the busiest.
TEST(RebalancePolicy, WhatDoesNotImproveIsNotMoved) {
  RebalanceRig rig;
  rig.AddServer(1);
  rig.AddServer(2);
  rig.AddTable(1, 8, {1, 2});
  rig.Run(3 * kHour, [](int64_t, ShardId shard) {
    return shard.index == 0 ? Rate{100000, 100000} : Rate{};
  });
  uint32_t hot_moves = 0;
  for (const RebalanceWave& wave : rig.waves) {
    for (const WantedShard& goal : wave.goals) hot_moves += goal.shard.index == 0 ? 1 : 0;
  }
  EXPECT_EQ(hot_moves, 0u);
  EXPECT_LE(rig.moves, 3u) << "at most what lay beside it";
  EXPECT_THAT(rig.policy.report().last_reason, HasSubstr("no move makes the busiest server"));
  EXPECT_GT(rig.policy.report().next_ms, rig.now_ms);
}

// The same in a hashed table: the shard is cut in two, and one part moves.
TEST(RebalancePolicy, AShardThatNoMoveHelpsIsSplit) {
  const auto trace = [](int64_t, ShardId shard) {
    return shard.index < 7 ? Rate{1000, 1000} : Rate{100000, 100000};
  };
  for (const bool splits : {true, false}) {
    RebalanceOptions options;
    options.splits = splits;
    RebalanceRig rig(options);
    rig.AddServer(1);
    rig.AddServer(2);
    rig.AddTable(1, 8, {1, 2}, 1, 1'000'000, /*hashed=*/true);
    rig.Run(55'000, trace);
    EXPECT_THAT(rig.waves, SizeIs(0)) << "not before it lasts";
    rig.Run(kHour, trace);
    const auto split =
        std::find_if(rig.waves.begin(), rig.waves.end(),
                     [](const RebalanceWave& wave) { return wave.split.has_value(); });
    ASSERT_EQ(split != rig.waves.end(), splits);
    if (!splits) continue;
    EXPECT_EQ(*split->split, (ShardId{1, 7}));
    EXPECT_THAT(split->reason, HasSubstr("no move helps, and the shard has 1.7"));
    EXPECT_EQ(rig.view.tables[0].shards.size(), 9u) << "once";
    EXPECT_LT(rig.Imbalance(trace), 1.1);
    EXPECT_NE(rig.view.tables[0].shards[7].primary, rig.view.tables[0].shards[8].primary);
  }
}

// The load is that of a few rows: splits do not help, and are tried twice per hour at most.
TEST(RebalancePolicy, SplitsThatDoNotHelpAreRare) {
  RebalanceRig rig;
  rig.AddServer(1);
  rig.AddServer(2);
  rig.AddTable(1, 8, {1, 2}, 1, 1'000'000, /*hashed=*/true);
  rig.Run(3 * kHour, [&](int64_t, ShardId shard) {
    const bool last = shard.index + 1 == rig.view.tables[0].shards.size();
    return last ? Rate{100000, 100000} : Rate{};
  });
  EXPECT_GE(rig.view.tables[0].shards.size(), 8u + 2);
  EXPECT_LE(rig.view.tables[0].shards.size(), 8u + 6);
}

// After a server died its primaries are on others, and it came back with nothing but backups: roles
// change, nothing is copied.
TEST(RebalancePolicy, RolesChangeBeforeAnythingIsCopied) {
  RebalanceRig rig;
  for (ServerId s = 1; s <= 3; ++s) rig.AddServer(s);
  rig.AddTable(1, 24, {1, 2, 3}, 2);
  for (ClusterShard& shard : rig.view.tables[0].shards) {
    if (shard.primary == 1) std::swap(shard.primary, shard.backups[0]);
  }
  const auto trace = [](int64_t, ShardId) { return Rate{10000, 100}; };
  rig.Run(kHour, trace);
  ASSERT_THAT(rig.waves, SizeIs(1));
  EXPECT_EQ(rig.waves[0].cause, "imbalance");
  EXPECT_EQ(rig.moves, 0u);
  EXPECT_EQ(rig.waves[0].bytes, 0u);
  EXPECT_GE(rig.waves[0].goals.size(), 7u);
  EXPECT_LT(rig.Imbalance(trace), 1.11);
}

TEST(RebalancePolicy, ALostServersLoadIsEvenedOutOnce) {
  RebalanceRig rig;
  for (ServerId s = 1; s <= 4; ++s) rig.AddServer(s);
  // All backups of s4's primaries are on s1.
  rig.AddTable(1, 32, {1, 2, 3, 4}, 2);
  rig.Run(kMinute, Even);
  rig.Server(4).usable = rig.Server(4).reachable = false;
  for (ClusterShard& shard : rig.view.tables[0].shards) {
    // The coordinator's part: fail-over, and a refill where there is room.
    if (shard.primary == 4) {
      shard.primary = shard.backups[0];
      shard.backups = {2};
    } else if (shard.backups[0] == 4) {
      shard.backups = {shard.primary == 1 ? 2u : 1u};
    }
  }
  const auto trace = [](int64_t, ShardId) { return Rate{3000, 100}; };
  rig.Run(20'000, trace);
  EXPECT_THAT(rig.waves, SizeIs(0)) << "it may come back";
  rig.Run(20'000, trace);
  ASSERT_THAT(rig.waves, SizeIs(1));
  EXPECT_EQ(rig.waves[0].cause, "loss");
  EXPECT_THAT(rig.waves[0].reason, HasSubstr("s4 is lost"));
  EXPECT_LE(rig.moves, 8u) << "of 64 replicas";
  rig.Run(kHour, trace);
  EXPECT_LT(rig.Imbalance(trace), 1.2);
  EXPECT_THAT(rig.waves, SizeIs(1));

  rig.Server(4).usable = rig.Server(4).reachable = true;
  rig.Server(4).incarnation = 2;
  rig.Run(kHour, trace);
  ASSERT_GE(rig.waves.size(), 2u);
  EXPECT_EQ(rig.waves[1].cause, "arrival");
  EXPECT_THAT(rig.waves, SizeIs(2));
  EXPECT_LE(rig.waves[1].moves, 10u);
  EXPECT_LT(rig.Imbalance(trace), 1.2);
}

// A restart is neither a loss nor an arrival.
TEST(RebalancePolicy, ARestartMovesNothing) {
  RebalanceRig rig;
  for (ServerId s = 1; s <= 3; ++s) rig.AddServer(s);
  rig.AddTable(1, 24, {1, 2, 3});
  rig.Run(kMinute, Even);
  rig.Server(2).usable = rig.Server(2).reachable = false;
  rig.Run(10'000, Even);
  rig.Server(2).usable = rig.Server(2).reachable = true;
  rig.Server(2).incarnation = 2;
  rig.Run(kHour, Even);
  EXPECT_THAT(rig.waves, SizeIs(0)) << rig.waves.front().reason;
}

// Servers that are there before the first table have not come to take something over.
TEST(RebalancePolicy, TheFirstTablesStayWhereTheyWereMade) {
  RebalanceRig rig;
  for (ServerId s = 1; s <= 3; ++s) rig.AddServer(s);
  rig.Run(2000, Even);
  rig.AddTable(1, 1, {1}, 1, 100);
  rig.AddTable(2, 1, {1}, 1, 100);
  rig.Run(kHour, [](int64_t, ShardId) { return Rate{10, 10}; });
  EXPECT_THAT(rig.waves, SizeIs(0)) << rig.waves.front().reason;
}

TEST(RebalancePolicy, ADrainWithoutAPlaceSaysSo) {
  RebalanceRig rig;
  rig.AddServer(1, "h1");
  rig.AddServer(2, "h2");
  rig.AddServer(3, "h2");
  rig.AddTable(1, 8, {1, 2}, 2);
  rig.Server(1).draining = true;
  rig.Server(1).usable = false;
  rig.Run(kMinute, Even);
  EXPECT_THAT(rig.waves, SizeIs(0));
  EXPECT_THAT(rig.policy.report().last_reason, HasSubstr("a drain finds no place"));
  rig.AddServer(4, "h4");
  rig.Run(kMinute, Even);
  ASSERT_GE(rig.waves.size(), 1u);
  EXPECT_EQ(rig.waves[0].cause, "drain");
  EXPECT_EQ(rig.waves[0].moves, 8u);
  for (const WantedShard& goal : rig.waves[0].goals) {
    EXPECT_EQ(goal.servers[0], 2u) << "who holds a replica leads, nobody waits for the new one";
    EXPECT_EQ(goal.servers[1], 4u);
  }
}

// Who plans a cluster, or places new tables in it, knows what its shards have to do.
TEST(RebalancePolicy, MeasuredLoadsWeighTheView) {
  RebalanceRig rig({.on = false});
  for (const ServerId s : {1, 2}) rig.AddServer(s);
  rig.AddTable(1, 8, {1, 2});
  EXPECT_FALSE(rig.policy.Weighed(rig.view).has_value()) << "nothing is measured";
  const auto busy = [](int64_t, ShardId shard) {
    return shard.index % 2 == 0 ? Rate{9000, 1000} : Rate{90, 10};
  };
  rig.Run(kMinute, busy);
  auto weighed = rig.policy.Weighed(rig.view);
  ASSERT_TRUE(weighed.has_value());
  const std::vector<ClusterShard>& shards = weighed->tables[0].shards;
  EXPECT_NEAR(shards[0].rows_pulled, 9000, 1000) << "and a share of a tenth of all rows";
  EXPECT_NEAR(shards[0].rows_pushed, 1000, 10);
  EXPECT_LT(shards[1].rows_pulled, 1000);
  weighed->tables.push_back({rig.view.tables[0].spec, {}});
  weighed->tables[1].spec.id = 2;
  weighed->tables[1].spec.name = "new";
  weighed->tables[1].spec.rows = 1000;
  const absl::StatusOr<Plan> plan = PlaceNewTables(*weighed);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->shards.front().assignments[0].server, 2u) << "s1 has all the load";
  rig.Run(kMinute, [](int64_t, ShardId) { return Rate{1, 1}; });
  EXPECT_FALSE(rig.policy.Weighed(rig.view).has_value()) << "idle";
}

// Whatever the loads: waves come to an end, and never make the busiest server busier.
TEST(RebalancePolicy, RandomSteadyLoadsComeToRest) {
  const TestSeed seed(20260104);
  Random random(seed.value());
  for (int i = 0; i < 25; ++i) {
    RebalanceRig rig;
    const ServerId n = 2 + random.Uniform(5);
    std::vector<ServerId> all;
    for (ServerId s = 1; s <= n; ++s) {
      rig.AddServer(s);
      all.push_back(s);
    }
    const uint32_t replicas = 1 + random.Uniform(std::min<uint64_t>(n, 3));
    const uint32_t shards = 8 + random.Uniform(40);
    rig.AddTable(1, shards, all, replicas);
    std::map<uint32_t, Rate> rates;
    for (uint32_t s = 0; s < shards; ++s) {
      const double scale = random.OneIn(6) ? 20000 : 1500;
      rates[s] = {scale * random.Double(), scale * random.Double()};
    }
    const auto trace = [&](int64_t, ShardId shard) { return rates[shard.index]; };
    const double before = rig.Imbalance(trace);
    rig.Run(2 * kHour, trace);
    const size_t waves = rig.waves.size();
    ASSERT_LE(waves, 4u);
    ASSERT_LE(rig.Imbalance(trace), before * 1.001);
    rig.Run(2 * kHour, trace);
    ASSERT_LE(rig.waves.size(), waves + 1) << rig.waves.back().reason;
  }
}

}  // namespace rebalance_policy_test
}  // namespace hotbed
