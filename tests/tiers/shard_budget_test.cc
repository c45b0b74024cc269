// Many shards, one budget: which shard gets how much, which gives back, and none takes more.
#include <gtest/gtest.h>

#include <memory>
#include <vector>

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
  void CheckUsage() {
    ASSERT_LE(NumberOf(*host_, "hot_bytes"), NumberOf(*host_, "hot_bytes_limit"));
  }
  static uint64_t Resident(const Shard& shard) { return shard.store->Stats().rows_resident; }
};

TEST_F(ShardBudgetTest, AnEarlyShardLendsAndGivesBackToALateOne) {
  Shard early = OpenHashed(7, 3000);
  UpdateAll(early);
  const uint64_t alone = Resident(early);
  EXPECT_GT(alone, 1800u) << "all of the budget";
  Shard late = OpenHashed(8, 3000);
  for (int round = 0; round < 3; ++round) {
    UpdateAll(late);
    CheckAll(early);
  }
  RunAll();
  EXPECT_GT(Resident(late), alone * 4 / 10);
  EXPECT_LT(Resident(early), alone * 6 / 10);
  CheckAll(late);
  // And the other way round: what the late one leaves is there for the early one again.
  late.store = nullptr;
  RunAll();
  UpdateAll(early);
  EXPECT_GT(Resident(early), alone * 9 / 10);
  CheckAll(early);
}

TEST_F(ShardBudgetTest, AShardThatFitsAsAWholeGivesUpItsPlaceWhenAnotherComes) {
  // Two shards of one table; each alone would fit as a whole, both do not.
  Shard first = Open(7, false, 0, {0, 1500, 0, 256}, 1500);
  UpdateAll(first);
  ASSERT_EQ(Resident(first), 1500u);
  EXPECT_EQ(first.store->Stats().evictions, 0u);
  Shard second = Open(7, false, 1, {1500, 3000, 0, 256}, 1500);
  UpdateAll(second);
  RunAll();
  EXPECT_GT(first.store->Stats().evictions, 0u);
  EXPECT_GT(Resident(second), 800u);
  for (int round = 0; round < 2; ++round) {
    CheckAll(first);
    CheckAll(second);
    UpdateAll(first);
  }
  CheckAll(first);
  CheckAll(second);
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
    // Bounded rows have a byte each, there or not; buckets and growth are coarse for a few rows.
    if (stats.rows_resident < (GetParam() ? 500 : spec_.rows)) return;
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

}  // namespace shard_budget_test
}  // namespace hotbed
