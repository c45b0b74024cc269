// Many shards, one budget: memory follows use, whichever table a row belongs to.
#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "common/clock.h"
#include "common/random.h"
#include "row_math/position.h"
#include "tests/common/number_of.h"
#include "tests/tiers/store_fixture.h"

namespace hotbed {
namespace shard_budget_test {

// Rows of about a kilobyte; 3 MiB make room for 2 MiB of them and 1 MiB on the way to the disk.
class ShardBudgetTest : public StoreFixture {
 protected:
  struct Shard {
    TableSpec spec;
    std::unique_ptr<TieredStore> store;
    std::unique_ptr<RowTwin> twin;
    std::vector<uint64_t> ids;
    Lsn lsn = 0;
  };

  ShardBudgetTest() {
    spec_.dim = 256;
    options_.hot_bytes = 3 << 20;
    OpenHost();
  }

  Shard Open(TableId table, bool hashed, uint32_t index, const ShardRange& range, uint64_t rows) {
    spec_.id = table;
    spec_.hashed = hashed;
    spec_.rows = rows;
    Shard shard;
    shard.spec = spec_;
    shard.store = OpenShard(index, range);
    shard.twin = std::make_unique<RowTwin>(spec_, range);
    for (uint64_t i = 0; shard.ids.size() < rows; ++i) {
      const uint64_t position = hashed ? i * 0x9e3779b97f4a7c15u : range.first + i;
      if (position < range.first_position(hashed) || position > range.last_position(hashed)) {
        if (!hashed) break;
        continue;
      }
      shard.ids.push_back(hashed ? Unmix64(position) : position);
    }
    return shard;
  }
  Shard OpenHashed(TableId table, uint64_t rows) {
    return Open(table, true, 0, {0, 65536, 0, 256}, rows);
  }

  // The fixture's calls work on store_.
  template <typename Call>
  void With(Shard& shard, Call call) {
    std::swap(store_, shard.store);
    call();
    std::swap(store_, shard.store);
  }
  // Updates every row of the shard, in messages of 50.
  void UpdateAll(Shard& shard) {
    With(shard, [&] {
      for (size_t first = 0; first < shard.ids.size(); first += 50) {
        const size_t limit = std::min(shard.ids.size(), first + 50);
        const std::vector<uint64_t> ids(shard.ids.begin() + first, shard.ids.begin() + limit);
        const std::vector<std::vector<float>> gradients(
            ids.size(), std::vector<float>(spec_.dim, static_cast<float>(++shard.lsn)));
        ASSERT_TRUE(ApplyNow(ids, gradients, shard.lsn).ok());
        for (uint64_t id : ids) shard.twin->Update(id, gradients[0], {0.1f, 1.0f, 1.0f});
        CheckUsage();
      }
    });
  }
  void CheckAll(Shard& shard) {
    With(shard, [&] {
      for (size_t first = 0; first < shard.ids.size(); first += 100) {
        const size_t limit = std::min(shard.ids.size(), first + 100);
        const std::vector<uint64_t> ids(shard.ids.begin() + first, shard.ids.begin() + limit);
        std::vector<float> rows;
        std::vector<uint8_t> flags;
        ASSERT_TRUE(PullNow(ids, &rows, &flags).ok());
        for (size_t i = 0; i < ids.size(); ++i) {
          const auto row = shard.twin->Read(ids[i]).weights;
          ASSERT_EQ(std::memcmp(row.data(), rows.data() + i * spec_.dim, 4 * spec_.dim), 0)
              << "table " << shard.spec.id << " id " << ids[i];
        }
        CheckUsage();
      }
    });
  }
  // Updates row `id` alone.
  void UpdateOne(Shard& shard, uint64_t id) {
    With(shard, [&] {
      const std::vector<std::vector<float>> gradient(1, std::vector<float>(spec_.dim, 0.5f));
      ASSERT_TRUE(ApplyNow({id}, gradient, ++shard.lsn).ok());
      shard.twin->Update(id, gradient[0], {0.1f, 1.0f, 1.0f});
      CheckUsage();
    });
  }
  // Reads as many rows as there are ids in [first, limit) of the shard, drawn from these. Returns
  // how many of them were in memory.
  uint64_t ReadSome(Shard& shard, size_t first, size_t limit) {
    const uint64_t before = shard.store->Stats().hits;
    With(shard, [&] {
      for (size_t read = first; read < limit; read += 50) {
        std::vector<uint64_t> ids(50);
        for (uint64_t& id : ids) id = shard.ids[first + random_.Uniform(limit - first)];
        std::vector<float> rows;
        std::vector<uint8_t> flags;
        ASSERT_TRUE(PullNow(ids, &rows, &flags).ok());
        CheckUsage();
      }
    });
    RunAll();
    return shard.store->Stats().hits - before;
  }
  void ReadRow(Shard& shard, size_t row) {
    With(shard, [&] {
      std::vector<float> rows;
      std::vector<uint8_t> flags;
      ASSERT_TRUE(PullNow({shard.ids[row]}, &rows, &flags).ok());
    });
  }
  // The time of `seconds` seconds, in each of which `work` is done four times.
  template <typename Work>
  void Seconds(int seconds, Work work) {
    for (int i = 0; i < 4 * seconds; ++i) {
      work();
      clock_.Advance(kSecondNs / 4);
    }
  }
  static uint64_t Evictions(const Shard& shard) { return shard.store->Stats().evictions; }
  void CheckUsage() {
    ASSERT_LE(NumberOf(*host_, "hot_bytes"), NumberOf(*host_, "hot_bytes_limit"));
  }
  static uint64_t Resident(const Shard& shard) { return shard.store->Stats().rows_resident; }

  const TestSeed seed_{7};
  Random random_{seed_.value()};
};

// The case of an operator who creates tables that are declared large, beside tables in use.
TEST_F(ShardBudgetTest, OpeningATableTakesNothingFromTheOthers) {
  Shard hashed = OpenHashed(7, 700);
  Shard bounded = Open(8, false, 0, {0, 700, 0, 256}, 700);
  UpdateAll(hashed);
  UpdateAll(bounded);
  Shard large = Open(9, false, 0, {0, 100000, 0, 256}, 100000);
  spec_.rows = 1 << 20;
  Shard larger = OpenHashed(10, 100);
  RunAll();
  for (Shard* shard : {&hashed, &bounded}) {
    CheckAll(*shard);
    const StoreStats stats = shard->store->Stats();
    EXPECT_EQ(stats.rows_resident, 700u);
    EXPECT_EQ(stats.evictions, 0u);
    EXPECT_EQ(stats.writebacks, 0u);
    EXPECT_EQ(stats.hits, 700u) << "of the pulls";
  }
}

// What shards take besides their rows comes from the same budget, but leaves rows half of it.
TEST_F(ShardBudgetTest, RowsHaveLessRoomTheMoreShardsThereAre) {
  host_ = nullptr;
  options_.shard_bytes = 128 << 10;
  OpenHost();
  Shard rows = OpenHashed(7, 3000);
  const auto fill = [&](uint32_t idle_shards) {
    std::vector<Shard> idle;
    for (uint32_t i = 0; i < idle_shards; ++i) idle.push_back(OpenHashed(10 + i, 1));
    Seconds(2, [&] { UpdateAll(rows); });
    EXPECT_EQ(NumberOf(*host_, "shard_bytes"), options_.shard_bytes * (1 + idle_shards));
    const uint64_t resident = Resident(rows) * RowCost();
    for (Shard& shard : idle) shard.store = nullptr;
    RunAll();
    return resident;
  };
  const uint64_t alone = fill(0);
  EXPECT_NEAR(static_cast<double>(alone - fill(4)), 4.0 * (128 << 10), 128 << 10);
  EXPECT_NEAR(static_cast<double>(fill(100)), static_cast<double>(alone) / 2, 128 << 10);
  EXPECT_GT(fill(0), alone * 9 / 10) << "closed shards give it back";
}

TEST_F(ShardBudgetTest, RowsThatWereNeverPushedCostNothing) {
  const uint64_t before = NumberOf(*host_, "hot_bytes");
  Shard range = Open(7, false, 0, {0, 1900, 0, 256}, 1900);
  for (const uint64_t id : {3, 900, 1899}) UpdateOne(range, id);
  EXPECT_EQ(Resident(range), 3u);
  EXPECT_LE(NumberOf(*host_, "hot_bytes") - before, 3u * 3 * 4096) << "three pages for each row";
  // What one range does not use, another may.
  Shard other = OpenHashed(8, 1700);
  UpdateAll(other);
  EXPECT_EQ(Resident(other), 1700u);
  EXPECT_EQ(Evictions(other) + Evictions(range), 0u);
}

// Also where the range is so large that it has huge pages.
TEST_F(ShardBudgetTest, RowsOfALargeRangeThatWereNeverPushedCostNothing) {
  host_ = nullptr;
  options_.hot_bytes = 512 << 20;
  options_.use_huge_pages = true;
  OpenHost();
  const uint64_t before = NumberOf(*host_, "hot_bytes");
  Shard range = Open(7, false, 0, {0, 300000, 0, 256}, 300000);
  for (const uint64_t id : {3, 140000, 299999}) UpdateOne(range, id);
  EXPECT_EQ(Resident(range), 3u);
  EXPECT_LE(NumberOf(*host_, "hot_bytes") - before, 3u * (80 << 10)) << "a chunk for each row";
}

TEST_F(ShardBudgetTest, RowsTakeWhatHugePagesWouldLeave) {
  host_ = nullptr;
  options_.hot_bytes = 13 << 20;
  options_.use_huge_pages = true;
  OpenHost();
  Shard shard = OpenHashed(7, 14000);
  UpdateAll(shard);
  EXPECT_GT(Resident(shard) * RowCost(), uint64_t{12 << 20} * 96 / 100);
}

// Becoming indexed takes no memory: rows of 8 bytes would else cost three times as much at once.
TEST_F(ShardBudgetTest, ARangeOfSmallRowsBecomesIndexedWithinTheBudget) {
  spec_.dim = 1;
  Shard range = Open(7, false, 0, {0, 60000, 0, 1}, 60000);
  UpdateAll(range);
  ASSERT_EQ(Resident(range), 60000u);
  spec_.dim = 256;
  Shard other = OpenHashed(8, 1000);
  UpdateAll(other);
  host_->SetMemoryShare(7, 0, 0.7f);
  CheckUsage();
  spec_.dim = 1;
  UpdateOne(range, 5);
  RunAll();
  CheckUsage();
  EXPECT_LT(Resident(range), 56000u) << "indexed by now, and cut";
  EXPECT_GT(Resident(range), 45000u);
  CheckAll(range);
}

// A server that starts, or gets a shard from another one, reads rows that were pushed and learns of
// many that were not.
TEST_F(ShardBudgetTest, RowsThatWereNeverPushedCostNothingAfterARestart) {
  const ShardRange all = {0, 1900, 0, 256};
  Shard range = Open(7, false, 0, all, 1900);
  for (const uint64_t id : {3, 900, 1899}) UpdateOne(range, id);
  With(range, [&] { ASSERT_TRUE(WriteBackNow(range.lsn, "").ok()); });
  for (const bool moved_in : {false, true}) {
    range.store = nullptr;
    RunAll();
    ASSERT_TRUE(host_->Flush().ok());
    host_ = nullptr;
    OpenHost();
    const uint64_t before = NumberOf(*host_, "hot_bytes");
    spec_ = range.spec;
    range.store = OpenShard(0, all);
    if (moved_in) {
      auto reader = host_->ReadShard(SpillShard(spec_, all, {7, 0}), /*above=*/0);
      ASSERT_TRUE(reader.ok()) << reader.status();
      const auto block = (*reader)->Next(1 << 20);
      ASSERT_TRUE(block.ok()) << block.status();
      const auto warmed = range.store->Warm(*block);
      ASSERT_TRUE(warmed.ok() && *warmed) << warmed.status();
      EXPECT_EQ(Resident(range), 3u);
    }
    CheckAll(range);
    EXPECT_EQ(Resident(range), 3u);
    EXPECT_LE(NumberOf(*host_, "hot_bytes") - before, 3u * 3 * 4096 + 2 * 1900);
    // The rest of the memory is there for others.
    Shard other = OpenHashed(8, 1700);
    UpdateAll(other);
    EXPECT_EQ(Resident(other), 1700u);
    EXPECT_EQ(Resident(range), 3u);
    other.store = nullptr;
    RunAll();
  }
}

// A direct range becomes indexed where it stands: it loses no row, and no more than the rest of the
// memory could hold leave afterwards.
TEST_F(ShardBudgetTest, ARangeThatOutgrowsTheMemoryKeepsWhatFits) {
  Shard range =
      Open(7, false, 0, {0, 1900, 0, 256}, 1900);  // fits as a whole, until the other comes
  Shard other = OpenHashed(8, 900);
  UpdateAll(other);
  uint64_t fitted = 0;
  for (uint64_t i = 0; i < 1900; ++i) {
    UpdateOne(range, i * 7 % 1900);
    if (Evictions(range) == 0) fitted = Resident(range);
    ASSERT_GE(Resident(range) + 60, fitted) << "after row " << i;
  }
  EXPECT_GT(fitted, 400u);
  EXPECT_EQ(Resident(other), 900u);
  CheckAll(range);
  CheckAll(other);
}

TEST_F(ShardBudgetTest, RowsInUseTakeTheRoomOfRowsThatAreNot) {
  Shard idle_range = Open(7, false, 0, {0, 900, 0, 256}, 900);
  Shard idle = OpenHashed(8, 900);
  UpdateAll(idle_range);
  UpdateAll(idle);
  Shard used = OpenHashed(9, 1500);
  UpdateAll(used);
  Seconds(10, [&] { ReadSome(used, 0, 1500); });
  EXPECT_GT(ReadSome(used, 0, 1500), 1450u);
  EXPECT_LT(Resident(idle) + Resident(idle_range), 550u) << "of 2,000 that fit";
  for (Shard* shard : {&idle, &idle_range, &used}) CheckAll(*shard);
}

TEST_F(ShardBudgetTest, RowsInUseStayWhileAnotherTableIsReadOnce) {
  Shard used = Open(7, false, 0, {0, 1500, 0, 256}, 1500);
  UpdateAll(used);
  Shard once = OpenHashed(8, 6000);
  for (size_t first = 0; first < 6000; first += 500) {
    Shard* const part = &once;
    With(*part, [&] {
      for (size_t i = first; i < first + 500; i += 50) {
        const std::vector<uint64_t> ids(once.ids.begin() + i, once.ids.begin() + i + 50);
        const std::vector<std::vector<float>> gradients(50, std::vector<float>(256, 1.0f));
        ASSERT_TRUE(ApplyNow(ids, gradients, ++once.lsn).ok());
      }
    });
    Seconds(1, [&] { ReadSome(used, 0, 1500); });
  }
  EXPECT_GT(ReadSome(used, 0, 1500), 1450u);
}

TEST_F(ShardBudgetTest, TablesOfEqualUseEndWithEqualShares) {
  Shard early = OpenHashed(7, 1700);
  UpdateAll(early);
  ASSERT_GT(Resident(early), 1600u);
  Shard late = OpenHashed(8, 1700);
  UpdateAll(late);
  Seconds(20, [&] {
    ReadSome(early, 0, 1700);
    ReadSome(late, 0, 1700);
  });
  EXPECT_GT(Resident(late), 650u);
  EXPECT_GT(Resident(early), 650u);
  CheckAll(early);
  CheckAll(late);
  // What a table leaves is there for the others.
  late.store = nullptr;
  RunAll();
  Seconds(2, [&] { ReadSome(early, 0, 1700); });
  EXPECT_GT(Resident(early), 1600u);
}

TEST_F(ShardBudgetTest, AHotSetThatShiftsByHalfIsFollowed) {
  Shard first = Open(7, false, 0, {0, 1400, 0, 256}, 1400);
  Shard second = OpenHashed(8, 1400);
  UpdateAll(first);
  UpdateAll(second);
  const auto rounds = [&](size_t of_first, size_t of_second) {
    Seconds(10, [&] {
      ReadSome(first, 0, of_first);
      if (of_second > 0) ReadSome(second, 0, of_second);
    });
    uint64_t hits = ReadSome(first, 0, of_first);
    if (of_second > 0) hits += ReadSome(second, 0, of_second);
    EXPECT_GT(hits, (of_first + of_second) * 95 / 100);
  };
  rounds(1400, 0);
  rounds(700, 700);
  rounds(700, 1000);
  CheckAll(first);
  CheckAll(second);
}

// A round ends with the accesses that it has seen: a busy server follows within a second, also
// after a quiet time, and not by throwing out rows in use that had no visit by chance.
TEST_F(ShardBudgetTest, ABusyServerFollowsAHotSetAtOnce) {
  Shard left = Open(7, false, 0, {0, 700, 0, 256}, 700);
  Shard stays = OpenHashed(8, 700);
  Shard enters = OpenHashed(9, 700);
  Shard idle = OpenHashed(10, 700);
  for (Shard* shard : {&left, &stays, &enters, &idle}) UpdateAll(*shard);
  size_t next = 0;
  Seconds(20, [&] {
    ReadSome(left, 0, 700);
    ReadSome(stays, 0, 700);
  });
  ASSERT_GT(ReadSome(left, 0, 700) + ReadSome(stays, 0, 700), 1390u);
  // Misses, but none that more memory would have saved.
  Seconds(30, [&] {
    ReadSome(left, 0, 700);
    ReadSome(stays, 0, 700);
    ReadRow(idle, next++);
  });
  uint64_t of_stays = 0, of_enters = 0;  // found in memory
  for (int i = 0; i < 30; ++i) {
    of_stays += ReadSome(stays, 0, 700);
    of_enters += ReadSome(enters, 0, 700);
    clock_.Advance(25 * kMillisecondNs);
  }
  EXPECT_GT(of_stays, 30u * 700 * 98 / 100);
  EXPECT_GT(of_enters, 30u * 700 * 85 / 100);
  EXPECT_GT(ReadSome(stays, 0, 700) + ReadSome(enters, 0, 700), 1365u);
  for (Shard* shard : {&left, &stays, &enters, &idle}) CheckAll(*shard);
}

TEST_F(ShardBudgetTest, ATableKeepsItsLeastShareAndNeverTakesMoreThanItsMost) {
  Shard kept = OpenHashed(7, 700);
  Shard bounded = OpenHashed(8, 1500);
  Shard other = OpenHashed(9, 1500);
  host_->SetMemoryShare(7, 0.4f, 1);
  host_->SetMemoryShare(8, 0, 0.25f);
  UpdateAll(kept);
  UpdateAll(bounded);
  EXPECT_LE(Resident(bounded), 520u) << "a quarter, although there is unused memory";
  EXPECT_GT(Resident(bounded), 450u);
  UpdateAll(other);
  Seconds(15, [&] {
    ReadSome(bounded, 0, 1500);
    ReadSome(other, 0, 1500);
  });
  EXPECT_GE(Resident(kept), 690u) << "nobody reads it";
  EXPECT_LE(Resident(bounded), 520u);
  EXPECT_GT(Resident(other), 650u);
  // Altered while in use.
  host_->SetMemoryShare(8, 0, 0.1f);
  RunAll();
  EXPECT_LE(Resident(bounded), 210u);
  host_->SetMemoryShare(7, 0, 1);
  Seconds(15, [&] { ReadSome(other, 0, 1500); });
  EXPECT_LT(Resident(kept), 500u);
  for (Shard* shard : {&kept, &bounded, &other}) CheckAll(*shard);
}

// The shares are options of the table: a server that opens it, after a start or for a move, has
// them before the first row comes in.
TEST_F(ShardBudgetTest, SharesHoldFromTheOpeningOn) {
  const ShardRange buckets = {0, 65536, 0, 256};
  const auto open_all = [&] {
    std::vector<Shard> shards;
    spec_.memory_share_min = 0.4f;
    shards.push_back(OpenHashed(7, 700));
    spec_.memory_share_min = 0;
    spec_.memory_share_max = 0.25f;
    shards.push_back(OpenHashed(8, 1500));
    spec_.memory_share_max = 1;
    shards.push_back(OpenHashed(9, 1500));
    return shards;
  };
  std::vector<Shard> first = open_all();
  for (Shard& shard : first) {
    UpdateAll(shard);
    With(shard, [&] { ASSERT_TRUE(WriteBackNow(shard.lsn, "").ok()); });
  }
  EXPECT_LE(Resident(first[1]), 520u);
  for (Shard& shard : first) shard.store = nullptr;
  RunAll();
  ASSERT_TRUE(host_->Flush().ok());
  host_ = nullptr;
  OpenHost();
  std::vector<Shard> again = open_all();
  for (Shard& shard : again) {
    auto reader = host_->ReadShard(SpillShard(shard.spec, buckets, {shard.spec.id, 0}), 0);
    ASSERT_TRUE(reader.ok()) << reader.status();
    for (bool more = true; more;) {
      const auto block = (*reader)->Next(64 << 10);
      ASSERT_TRUE(block.ok()) << block.status();
      if (block->empty()) break;
      const auto warmed = shard.store->Warm(*block);
      ASSERT_TRUE(warmed.ok()) << warmed.status();
      more = *warmed;
      CheckUsage();
    }
  }
  EXPECT_EQ(Resident(again[0]), 700u);
  EXPECT_LE(Resident(again[1]), 520u) << "its most, although memory was unused when it came in";
  EXPECT_GT(Resident(again[1]), 450u);
  Seconds(15, [&] {
    ReadSome(again[1], 0, 1500);
    ReadSome(again[2], 0, 1500);
  });
  EXPECT_GE(Resident(again[0]), 690u) << "nobody reads it";
  EXPECT_LE(Resident(again[1]), 520u);
}

TEST_F(ShardBudgetTest, ManyShardsShareATinyBudget) {
  std::vector<Shard> shards;
  for (uint32_t i = 0; i < 12; ++i) {
    shards.push_back(i % 2 == 0 ? OpenHashed(20 + i, 400)
                                : Open(20 + i, false, i, {100, 500, 0, 256}, 400));
  }
  for (int round = 0; round < 2; ++round) {
    for (Shard& shard : shards) UpdateAll(shard);
    for (Shard& shard : shards) CheckAll(shard);
  }
  for (Shard& shard : shards) {
    EXPECT_GT(Resident(shard), 0u);
    With(shard, [&] { ASSERT_TRUE(WriteBackNow(shard.lsn, "").ok()); });
    CheckUsage();
  }
}

// A budget smaller than one row per shard: each gets one row and makes progress.
TEST_F(ShardBudgetTest, ABudgetBelowOneRow) {
  host_ = nullptr;
  options_.hot_bytes = 64;
  OpenHost();
  Shard a = OpenHashed(7, 60);
  Shard b = Open(8, false, 0, {0, 60, 0, 256}, 60);
  for (Shard* shard : {&a, &b}) {
    With(*shard, [&] {
      for (uint64_t id : shard->ids) {
        const std::vector<std::vector<float>> gradient(1, std::vector<float>(256, 0.5f));
        ASSERT_TRUE(ApplyNow({id}, gradient, ++shard->lsn).ok());
        shard->twin->Update(id, gradient[0], {0.1f, 1.0f, 1.0f});
        ASSERT_LE(store_->Stats().rows_resident, 1u);
      }
    });
  }
  for (Shard* shard : {&a, &b}) {
    With(*shard, [&] {
      std::vector<float> rows;
      std::vector<uint8_t> flags;
      ASSERT_TRUE(PullNow(shard->ids, &rows, &flags).ok());
      for (size_t i = 0; i < shard->ids.size(); ++i) {
        const auto row = shard->twin->Read(shard->ids[i]).weights;
        ASSERT_EQ(std::memcmp(row.data(), rows.data() + i * 256, 1024), 0) << "row " << i;
      }
    });
  }
}

// Beside weights and state: at most 20 bytes a resident row, in both modes, small or large.
class RowOverheadTest : public StoreFixture, public ::testing::WithParamInterface<bool> {
 protected:
  void Check(const StoreStats& stats) {
    // Pages, buckets and growth are coarse for a few rows.
    if (stats.rows_resident < spec_.rows * 4 / 5) return;
    const double overhead =
        static_cast<double>(stats.overhead_bytes) / static_cast<double>(stats.rows_resident);
    EXPECT_LE(overhead, 20.0) << stats.rows_resident << " rows";
    const uint64_t payload = spec_.weight_bytes_per_row() + spec_.state_bytes_per_row();
    EXPECT_EQ(stats.hot_bytes, stats.overhead_bytes + stats.rows_resident * payload);
    EXPECT_LE(stats.hot_bytes, NumberOf(*host_, "hot_bytes")) << "not paid for";
  }
};

TEST_P(RowOverheadTest, AtMostTwentyBytesARow) {
  const bool hashed = GetParam();
  for (uint64_t rows : {1000u, 30000u}) {
    spec_.hashed = hashed;
    spec_.rows = rows;
    spec_.dim = 8;
    CloseStore();
    host_ = nullptr;
    std::filesystem::remove_all(dir_);
    // Bounded: fits as a whole. Hashed: full to the last slot, as a server in use is.
    options_.hot_bytes = hashed ? RowCost() * rows : 16 << 20;
    OpenStore();
    Lsn lsn = 0;
    std::vector<std::vector<float>> gradients(100, std::vector<float>(spec_.dim, 1.0f));
    for (uint64_t first = 0; first < 2 * rows; first += 100) {
      if (!hashed && first >= rows) break;
      std::vector<uint64_t> ids;
      for (uint64_t i = 0; i < 100; ++i) ids.push_back(first + i);
      ASSERT_TRUE(ApplyNow(ids, gradients, ++lsn).ok());
      Check(store_->Stats());
    }
    EXPECT_GT(store_->Stats().rows_resident, rows * 4 / 5);
  }
}

INSTANTIATE_TEST_SUITE_P(Modes, RowOverheadTest, ::testing::Bool());

// A shard without rows is opened by its first use; what stands in front of it can be left out then.
TEST_F(ShardBudgetTest, UnusedShardsAreNotOpened) {
  options_.shard_bytes = 1000;
  host_ = nullptr;
  OpenHost();
  const auto shard_bytes = [&] {
    StatusNumbers numbers;
    host_->AddNumbers(&numbers);
    return numbers["shard_bytes"];
  };
  Shard used = OpenHashed(1, 100), unused = OpenHashed(2, 100);
  EXPECT_EQ(shard_bytes(), 2000u) << "each may be used";
  With(unused, [&] {
    EXPECT_TRUE(WriteBackNow(0, "of no entry").ok());
    EXPECT_EQ(store_->meta(), "");
    EXPECT_EQ(store_->Stats().hot_bytes, 0u);
  });
  EXPECT_EQ(unused.store->TakeReplacement(), nullptr);
  used.store->SetAppliedLsn(1);
  With(used,
       [&] { ASSERT_TRUE(ApplyNow({used.ids[0]}, {std::vector<float>(256, 1.0f)}, 2).ok()); });
  const StoreStats before = used.store->Stats();
  EXPECT_EQ(before.rows_resident, 1u);
  std::unique_ptr<TieredStore> real = used.store->TakeReplacement();
  ASSERT_NE(real, nullptr);
  used.store = std::move(real);
  EXPECT_EQ(used.store->TakeReplacement(), nullptr);
  EXPECT_EQ(used.store->Stats().hot_bytes, before.hot_bytes);
  EXPECT_EQ(shard_bytes(), 2000u);
  unused.store = nullptr;
  EXPECT_EQ(shard_bytes(), 1000u);
  used.store = nullptr;
  RunAll();
  EXPECT_EQ(shard_bytes(), 0u);
}

}  // namespace shard_budget_test
}  // namespace hotbed
