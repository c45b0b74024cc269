#include "server/shard/replica/rolling_hash.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <vector>

#include "common/random.h"
#include "server/shard_log/segment_format.h"
#include "tests/common/test_seed.h"

namespace hotbed {
namespace rolling_hash_test {

using Verdict = RollingHash::Verdict;
using Bytes = std::vector<uint8_t>;

struct Entry {
  Bytes record;
  Bytes row;
};

std::vector<Entry> RandomEntries(Random* random, int count) {
  std::vector<Entry> entries(count);
  for (Entry& entry : entries) {
    entry.record.resize(kRecordHeaderBytes);
    entry.row.resize(random->Uniform(4) == 0 ? 0 : 1 + random->Uniform(300));
    for (uint8_t& byte : entry.record) byte = static_cast<uint8_t>(random->Uniform(256));
    for (uint8_t& byte : entry.row) byte = static_cast<uint8_t>(random->Uniform(256));
  }
  return entries;
}

TEST(RollingHashTest, EqualReplicasAgreeWhereverTheyBeganToCount) {
  const TestSeed seed(41);
  Random random(seed.value());
  const std::vector<Entry> entries = RandomEntries(&random, 3000);
  RollingHash primary;
  RollingHash follower;
  primary.Start(0);
  int same = 0;
  for (Lsn lsn = 1; lsn <= entries.size(); ++lsn) {
    const Entry& entry = entries[lsn - 1];
    primary.Add(entry.record, entry.row);
    if (lsn == 500) follower.Start(lsn);
    if (lsn <= 500) continue;
    if (lsn % 100 == 7) {
      EXPECT_EQ(follower.Compare(lsn, primary.value()), Verdict::kUnknown) << "not reached yet";
    }
    const Verdict verdict = follower.Add(entry.record, entry.row);
    EXPECT_NE(verdict, Verdict::kDiffers) << lsn;
    same += verdict == Verdict::kSame;
  }
  EXPECT_EQ(same, 24) << "each but the first, which says where the primary began";
}

TEST(RollingHashTest, AnyDifferenceIsSeenAndGoesOnBeingSeen) {
  const TestSeed seed(42);
  Random random(seed.value());
  for (int round = 0; round < 400; ++round) {
    std::vector<Entry> entries = RandomEntries(&random, 8);
    RollingHash primary;
    RollingHash follower;
    primary.Start(0);
    follower.Start(0);
    EXPECT_EQ(follower.Compare(0, primary.value()), Verdict::kUnknown);
    const size_t which = random.Uniform(entries.size());
    for (size_t i = 0; i < entries.size(); ++i) {
      primary.Add(entries[i].record, entries[i].row);
      Entry& entry = entries[i];
      if (i == which) {
        const bool in_row = !entry.row.empty() && random.Uniform(2) == 0;
        Bytes& bytes = in_row ? entry.row : entry.record;
        size_t at = random.Uniform(bytes.size());
        // The header's own checksum, and what is synced, are each log's.
        while (!in_row && ((at >= 4 && at < 8) || (at >= 92 && at < 96))) {
          at = random.Uniform(bytes.size());
        }
        bytes[at] ^= static_cast<uint8_t>(1 + random.Uniform(255));
      }
      follower.Add(entry.record, entry.row);
      EXPECT_EQ(follower.Compare(i + 1, primary.value()),
                i < which ? Verdict::kSame : Verdict::kDiffers);
    }
  }
}

TEST(RollingHashTest, WhatIsALogsOwnDoesNotCount) {
  const TestSeed seed(43);
  Random random(seed.value());
  std::vector<Entry> entries = RandomEntries(&random, 1);
  RollingHash primary;
  RollingHash follower;
  primary.Start(0);
  follower.Start(0);
  follower.Compare(0, primary.value());
  primary.Add(entries[0].record, entries[0].row);
  for (const size_t at : {4, 7, 92, 95}) entries[0].record[at] ^= 0xff;
  follower.Add(entries[0].record, entries[0].row);
  EXPECT_EQ(follower.Compare(1, primary.value()), Verdict::kSame);
}

TEST(RollingHashTest, OrderCounts) {
  const TestSeed seed(44);
  Random random(seed.value());
  std::vector<Entry> entries = RandomEntries(&random, 2);
  // Their LSNs (at 32) change places with them.
  RollingHash primary;
  RollingHash follower;
  primary.Start(0);
  follower.Start(0);
  follower.Compare(0, primary.value());
  for (const Entry& entry : entries) primary.Add(entry.record, entry.row);
  for (int byte = 32; byte < 40; ++byte) {
    std::swap(entries[0].record[byte], entries[1].record[byte]);
  }
  std::swap(entries[0], entries[1]);
  for (const Entry& entry : entries) follower.Add(entry.record, entry.row);
  EXPECT_EQ(follower.Compare(2, primary.value()), Verdict::kDiffers);
}

TEST(RollingHashTest, WhatCannotBeSeenBeginsAnew) {
  const TestSeed seed(45);
  Random random(seed.value());
  const std::vector<Entry> entries = RandomEntries(&random, 1500);
  RollingHash primary;
  RollingHash follower;
  EXPECT_FALSE(follower.started());
  EXPECT_EQ(follower.Compare(0, 1), Verdict::kUnknown);
  primary.Start(0);
  follower.Start(0);
  std::vector<uint64_t> sums = {primary.value()};
  for (size_t i = 0; i < entries.size(); ++i) {
    primary.Add(entries[i].record, entries[i].row);
    sums.push_back(primary.value());
    if (i == 5) {
      follower.Skip();
    } else {
      follower.Add(entries[i].record, entries[i].row);
    }
    if (i == 3) {
      EXPECT_EQ(follower.Compare(2, sums[2]), Verdict::kUnknown);
    } else if (i == 4) {
      EXPECT_EQ(follower.Compare(5, sums[5]), Verdict::kSame);
    } else if (i == 9) {
      EXPECT_EQ(follower.Compare(5, sums[5]), Verdict::kUnknown) << "before the gap";
      EXPECT_EQ(follower.Compare(6, sums[6]), Verdict::kUnknown) << "where it begins again";
      EXPECT_EQ(follower.Compare(10, sums[10]), Verdict::kSame);
      follower.ForgetPrimary();
      EXPECT_EQ(follower.Compare(10, sums[10] + 77), Verdict::kUnknown) << "began elsewhere";
      EXPECT_EQ(follower.Compare(9, sums[9] + 77), Verdict::kSame);
      EXPECT_EQ(follower.Compare(9, sums[9]), Verdict::kDiffers);
    }
  }
  EXPECT_EQ(follower.Compare(1500 - 1024, 1), Verdict::kUnknown) << "forgotten";
  EXPECT_EQ(follower.Compare(1500 - 1023, 1), Verdict::kDiffers);
}

TEST(RollingHashTest, EveryRowIsLookedAtInTime) {
  std::vector<int> seen(100);
  for (Lsn lsn = 1; lsn <= 10'000; ++lsn) ++seen[RollingHash::SampledRow(lsn, 100)];
  for (const int count : seen) EXPECT_GT(count, 50);
  EXPECT_EQ(RollingHash::SampledRow(7, 1), 0u);
}

TEST(RollingHashTest, PrintsWhatItCosts) {
  const TestSeed seed(46);
  Random random(seed.value());
  const std::vector<Entry> entries = RandomEntries(&random, 64);
  for (const size_t bytes : {size_t{0}, size_t{64}, size_t{512}}) {
    const Bytes row(bytes, 1);
    RollingHash hash;
    hash.Start(0);
    constexpr int kRounds = 256;
    constexpr int kEntries = 1024;
    double best_ns = 1e9;  // the machine does other things too
    for (int round = 0; round < kRounds; ++round) {
      const auto begin = std::chrono::steady_clock::now();
      for (int i = 0; i < kEntries; ++i) hash.Add(entries[i % 64].record, row);
      const std::chrono::duration<double, std::nano> spent =
          std::chrono::steady_clock::now() - begin;
      best_ns = std::min(best_ns, spent.count() / kEntries);
    }
    std::printf("%4zu bytes of row: %.1f ns an entry\n", bytes, best_ns);
    EXPECT_EQ(hash.lsn(), Lsn{kRounds * kEntries});
  }
}

}  // namespace rolling_hash_test
}  // namespace hotbed
