#include "server/shard/change_feed.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <set>
#include <vector>

#include "common/random.h"
#include "tests/common/test_seed.h"

namespace hotbed {
namespace change_feed_test {

using testing::ElementsAre;
using testing::IsEmpty;

ReadPosition At(Epoch epoch, Lsn lsn) { return {{epoch, lsn}, {epoch, lsn}}; }

class ChangeFeedTest : public testing::Test {
 protected:
  const std::shared_ptr<ChangeMemory> memory_ = std::make_shared<ChangeMemory>(1u << 20);
  ChangeFeed feed_{memory_};
};

TEST_F(ChangeFeedTest, KeepsNothingUntilItIsOpened) {
  EXPECT_FALSE(feed_.Read({}, 0, 10, 0).known);
  feed_.Applied({1, 1}, {5});
  EXPECT_EQ(memory_->feed_bytes(), 0u);
  feed_.Open({1, 7}, 0);
  ChangeFeed::Changes changes = feed_.Read(At(1, 7), 0, 10, 0);
  EXPECT_TRUE(changes.known);
  EXPECT_EQ(changes.through, (ChangePosition{1, 7}));
  feed_.Applied({1, 8}, {5, 6});
  feed_.Applied({1, 9}, {});
  feed_.Applied({2, 10}, {6, 4});
  changes = feed_.Read(At(1, 7), 0, 10, 0);
  EXPECT_THAT(changes.ids, ElementsAre(5, 6, 4));  // 6 by its last change
  EXPECT_EQ(changes.through, (ChangePosition{2, 10}));
  EXPECT_THAT(feed_.Read(At(1, 8), 0, 10, 0).ids, ElementsAre(6, 4));
  EXPECT_FALSE(feed_.Read(At(1, 6), 0, 10, 0).known) << "before it was opened";
  EXPECT_FALSE(feed_.Read(At(2, 11), 0, 10, 0).known) << "not reached";
  changes = feed_.Read(At(1, 7), 0, 3, 0);
  EXPECT_EQ(changes.through, (ChangePosition{1, 9}));
  EXPECT_THAT(changes.ids, ElementsAre(5, 6));
}

// LSNs are used again by another epoch after a loss: its entries are others.
TEST_F(ChangeFeedTest, KnowsNoEntryOfAnotherEpoch) {
  feed_.Open({3, 7}, 0);
  feed_.Applied({5, 8}, {1});
  EXPECT_TRUE(feed_.Read(At(3, 7), 0, 10, 0).known);
  EXPECT_FALSE(feed_.Read(At(2, 7), 0, 10, 0).known);
  EXPECT_FALSE(feed_.Read(At(4, 8), 0, 10, 0).known);
  EXPECT_FALSE(feed_.Read({{3, 7}, {4, 8}}, 0, 10, 0).known) << "has seen a row of it";
  EXPECT_TRUE(feed_.Read({{3, 7}, {5, 8}}, 0, 10, 0).known);
}

TEST_F(ChangeFeedTest, TakesALargeEntryApart) {
  feed_.Open({}, 0);
  std::vector<uint64_t> ids;
  for (uint64_t id = 0; id < 5000; ++id) ids.push_back(id);
  feed_.Applied({1, 1}, ids);
  feed_.Applied({1, 2}, {7});
  std::vector<uint64_t> told;
  ReadPosition at;
  size_t skip = 0;
  while (at.through.lsn < 2) {
    const ChangeFeed::Changes changes = feed_.Read(at, skip, 1500, 0);
    ASSERT_TRUE(changes.known);
    ASSERT_LE(changes.ids.size(), 1500u);
    told.insert(told.end(), changes.ids.begin(), changes.ids.end());
    at.through = changes.through;
    skip = changes.skip;
  }
  EXPECT_EQ(told.size(), 5001u);
  EXPECT_EQ(std::set<uint64_t>(told.begin(), told.end()).size(), 5000u);
}

TEST_F(ChangeFeedTest, IsFreedWhenNobodyReadsAndNothingIsPushed) {
  feed_.Open({}, 0);
  feed_.Applied({1, 1}, {1});
  EXPECT_GT(memory_->feed_bytes(), 0u);
  EXPECT_FALSE(feed_.Sweep(kFeedIdleNs - 1));
  feed_.Touch(kFeedIdleNs);
  EXPECT_FALSE(feed_.Sweep(2 * kFeedIdleNs - 1));
  EXPECT_TRUE(feed_.Sweep(2 * kFeedIdleNs));
  EXPECT_EQ(memory_->feed_bytes(), 0u);
  EXPECT_FALSE(feed_.open());
}

TEST_F(ChangeFeedTest, DropsTheOldestWhereMemoryIsShort) {
  feed_.Open({}, 0);
  const std::vector<uint64_t> ids(10'000, 1);
  for (Lsn lsn = 1; lsn <= 20; ++lsn) feed_.Applied({1, lsn}, ids);
  EXPECT_LE(memory_->feed_bytes(), memory_->bytes_max() / 2);
  EXPECT_FALSE(feed_.Read(At(1, 10), 0, 1u << 20, 0).known);
  EXPECT_EQ(feed_.Read(At(1, 18), 0, 1u << 20, 0).through.lsn, 20u);
  // An entry that is larger than all of the memory.
  feed_.Applied({1, 21}, std::vector<uint64_t>(1u << 17, 1));
  EXPECT_FALSE(feed_.Read(At(1, 20), 0, 10, 0).known);
  EXPECT_TRUE(feed_.Read(At(1, 21), 0, 10, 0).known);
}

TEST_F(ChangeFeedTest, SharesTheMemoryWithOtherFeeds) {
  feed_.Open({}, 0);
  const std::vector<uint64_t> ids(2000, 1);
  for (Lsn lsn = 1; lsn <= 100; ++lsn) feed_.Applied({1, lsn}, ids);
  ChangeFeed other(memory_);
  other.Open({}, 0);
  EXPECT_FALSE(feed_.Sweep(0));  // gives what is above its share
  for (Lsn lsn = 1; lsn <= 10; ++lsn) other.Applied({1, lsn}, ids);
  EXPECT_TRUE(other.Read(At(1, 1), 0, 10, 0).known);
  EXPECT_LE(memory_->feed_bytes(), memory_->bytes_max() / 2);
}

// Readers of any pace see what a list of all changes has.
TEST_F(ChangeFeedTest, TellsEveryChangeToReadersOfAnyPace) {
  const TestSeed seed(23);
  Random random(seed.value());
  feed_.Open({}, 0);
  std::map<Lsn, std::vector<uint64_t>> all;
  Lsn applied = 0;
  Epoch epoch = 1;
  ReadPosition told;
  size_t skip = 0;
  std::set<uint64_t> part;  // of an entry that comes in parts
  for (int round = 0; round < 5000; ++round) {
    if (random.OneIn(2)) {
      std::set<uint64_t> ids;
      for (uint64_t n = random.Uniform(9); n > 0; --n) ids.insert(random.Uniform(20));
      all[++applied].assign(ids.begin(), ids.end());
      if (random.OneIn(50)) ++epoch;
      feed_.Applied({epoch, applied}, all[applied]);
      continue;
    }
    const size_t ids_max = 1 + random.Uniform(10);
    const ChangeFeed::Changes changes = feed_.Read(told, skip, ids_max, 0);
    ASSERT_TRUE(changes.known);
    ASSERT_GE(changes.through.lsn, told.through.lsn);
    ASSERT_LE(changes.ids.size(), ids_max);
    std::set<uint64_t> expected;
    for (Lsn lsn = told.through.lsn + 1; lsn <= changes.through.lsn; ++lsn) {
      expected.insert(all[lsn].begin(), all[lsn].end());
    }
    part.insert(changes.ids.begin(), changes.ids.end());
    if (changes.skip == 0) {
      ASSERT_EQ(part, expected);
      part.clear();
    }
    told.through = changes.through;
    skip = changes.skip;
  }
}

}  // namespace change_feed_test
}  // namespace hotbed
