#include "server/shard/change_feed.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>
#include <vector>

#include "common/random.h"
#include "tests/common/test_seed.h"

namespace hotbed {
namespace change_feed_test {

TEST(ChangeFeedTest, KeepsNothingUntilItIsOpened) {
  ChangeFeed feed;
  EXPECT_FALSE(feed.Read(0, 10, 0).open);
  EXPECT_FALSE(feed.open());
  feed.Open(7, 0);
  ChangeFeed::Changes changes = feed.Read(7, 10, 0);
  EXPECT_TRUE(changes.open);
  EXPECT_EQ(changes.from, 7u);
  EXPECT_EQ(changes.through, 7u);
  feed.Applied(8, {5, 6}, 0);
  feed.Applied(9, {}, 0);
  feed.Applied(10, {6, 4}, 0);
  changes = feed.Read(7, 10, 0);
  EXPECT_THAT(changes.ids, testing::ElementsAre(5, 6, 4));  // 6 by its last change
  EXPECT_EQ(changes.through, 10u);
  EXPECT_THAT(feed.Read(8, 10, 0).ids, testing::ElementsAre(6, 4));
  EXPECT_THAT(feed.Read(6, 10, 0).ids, testing::IsEmpty());  // it does not know them all
  changes = feed.Read(7, 1, 0);
  EXPECT_EQ(changes.through, 8u);
  EXPECT_THAT(changes.ids, testing::ElementsAre(5, 6));
}

TEST(ChangeFeedTest, ClosesWhenNobodyReads) {
  ChangeFeed feed;
  feed.Open(0, 0);
  feed.Applied(1, {1}, kFeedIdleNs - 1);
  EXPECT_TRUE(feed.Read(0, 10, kFeedIdleNs - 1).open);
  feed.Applied(2, {2}, 2 * kFeedIdleNs);
  EXPECT_FALSE(feed.open());
  feed.Open(2, 2 * kFeedIdleNs);
  EXPECT_EQ(feed.Read(1, 10, 2 * kFeedIdleNs).from, 2u);
}

TEST(ChangeFeedTest, TheOldestGoWhenThereAreTooMany) {
  ChangeFeed feed;
  feed.Open(0, 0);
  const std::vector<uint64_t> ids(kFeedIdsMax / 4, 1);
  for (Lsn lsn = 1; lsn <= 6; ++lsn) feed.Applied(lsn, ids, 0);
  const ChangeFeed::Changes changes = feed.Read(2, kFeedIdsMax, 0);
  EXPECT_EQ(changes.from, 2u);
  EXPECT_EQ(changes.through, 6u);
  EXPECT_TRUE(feed.Read(1, kFeedIdsMax, 0).ids.empty());
}

// Readers of any pace see what a list of all changes has.
TEST(ChangeFeedTest, TellsEveryChangeToReadersOfAnyPace) {
  const TestSeed seed(23);
  Random random(seed.value());
  ChangeFeed feed;
  feed.Open(0, 0);
  std::map<Lsn, std::vector<uint64_t>> all;
  Lsn applied = 0, told = 0;
  for (int round = 0; round < 3000; ++round) {
    if (random.OneIn(2)) {
      std::vector<uint64_t>& ids = all[++applied];
      for (uint64_t n = random.Uniform(6); n > 0; --n) ids.push_back(random.Uniform(20));
      feed.Applied(applied, ids, 0);
      continue;
    }
    const ChangeFeed::Changes changes = feed.Read(told, 1 + random.Uniform(10), 0);
    ASSERT_GE(changes.through, told);
    std::set<uint64_t> expected;
    for (Lsn lsn = told + 1; lsn <= changes.through; ++lsn) {
      expected.insert(all[lsn].begin(), all[lsn].end());
    }
    ASSERT_EQ(changes.ids.size(), expected.size());
    ASSERT_EQ(std::set<uint64_t>(changes.ids.begin(), changes.ids.end()), expected);
    if (changes.through == told) ASSERT_EQ(told, applied);
    told = changes.through;
  }
}

}  // namespace change_feed_test
}  // namespace hotbed
