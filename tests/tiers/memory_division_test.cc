#include "server/tiers/memory/memory_division.h"

#include <gtest/gtest.h>

#include <numeric>
#include <vector>

#include "common/random.h"
#include "server/tiers/memory/recent_misses.h"
#include "tests/common/test_seed.h"

namespace hotbed {
namespace memory_division_test {

constexpr uint64_t kMiB = 1ull << 20;
constexpr uint64_t kBudget = 800 * kMiB;

uint64_t GivenBy(const ShardTransfer& shard) { return shard.give_cold + shard.give_forced; }

TEST(MemoryDivisionTest, NothingMovesWithoutDemand) {
  const std::vector<TableShare> tables = {{500 * kMiB}, {300 * kMiB}};
  const std::vector<ShardTransfer> division = DivideMemory(
      kBudget, kBudget, tables,
      {{0, 500 * kMiB, 400 * kMiB, 0, 0, 10 * kMiB}, {1, 300 * kMiB, 0, 0, 0, 50 * kMiB}});
  for (const ShardTransfer& shard : division) {
    EXPECT_EQ(GivenBy(shard), 0u);
    EXPECT_EQ(shard.credit, 0u);
  }
}

TEST(MemoryDivisionTest, ColdRowsMakeRoomForWantedOnes) {
  const std::vector<TableShare> tables = {{500 * kMiB}, {300 * kMiB}};
  const std::vector<ShardTransfer> division = DivideMemory(
      kBudget, kBudget, tables,
      {{0, 500 * kMiB, 400 * kMiB, 0, 0, 0}, {1, 300 * kMiB, 0, 0, 50 * kMiB, 60 * kMiB}});
  EXPECT_EQ(division[0].give_cold, 50 * kMiB);
  EXPECT_EQ(division[0].give_forced, 0u);
  EXPECT_EQ(division[1].credit, 50 * kMiB);
}

// In a short round many rows in use look cold.
TEST(MemoryDivisionTest, IdleRowsLeaveBeforeOtherColdOnes) {
  const std::vector<TableShare> tables = {{400 * kMiB}, {300 * kMiB}, {100 * kMiB}};
  std::vector<ShardDemand> shards = {{0, 400 * kMiB, 150 * kMiB, 0, 0, 0},
                                     {1, 300 * kMiB, 0, 300 * kMiB, 0, 0},
                                     {2, 100 * kMiB, 20 * kMiB, 0, 90 * kMiB, 100 * kMiB}};
  std::vector<ShardTransfer> division = DivideMemory(kBudget, kBudget, tables, shards);
  EXPECT_EQ(GivenBy(division[0]), 0u);
  EXPECT_EQ(division[1].give_forced, 92 * kMiB + kMiB / 2) << "whatever visits of old they have";
  EXPECT_EQ(division[2].credit, 92 * kMiB + kMiB / 2) << "a quarter of the rows read once, too";
  shards[1].idle = 50 * kMiB;
  division = DivideMemory(kBudget, kBudget, tables, shards);
  EXPECT_EQ(division[1].give_forced, 50 * kMiB);
  EXPECT_GT(division[0].give_cold, 30 * kMiB) << "what the idle ones lack";
}

TEST(MemoryDivisionTest, RowsThatWereReadOnceGetTheRoomOfIdleOnesOnly) {
  const std::vector<TableShare> tables = {{500 * kMiB}, {300 * kMiB}};
  std::vector<ShardDemand> shards = {{0, 500 * kMiB, 500 * kMiB, 0, 0, 0},
                                     {1, 300 * kMiB, 0, 0, 0, 200 * kMiB}};
  EXPECT_EQ(DivideMemory(kBudget, kBudget, tables, shards)[1].credit, 0u);
  shards[0].idle = 30 * kMiB;
  EXPECT_EQ(DivideMemory(kBudget, kBudget, tables, shards)[1].credit, 30 * kMiB);
  shards[0].idle = 100 * kMiB;
  EXPECT_EQ(DivideMemory(kBudget, kBudget, tables, shards)[1].credit, 200 * kMiB / kReadOnceShare);
}

TEST(MemoryDivisionTest, RowsInUseDoNotLeaveForOthersInUse) {
  const std::vector<TableShare> tables = {{500 * kMiB}, {300 * kMiB}};
  const std::vector<ShardTransfer> division =
      DivideMemory(kBudget, kBudget, tables,
                   {{0, 500 * kMiB, 0, 0, 0, 0}, {1, 300 * kMiB, 0, 0, 50 * kMiB, 60 * kMiB}});
  EXPECT_EQ(GivenBy(division[0]), 0u);
  EXPECT_EQ(division[1].credit, 0u);
}

TEST(MemoryDivisionTest, AShardWithNothingGetsSomethingToWorkWith) {
  const std::vector<TableShare> tables = {{kBudget}, {0}};
  const std::vector<ShardTransfer> division =
      DivideMemory(kBudget, kBudget, tables, {{0, kBudget, 0, 0, 0, 0}, {1, 0, 0, 0, 0, 100}});
  EXPECT_EQ(division[1].credit, kFloorBytesMax);
  EXPECT_EQ(division[0].give_forced, kFloorBytesMax);
}

TEST(MemoryDivisionTest, LeastAndMostSharesHold) {
  std::vector<TableShare> tables = {{500 * kMiB, 480 * kMiB}, {300 * kMiB}};
  const std::vector<ShardDemand> shards = {{0, 500 * kMiB, 500 * kMiB, 0, 0, 0},
                                           {1, 300 * kMiB, 0, 0, 90 * kMiB, 90 * kMiB}};
  EXPECT_EQ(DivideMemory(kBudget, kBudget, tables, shards)[0].give_cold, 20 * kMiB);
  // Below its least: the table gets its rows back, although those of the other are all in use.
  tables = {{300 * kMiB, 400 * kMiB}, {500 * kMiB}};
  const std::vector<ShardTransfer> claimed = DivideMemory(
      kBudget, kBudget, tables,
      {{0, 300 * kMiB, 0, 0, 0, 70 * kMiB}, {1, 500 * kMiB, 0, 0, 90 * kMiB, 90 * kMiB}});
  EXPECT_EQ(claimed[0].credit, 70 * kMiB);
  EXPECT_EQ(claimed[1].give_forced, 70 * kMiB);
  // Above its most: it gives, although nobody asks.
  tables = {{500 * kMiB, 0, 100 * kMiB}, {300 * kMiB}};
  const std::vector<ShardTransfer> above = DivideMemory(
      kBudget, kBudget, tables,
      {{0, 300 * kMiB, 0, 0, 0, 0}, {0, 200 * kMiB, 0, 0, 0, 0}, {1, 300 * kMiB, 0, 0, 0, 0}});
  EXPECT_EQ(above[0].give_forced, 240 * kMiB);
  EXPECT_EQ(above[1].give_forced, 160 * kMiB);
  EXPECT_EQ(GivenBy(above[2]), 0u);
}

TEST(MemoryDivisionTest, ManyIdleShardsGiveWhatOneWants) {
  const uint64_t budget = 400 * 16 * kMiB;
  const std::vector<TableShare> tables = {{399 * 16 * kMiB}, {16 * kMiB}};
  std::vector<ShardDemand> shards(399, {0, 16 * kMiB, 16 * kMiB, 0, 0, 0});
  shards.push_back({1, 16 * kMiB, 0, 0, 50 * kMiB, 60 * kMiB});
  const std::vector<ShardTransfer> division = DivideMemory(budget, budget, tables, shards);
  uint64_t given = 0;
  size_t givers = 0;
  for (const ShardTransfer& shard : division) {
    given += GivenBy(shard);
    givers += GivenBy(shard) > 0 ? 1 : 0;
  }
  EXPECT_EQ(division[399].credit, 50 * kMiB);
  EXPECT_GE(given + kNoiseBytesMax, 50 * kMiB);
  EXPECT_LE(given, 50 * kMiB);
  EXPECT_LE(givers, 50u) << "rows of few shards move rather than a few rows of many";
}

TEST(MemoryDivisionTest, ManyShardsThatWantLittleGetIt) {
  const uint64_t budget = 400 * 64 * kMiB;
  const std::vector<TableShare> tables = {{200 * 64 * kMiB}, {200 * 64 * kMiB}};
  std::vector<ShardDemand> shards(200, {0, 64 * kMiB, 0, 0, kMiB / 4, kMiB});
  shards.resize(400, {1, 64 * kMiB, 64 * kMiB, 0, 0, 0});
  const std::vector<ShardTransfer> division = DivideMemory(budget, budget, tables, shards);
  uint64_t given = 0, credit = 0;
  for (const ShardTransfer& shard : division) {
    given += GivenBy(shard);
    credit += shard.credit;
  }
  EXPECT_GE(credit, 49 * kMiB);
  EXPECT_GE(given + kNoiseBytesMax, credit);
}

// What is credited is unused or given, nobody gives more than it has, and no table below its least
// share loses anything.
TEST(MemoryDivisionTest, RandomDivisionsAddUp) {
  const TestSeed seed(11);
  Random random(seed.value());
  for (int run = 0; run < 4000; ++run) {
    std::vector<TableShare> tables(1 + random.Uniform(4));
    std::vector<ShardDemand> shards(1 + random.Uniform(12));
    for (TableShare& table : tables) {
      if (random.OneIn(3)) table.least = random.Uniform(kBudget / tables.size());
      if (random.OneIn(3)) table.most = table.least + random.Uniform(kBudget);
    }
    uint64_t taken = 0;
    for (ShardDemand& shard : shards) {
      shard.table = random.Uniform(tables.size());
      shard.taken = random.Uniform(2 * kBudget / shards.size());
      shard.cold = random.OneIn(2) ? 0 : random.Uniform(shard.taken + 1);
      shard.idle = random.OneIn(2) ? 0 : random.Uniform(shard.taken + 1);
      shard.refused = random.OneIn(2) ? 0 : random.Uniform(kBudget);
      shard.wanted = random.Uniform(shard.refused + 1);
      tables[shard.table].taken += shard.taken;
      taken += shard.taken;
    }
    if (taken > kBudget) continue;
    const std::vector<ShardTransfer> division = DivideMemory(kBudget, taken, tables, shards);
    ASSERT_EQ(division.size(), shards.size());
    uint64_t given = 0, credit = 0;
    std::vector<uint64_t> given_by(tables.size());
    for (size_t i = 0; i < shards.size(); ++i) {
      const ShardTransfer& shard = division[i];
      EXPECT_LE(GivenBy(shard), shards[i].taken + 1) << "run " << run << " shard " << i;
      EXPECT_TRUE(shard.credit == 0 || GivenBy(shard) == 0) << "run " << run << " shard " << i;
      given += GivenBy(shard);
      credit += shard.credit;
      given_by[shards[i].table] += GivenBy(shard);
    }
    for (size_t t = 0; t < tables.size(); ++t) {
      if (tables[t].taken > tables[t].least) continue;
      EXPECT_EQ(given_by[t], 0u) << "run " << run;
    }
    // What nobody can give alone, noise of one shard at most, is not given.
    const uint64_t unused = taken < kBudget ? kBudget - taken : 0;
    EXPECT_LE(credit, unused + given + kNoiseBytesMax + shards.size()) << "run " << run;
  }
}

TEST(RecentMissesTest, OnlyASecondMissSoonAfterTheFirstCounts) {
  RecentMisses misses;
  const auto note = [&](uint64_t first, uint64_t count) {
    uint64_t again = 0;
    for (uint64_t position = first; position < first + count; ++position) {
      again += misses.Note(position) ? 1 : 0;
    }
    return again;
  };
  note(0, 10000);
  misses.NextWindow();
  EXPECT_EQ(note(0, 10000), 10000u) << "a window later";
  misses.NextWindow();
  EXPECT_LT(note(100000, 10000), 2500u) << "others, which share some of the bits";
  misses.NextWindow();
  misses.NextWindow();
  EXPECT_LT(note(0, 1000), 250u) << "two windows later";
}

}  // namespace memory_division_test
}  // namespace hotbed
