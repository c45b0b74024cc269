// Which segments stay and which go, through the log that has them as files.
#include "server/shard_log/segment_chain.h"

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tests/shard_log/log_fixture.h"

namespace hotbed {
namespace segment_chain_test {

TEST_F(LogTest, SegmentsGoWhenNoShardNeedsThem) {
  options_.segment_bytes = 1024;
  auto log = Open();
  for (Lsn lsn = 1; lsn <= 30; ++lsn) {
    ASSERT_TRUE(AppendCommit(log.get(), lsn % 2 ? kShardA : kShardB, lsn, 8, 8).ok());
  }
  const uint64_t before = log->GetUsage().segments;
  ASSERT_GT(before, 5);
  log->SetLeastNeeded(kShardA, 31);
  EXPECT_EQ(log->GetUsage().segments, before) << "shard B still needs all";
  ASSERT_TRUE(log->GetUsage().has_oldest);
  EXPECT_EQ(log->GetUsage().oldest_shard, kShardB);
  log->SetLeastNeeded(kShardB, 16);
  const uint64_t after = log->GetUsage().segments;
  EXPECT_LT(after, before);
  EXPECT_GT(after, 1);
  log->ForgetShard(kShardB);
  EXPECT_EQ(log->GetUsage().segments, 1) << "the newest stays";
  EXPECT_FALSE(log->GetUsage().has_oldest);
  // The rest is a chain without a hole, and no record that a shard needs is missing.
  log = Open();
  EXPECT_TRUE(log->damage().empty());
}

TEST_F(LogTest, TruncationKeepsEveryNeededRecordAcrossRestarts) {
  options_.segment_bytes = 1024;
  auto log = Open();
  for (Lsn lsn = 1; lsn <= 40; ++lsn) ASSERT_TRUE(AppendCommit(log.get(), kShardA, lsn, 4, 8).ok());
  for (Lsn need = 1; need <= 41; need += 8) {
    log = nullptr;
    log = Open();  // the table of contents is rebuilt
    log->SetLeastNeeded(kShardA, need);
    const std::vector<std::string> found = Replayed(log.get());
    std::set<std::string> have(found.begin(), found.end());
    for (Lsn lsn = need; lsn <= 40; ++lsn) EXPECT_TRUE(have.count(NameOf(kShardA, lsn))) << lsn;
  }
}

TEST_F(LogTest, BehindAShardSetAsideSegmentsAreEmptied) {
  options_.segment_bytes = 1024;
  std::vector<std::string> kept;
  uint64_t segments = 0;
  {
    auto log = Open();
    for (Lsn lsn = 1; lsn <= 4; ++lsn) {
      ASSERT_TRUE(AppendCommit(log.get(), kShardB, lsn, 8, 8).ok());
      kept.push_back(NameOf(kShardB, lsn));
    }
    for (Lsn lsn = 1; lsn <= 40; ++lsn) {
      ASSERT_TRUE(AppendCommit(log.get(), kShardA, lsn, 8, 8).ok());
      log->SetLeastNeeded(kShardA, lsn);
    }
    const uint64_t before = log->GetUsage().bytes;
    segments = log->GetUsage().segments;
    EXPECT_GT(before, 40 * 8 * 40u) << "a shard that is served keeps everything behind it";
    log->SetAside(kShardB, true);
    log->SetLeastNeeded(kShardA, 41);
    EXPECT_LT(log->GetUsage().bytes, before / 4);
    EXPECT_EQ(log->GetUsage().segments, segments);
    for (Lsn lsn = 41; lsn <= 43; ++lsn) {
      ASSERT_TRUE(AppendCommit(log.get(), kShardA, lsn, 8, 8).ok());
    }
  }
  // As after a power loss: the emptied segments are neither a hole nor a loose end.
  for (const bool rebooted : {false, true}) {
    options_.rebooted = rebooted;
    auto log = Open();
    EXPECT_TRUE(log->damage().empty());
    std::vector<std::string> found = Replayed(log.get());
    ASSERT_GE(found.size(), kept.size() + 3);
    EXPECT_TRUE(std::equal(kept.begin(), kept.end(), found.begin())) << "what B needs is there";
    EXPECT_EQ(found.back(), NameOf(kShardA, 43));
    EXPECT_LT(found.size(), 20u);
  }
  options_.rebooted = false;
  auto log = Open();
  log->SetLeastNeeded(kShardA, 44);
  log->ForgetShard(kShardB);
  EXPECT_EQ(log->GetUsage().segments, 1) << "the emptied ones go with the rest";
}

}  // namespace segment_chain_test
}  // namespace hotbed
