// The map, retry verdicts, and the timer.
#include "client/map/cluster_map.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <vector>

#include "absl/synchronization/notification.h"
#include "client/map/table_handle.h"
#include "client/net/retry.h"
#include "client/net/timer.h"

namespace hotbed {
namespace cluster_map_test {

MapUpdate WholeMap(uint64_t revision, Epoch epoch, ServerId primary) {
  MapUpdate update;
  update.cluster_id = "c";
  update.plan_revision = revision;
  TableSpec spec;
  spec.id = 3;
  spec.name = "t";
  spec.rows = 100;
  spec.dim = 4;
  update.tables.push_back(spec);
  for (uint32_t i = 0; i < 2; ++i) {
    ShardRecord record;
    record.shard = {3, i};
    record.range = {50ull * i, 50ull * (i + 1), 0, 4};
    record.epoch = epoch;
    record.primary.server = primary;
    update.shards.push_back(record);
  }
  update.servers.push_back({primary, 1, "127.0.0.1:1"});
  return update;
}

TEST(ClusterMapTest, NeverGoesToALowerEpoch) {
  ClusterMapHolder holder;
  holder.Apply(WholeMap(1, 5, 1));
  ShardRecord moved = *holder.Get()->Shard({3, 0});
  moved.epoch = 7;
  moved.primary.server = 2;
  EXPECT_TRUE(holder.ApplyRecord(moved));
  EXPECT_FALSE(holder.ApplyRecord(moved));
  holder.Apply(WholeMap(2, 6, 1));
  EXPECT_EQ(holder.Get()->Shard({3, 0})->epoch, 7);
  EXPECT_EQ(holder.Get()->Shard({3, 1})->epoch, 6);
  ShardRecord activated = moved;
  activated.revision = 9;
  activated.active = true;
  EXPECT_TRUE(holder.ApplyRecord(activated));
}

TEST(ClusterMapTest, AnOlderWholeMapSaysNothing) {
  ClusterMapHolder holder;
  holder.Apply(WholeMap(5, 5, 1));
  MapUpdate old = WholeMap(4, 5, 1);
  old.tables.clear();
  old.shards.clear();
  holder.Apply(old);
  EXPECT_NE(holder.Get()->Table("t"), nullptr);
}

TEST(ClusterMapTest, AChangedTableIsLearned) {
  ClusterMapHolder holder;
  holder.Apply(WholeMap(5, 5, 1));
  const ClusterMapPtr before = holder.Get();
  MapUpdate altered;
  altered.delta = true;
  altered.plan_revision = 6;
  altered.tables = WholeMap(5, 5, 1).tables;
  altered.tables[0].changes = {{.at_step = 9, .has_clip_value = true, .clip_value = 2}};
  holder.Apply(altered);
  EXPECT_EQ(holder.Get()->Table("t")->spec.changes, altered.tables[0].changes);
  EXPECT_EQ(holder.Get()->Table("t")->shards.size(), 2u);
  EXPECT_TRUE(before->Table("t")->spec.changes.empty()) << "who holds the old map keeps it";
  holder.Apply(WholeMap(4, 5, 1));
  EXPECT_EQ(holder.Get()->Table("t")->spec.changes.size(), 1u) << "an older map says nothing";
}

// The update that CreateTable or DropTable of this client returned.
MapUpdate Created(uint64_t revision) {
  MapUpdate update = WholeMap(0, 1, 1);
  update.servers.clear();
  update.delta = true;
  update.tables_revision = revision;
  return update;
}
MapUpdate Dropped(uint64_t revision) {
  MapUpdate update;
  update.delta = true;
  update.tables_dropped = {3};
  update.tables_revision = revision;
  return update;
}
MapUpdate EmptyMap(uint64_t revision) {
  MapUpdate update = WholeMap(revision, 1, 1);
  update.tables.clear();
  update.shards.clear();
  return update;
}

TEST(ClusterMapTest, ATableJustCreatedOutlivesMapsThatAreOlder) {
  ClusterMapHolder holder;
  holder.Apply(EmptyMap(5));
  holder.Apply(Created(10));
  EXPECT_EQ(holder.Get()->plan_revision(), 5) << "what else happened up to 10 is not known";
  holder.Apply(EmptyMap(9));
  EXPECT_EQ(holder.Get()->plan_revision(), 9);
  ASSERT_NE(holder.Get()->Table("t"), nullptr);
  MapUpdate other = EmptyMap(9);
  other.delta = true;
  holder.Apply(other);
  ASSERT_NE(holder.Get()->Table("t"), nullptr);
  holder.Apply(EmptyMap(11));
  EXPECT_EQ(holder.Get()->Table("t"), nullptr) << "somebody dropped it";
  holder.Apply(Created(10));
  EXPECT_EQ(holder.Get()->Table("t"), nullptr) << "the answer came after the drop";
}

TEST(ClusterMapTest, ATableJustDroppedStaysAwayFromMapsThatAreOlder) {
  ClusterMapHolder holder;
  holder.Apply(WholeMap(5, 1, 1));
  holder.Apply(Dropped(10));
  EXPECT_EQ(holder.Get()->Table("t"), nullptr);
  holder.Apply(WholeMap(9, 1, 1));
  EXPECT_EQ(holder.Get()->Table("t"), nullptr);
  MapUpdate delta = WholeMap(9, 2, 1);
  delta.delta = true;
  holder.Apply(delta);
  EXPECT_EQ(holder.Get()->Table("t"), nullptr);
  holder.Apply(EmptyMap(10));
  EXPECT_EQ(holder.Get()->Table("t"), nullptr);
}

TEST(ClusterMapTest, ALateDeltaSaysNothing) {
  ClusterMapHolder holder;
  MapUpdate whole = WholeMap(5, 1, 1);
  holder.Apply(whole);
  MapUpdate late;
  late.delta = true;
  late.plan_revision = 4;
  late.servers.push_back({1, 1, "127.0.0.1:99"});
  holder.Apply(late);
  EXPECT_EQ(holder.Get()->Server(1)->address, "127.0.0.1:1");
}

TEST(ClusterMapTest, KnowsTheLeastOfTheServersLimits) {
  ClusterMapHolder holder;
  MapUpdate update = WholeMap(1, 1, 1);
  update.servers.push_back({2, 1, "127.0.0.1:2", 100});
  update.servers.push_back({3, 1, "127.0.0.1:3", 90});
  holder.Apply(update);
  EXPECT_EQ(holder.Get()->message_bytes_max(), 90);
  holder.Apply(WholeMap(2, 1, 1));
  EXPECT_EQ(holder.Get()->message_bytes_max(), 0) << "nobody says";
}

TEST(ClusterMapTest, ATableComesWithAllItsShardsAndGoes) {
  ClusterMapHolder holder;
  MapUpdate created = WholeMap(1, 1, 1);
  created.delta = true;
  std::reverse(created.shards.begin(), created.shards.end());
  holder.Apply(created);
  ASSERT_NE(holder.Get()->Table(3), nullptr);
  EXPECT_EQ(holder.Get()->Table(3)->locator.Find(99), 1);
  MapUpdate dropped;
  dropped.delta = true;
  dropped.tables_dropped = {3};
  holder.Apply(dropped);
  EXPECT_EQ(holder.Get()->Table(3), nullptr);
}

// The table of WholeMap in three column slices, of 2, 1 and 1 columns.
MapUpdate SlicedMap() {
  MapUpdate update = WholeMap(1, 1, 1);
  update.tables[0].column_slices = 3;
  const std::vector<ShardRecord> whole = update.shards;
  update.shards.clear();
  for (uint32_t slice = 0; slice < 3; ++slice) {
    for (ShardRecord record : whole) {
      record.shard.index = static_cast<uint32_t>(update.shards.size());
      record.range.column_first = slice == 0 ? 0 : slice + 1;
      record.range.column_limit = slice + 2;
      update.shards.push_back(record);
    }
  }
  return update;
}

TEST(ClusterMapTest, ASlicedTableFindsTheShardsOfASlice) {
  ClusterMapHolder holder;
  holder.Apply(SlicedMap());
  const TableRoute* route = holder.Get()->Table(3);
  ASSERT_NE(route, nullptr);
  EXPECT_EQ(route->ranges(), 2);
  EXPECT_EQ(route->slices(), 3);
  EXPECT_EQ(route->locator.Find(99), 1);
  EXPECT_EQ(route->ShardOf(2, 1), 5);
}

TEST(ClusterMapTest, SlicesThatDoNotTileTheTableAreNoTable) {
  const auto known = [](const std::function<void(MapUpdate*)>& spoil) {
    MapUpdate update = SlicedMap();
    spoil(&update);
    ClusterMapHolder holder;
    holder.Apply(update);
    return holder.Get()->Table(3) != nullptr;
  };
  EXPECT_TRUE(known([](MapUpdate*) {}));
  EXPECT_FALSE(known([](MapUpdate* u) { u->tables[0].column_slices = 2; }));
  EXPECT_FALSE(known([](MapUpdate* u) { u->tables[0].dim = 5; }));
  EXPECT_FALSE(known([](MapUpdate* u) { u->shards[3].range.column_limit = 4; }));
  EXPECT_FALSE(known([](MapUpdate* u) { u->shards[4].range.column_first = 2; }));
  EXPECT_FALSE(known([](MapUpdate* u) {
    u->shards[2].range.limit = 40;  // cut differently from the first slice
    u->shards[3].range.first = 40;
  }));
  EXPECT_FALSE(known([](MapUpdate* u) { u->shards.resize(4); }));
}

// Shard 0 of WholeMap cut at row 20; the new one is shard 2.
MapUpdate CutMap() {
  MapUpdate update = WholeMap(2, 2, 1);
  update.delta = true;
  update.shards.resize(1);
  update.shards.push_back(update.shards[0]);
  update.shards[0].range.limit = 20;
  update.shards[1].range.first = 20;
  update.shards[1].shard.index = 2;
  return update;
}

TEST(ClusterMapTest, ACutIsTakenWithBothParts) {
  ClusterMapHolder holder;
  holder.Apply(WholeMap(1, 1, 1));
  const uint64_t cuts = holder.Get()->cuts();
  EXPECT_FALSE(holder.ApplyRecord(CutMap().shards[0])) << "it came with WRONG_EPOCH";
  MapUpdate half = CutMap();
  half.shards.resize(1);
  holder.Apply(half);
  EXPECT_EQ(holder.Get()->cuts(), cuts);
  EXPECT_EQ(holder.Get()->Shard({3, 0})->epoch, 1);
  holder.Apply(CutMap());
  EXPECT_EQ(holder.Get()->cuts(), cuts + 1);
  const TableRoute* route = holder.Get()->Table(3);
  EXPECT_EQ(route->ranges(), 3);
  std::vector<uint32_t> shards;
  for (const uint64_t row : {0, 19, 20, 49, 50}) {
    shards.push_back(route->ShardOf(0, route->locator.Find(row)));
  }
  EXPECT_EQ(shards, (std::vector<uint32_t>{0, 0, 2, 2, 1}));
  EXPECT_EQ(route->cut_from, (std::vector<CutFrom>{{0, 0}, {1, 0}, {0, 1}}));
  holder.Apply(CutMap());
  EXPECT_EQ(holder.Get()->cuts(), cuts + 1) << "no news";
  EXPECT_TRUE(holder.ApplyRecord([] {
    ShardRecord later = CutMap().shards[1];
    later.epoch = 3;
    return later;
  }()));
}

// Both shards of the whole map as one, with a lane for each.
MapUpdate MergedMap() {
  MapUpdate update = WholeMap(2, 7, 2);
  update.delta = true;
  update.shards.resize(1);
  ShardRecord& merged = update.shards[0];
  merged.range.limit = 100;
  merged.lanes = {{.index = 0, .tag = 2, .first = 0, .limit = 50},
                  {.index = 1, .tag = 3, .first = 50, .limit = 100}};
  return update;
}

TEST(ClusterMapTest, LanesOfAMergedShardStayWhatIsPushedTo) {
  ClusterMapHolder holder;
  holder.Apply(WholeMap(1, 1, 1));
  const uint64_t cuts = holder.Get()->cuts();
  EXPECT_FALSE(holder.ApplyRecord(MergedMap().shards[0])) << "it came with WRONG_EPOCH";
  holder.Apply(MergedMap());
  EXPECT_EQ(holder.Get()->cuts(), cuts) << "nothing was cut";
  const TableRoute* route = holder.Get()->Table(3);
  EXPECT_EQ(route->order, (std::vector<uint32_t>{0, 1}));
  ASSERT_EQ(route->targets.size(), 2u);
  for (const uint32_t lane : {0, 1}) {
    EXPECT_EQ(route->targets[lane].shard, 0u) << lane;
    EXPECT_EQ(route->targets[lane].epoch, 7u) << lane;
    EXPECT_EQ(route->targets[lane].primary, 2u) << lane;
    EXPECT_EQ(route->shards[lane].range.first, 50u * lane);
    EXPECT_EQ(route->shards[lane].range.limit, 50u * (lane + 1));
  }
  EXPECT_EQ(route->records.size(), 1u);
  EXPECT_FALSE(holder.ApplyRecord(WholeMap(1, 6, 1).shards[1])) << "of before the merge";
  ShardRecord moved = MergedMap().shards[0];
  moved.epoch = 8;
  moved.primary.server = 1;
  EXPECT_TRUE(holder.ApplyRecord(moved));
  EXPECT_EQ(holder.Get()->Table(3)->targets[1].epoch, 8u);
}

// At row 70: the upper part begins with a lane of the new shard's number.
TEST(ClusterMapTest, LanesAreCutAsShardsAre) {
  ClusterMapHolder holder;
  holder.Apply(WholeMap(1, 1, 1));
  holder.Apply(MergedMap());
  const uint64_t cuts = holder.Get()->cuts();
  MapUpdate update = MergedMap();
  update.plan_revision = 3;
  ShardRecord& lower = update.shards[0];
  lower.epoch = 8;
  lower.range.limit = 70;
  lower.lanes[1].limit = 70;
  ShardRecord upper = lower;
  upper.shard.index = 4;
  upper.range.first = 70;
  upper.range.limit = 100;
  upper.lanes = {{.index = 4, .tag = 3, .first = 70, .limit = 100}};
  update.shards.push_back(upper);
  holder.Apply(update);
  EXPECT_EQ(holder.Get()->cuts(), cuts + 1);
  const TableRoute* route = holder.Get()->Table(3);
  EXPECT_EQ(route->order, (std::vector<uint32_t>{0, 1, 4}));
  EXPECT_EQ(route->targets[1].shard, 0u);
  EXPECT_EQ(route->targets[4].shard, 4u);
  EXPECT_EQ(route->cut_from[4], (CutFrom{1, 7}));
  EXPECT_EQ(route->shards[2].epoch, 0u) << "no lane has this number";
}

TEST(ClusterMapTest, AMergedShardIsKnownAtOnceAndHugeNumbersAreNot) {
  ClusterMapHolder holder;
  MapUpdate update = MergedMap();
  update.delta = false;
  update.shards[0].lanes[1].index = 1u << 30;
  holder.Apply(update);
  EXPECT_EQ(holder.Get()->Table(3), nullptr) << "it would take as much memory";
  update.plan_revision = 3;
  update.shards[0].lanes[1].index = 9;
  holder.Apply(update);
  ASSERT_NE(holder.Get()->Table(3), nullptr);
  EXPECT_EQ(holder.Get()->Table(3)->order, (std::vector<uint32_t>{0, 9}));
}

// A part gives out LSNs of its own: what was seen of the other since the cut is not asked of it.
TEST(TableHandleTest, APartNeedsWhatWasSeenOfTheWhole) {
  TableOptions options;
  options.replicas = 2;
  options.durability = Durability::kReplicated;
  const TableHandle table(nullptr, options, 1);
  table.NoteAcknowledged(0, 4, 70);
  table.NoteAcknowledged(0, 5, 90);
  table.LearnCuts(std::vector<CutFrom>{{0, 0}, {0, 4}});
  EXPECT_EQ(table.shard_count(), 2u);
  EXPECT_EQ(table.LsnMin(0, 5), 90u);
  EXPECT_EQ(table.LsnMin(1, 5), 70u) << "5 was its first epoch";
  table.LearnCuts(std::vector<CutFrom>{{0, 0}, {0, 4}, {0, 5}});
  EXPECT_EQ(table.LsnMin(2, 6), 90u);
}

TEST(ClusterMapTest, ATableThatWasCutBeforeIsKnownAtOnce) {
  ClusterMapHolder holder;
  MapUpdate update = CutMap();
  update.delta = false;
  update.shards.push_back(WholeMap(1, 1, 1).shards[1]);
  holder.Apply(update);
  const TableRoute* route = holder.Get()->Table(3);
  ASSERT_NE(route, nullptr);
  EXPECT_EQ(route->order, (std::vector<uint32_t>{0, 2, 1}));
}

TEST(ClusterMapTest, AMapThatSomebodyHoldsDoesNotChange) {
  ClusterMapHolder holder;
  holder.Apply(WholeMap(1, 1, 1));
  const ClusterMapPtr held = holder.Get();
  holder.Apply(WholeMap(2, 2, 2));
  EXPECT_EQ(held->Shard({3, 0})->epoch, 1);
  EXPECT_EQ(held->Server(2), nullptr);
}

TEST(RetryTest, CodesAreSortedIntoWhatHelps) {
  EXPECT_EQ(VerdictOf(v1::WRONG_EPOCH, false), Verdict::kReroute);
  EXPECT_EQ(VerdictOf(v1::UNAVAILABLE, false), Verdict::kLater);
  EXPECT_EQ(VerdictOf(v1::DEADLINE_EXCEEDED, false), Verdict::kFinal);
  EXPECT_EQ(VerdictOf(v1::DEADLINE_EXCEEDED, true), Verdict::kLater);
  EXPECT_EQ(VerdictOf(v1::GAP, true), Verdict::kGap);
  EXPECT_EQ(VerdictOf(v1::FENCED, true), Verdict::kFinal);
  EXPECT_EQ(VerdictOf(static_cast<v1::Code>(99), true), Verdict::kFinal);
  EXPECT_THAT(std::string(StatusOf(v1::CORRUPT, "table t", "block 3").message()),
              testing::AllOf(testing::HasSubstr("table t"), testing::HasSubstr("block 3")));
}

TEST(RetryTest, DelaysGrowFollowTheServerAndSlowDownWithoutBudget) {
  RetryPolicy policy(1);
  for (int i = 0; i < 20; ++i) {
    const int64_t first = policy.DelayNs(1, 0);
    EXPECT_GE(first, 500'000);
    EXPECT_LT(first, 1'500'000);
    const int64_t asked = policy.DelayNs(1, 20);
    EXPECT_GE(asked, 10'000'000);
    EXPECT_LT(asked, 30'000'000);
  }
  for (int i = 0; i < 100; ++i) policy.DelayNs(1, 0);
  EXPECT_GE(policy.DelayNs(1, 0), 4'000'000);
  for (int i = 0; i < 100; ++i) policy.CountRequest();
  EXPECT_LT(policy.DelayNs(1, 0), 1'500'000);
}

TEST(RetryTest, AShardThatStoppedForAMomentIsAskedEveryFewMilliseconds) {
  RetryPolicy policy(1);
  int64_t all = 0;
  for (int attempt = 1; attempt <= RetryPolicy::kBriefAttempts; ++attempt) {
    const int64_t delay = policy.SoonNs(attempt, 0);
    EXPECT_LE(delay, 6'000'000) << attempt;
    all += delay;
  }
  EXPECT_GT(all, 29'000'000) << "half of 59 ms at least, so as long as a merge may take";
}

TEST(RetryTest, WhatAFailOverEndsIsAskedForSoonAndOutOfNoBudget) {
  RetryPolicy policy(1);
  int64_t all = 0;
  for (int attempt = 1; attempt <= RetryPolicy::kSoonAttempts; ++attempt) {
    const int64_t delay = policy.SoonNs(attempt, 0);
    EXPECT_LT(delay, 3 * RetryPolicy::kSoonNsMax / 2) << attempt;
    all += delay;
  }
  EXPECT_GT(all, 2'000'000'000);
  EXPECT_LT(all, 5'000'000'000);
  EXPECT_GE(policy.SoonNs(RetryPolicy::kSoonAttempts + 1, 0), 128'000'000);
  EXPECT_GE(policy.SoonNs(1, 20), 10'000'000) << "the server's wish";
  EXPECT_LT(policy.DelayNs(1, 0), 1'500'000) << "the budget is whole";
}

TEST(ClusterMapTest, RecordsOfOneAnswerAreTakenTogether) {
  ClusterMapHolder holder;
  holder.Apply(WholeMap(1, 5, 1));
  const ShardRecord known = *holder.Get()->Shard({3, 0});
  std::vector<ShardRecord> news(4, known);
  news[0].epoch = 6;
  news[1].epoch = 7;
  news[2].shard = {3, 1};
  news[2].epoch = 4;  // never a lower one
  news[3].shard = {9, 0};
  EXPECT_EQ(holder.ApplyRecords(news), 2u);
  EXPECT_EQ(holder.Get()->Shard({3, 0})->epoch, 7);
  EXPECT_EQ(holder.Get()->Shard({3, 1})->epoch, 5);
  EXPECT_EQ(holder.ApplyRecords(news), 0u);
}

TEST(TimerTest, RunsTasksInOrderOfTheirTimeAndTicksWhileWatched) {
  std::atomic<int> ticks{0};
  Timer timer(Clock::Real(), [&] { ++ticks; });
  std::vector<int> order;
  absl::Notification done;
  timer.RunAfter(4'000'000, [&] {
    order.push_back(2);
    done.Notify();
  });
  timer.RunAfter(1'000'000, [&] { order.push_back(1); });
  done.WaitForNotification();
  EXPECT_EQ(order, (std::vector<int>{1, 2}));
  EXPECT_EQ(ticks, 0);
  timer.AddWatcher();
  while (ticks < 2) absl::SleepFor(absl::Milliseconds(1));
  timer.RemoveWatcher();
  timer.Stop();
}

}  // namespace cluster_map_test
}  // namespace hotbed
