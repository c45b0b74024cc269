// Dedupe, split and cut against dumb twins.
#include "client/batch/dedupe.h"

#include <gtest/gtest.h>

#include <map>
#include <numeric>
#include <unordered_map>
#include <vector>

#include "client/batch/split.h"
#include "client/map/shard_locator.h"
#include "common/random.h"
#include "common/zipf.h"
#include "row_math/position.h"
#include "tests/common/test_seed.h"

namespace hotbed {
namespace dedupe_test {

using Skips = std::vector<std::vector<uint8_t>>;

UniqueIds DumbTwin(const std::vector<std::vector<uint64_t>>& parts, const Skips& skips) {
  UniqueIds out;
  std::unordered_map<uint64_t, uint32_t> index;
  std::vector<uint32_t> last;
  for (size_t p = 0; p < parts.size(); ++p) {
    for (size_t i = 0; i < parts[p].size(); ++i) {
      const uint64_t id = parts[p][i];
      const uint32_t input = static_cast<uint32_t>(out.next.size());
      out.next.push_back(kNoIndex);
      if (!skips[p].empty() && skips[p][i] != 0) continue;
      const auto [it, added] = index.emplace(id, static_cast<uint32_t>(out.unique.size()));
      if (added) {
        out.unique.push_back(id);
        out.first.push_back(input);
        last.push_back(input);
      } else {
        out.next[last[it->second]] = input;
        last[it->second] = input;
      }
    }
  }
  return out;
}

TEST(DedupeTest, MatchesItsDumbTwin) {
  const TestSeed seed(1);
  Random random(seed.value());
  Deduper deduper;  // one for all rounds: a round must leave no traces in the next
  for (int round = 0; round < 200; ++round) {
    const ZipfSampler zipf(1.05, 1 + random.Uniform(random.OneIn(5) ? 1000000 : 5000));
    std::vector<std::vector<uint64_t>> parts(random.Uniform(4));
    for (auto& part : parts) {
      part.resize(random.Uniform(random.OneIn(20) ? 200000 : 300));
      for (uint64_t& id : part) {
        const uint64_t rank = zipf.Sample(random);
        id = round % 2 == 0 ? rank : Mix64(rank);
        if (random.OneIn(50)) id = random.OneIn(2) ? 0 : ~uint64_t{0};
      }
    }
    Skips skips(parts.size());
    std::vector<IdsPart> spans;
    for (size_t p = 0; p < parts.size(); ++p) {
      if (random.OneIn(2)) {
        skips[p].resize(parts[p].size());
        for (uint8_t& skip : skips[p]) skip = static_cast<uint8_t>(random.OneIn(4) ? 2 : 0);
      }
      spans.push_back({parts[p], skips[p].empty() ? nullptr : skips[p].data()});
    }
    UniqueIds got;
    got.unique = {7, 7, 7};
    deduper.Run(spans, &got);
    const UniqueIds expected = DumbTwin(parts, skips);
    ASSERT_EQ(got.unique, expected.unique);
    ASSERT_EQ(got.first, expected.first);
    ASSERT_EQ(got.next, expected.next);
    std::vector<uint64_t> unique;
    std::vector<uint32_t> index(expected.next.size(), 9);
    deduper.RunIndexed(spans, &unique, index.data());
    ASSERT_EQ(unique, expected.unique);
    std::vector<uint32_t> expected_index(index.size(), kNoIndex);
    for (uint32_t u = 0; u < unique.size(); ++u) {
      for (uint32_t i = expected.first[u]; i != kNoIndex; i = expected.next[i]) {
        expected_index[i] = u;
      }
    }
    ASSERT_EQ(index, expected_index);
  }
}

TEST(DedupeTest, IdsThatCollideInTheLowBitsStayApart) {
  std::vector<uint64_t> ids;
  for (uint64_t i = 0; i < 4096; ++i) ids.push_back(i << 40);
  const std::vector<IdsPart> spans = {{ids, nullptr}};
  Deduper deduper;
  UniqueIds got;
  deduper.Run(spans, &got);
  EXPECT_EQ(got.unique, ids);
}

TEST(SplitTest, MatchesItsDumbTwin) {
  const TestSeed seed(2);
  Random random(seed.value());
  for (int round = 0; round < 200; ++round) {
    const bool hashed = random.OneIn(2);
    const uint64_t space = hashed ? kBuckets : 1 + random.Uniform(100000);
    std::vector<ShardRange> ranges;
    for (uint64_t first = 0; first < space;) {
      const uint64_t limit =
          std::min(space, first + 1 + random.Uniform(random.OneIn(3) ? space : space / 20 + 1));
      ranges.push_back({first, limit, 0, 0});
      first = limit;
    }
    if (ranges.size() > 1024) continue;
    const ShardLocator locator(hashed, ranges);
    std::vector<uint64_t> ids(random.Uniform(2000));
    for (uint64_t& id : ids) id = hashed ? random.Next() : random.Uniform(space);
    ShardSplit split;
    split.Run(ids, hashed, locator);
    std::map<uint32_t, std::vector<uint32_t>> expected;
    for (uint32_t i = 0; i < ids.size(); ++i) {
      const uint64_t place = hashed ? BucketOf(Mix64(ids[i])) : ids[i];
      uint32_t shard = 0;
      while (place >= ranges[shard].limit) ++shard;
      expected[shard].push_back(i);
    }
    ASSERT_EQ(split.begin.size(), ranges.size() + 1);
    for (uint32_t s = 0; s < ranges.size(); ++s) {
      const std::vector<uint32_t> got(split.order.begin() + split.begin[s],
                                      split.order.begin() + split.begin[s + 1]);
      ASSERT_EQ(got, expected[s]) << "shard " << s;
    }
  }
}

TEST(SplitTest, TheLastPositionsOfAHashedTableBelongToItsLastShard) {
  const ShardLocator locator(true, {ShardRange{0, 1, 0, 0}, ShardRange{1, kBuckets, 0, 0}});
  EXPECT_EQ(locator.Find(0), 0);
  EXPECT_EQ(locator.Find((uint64_t{1} << 48) - 1), 0);
  EXPECT_EQ(locator.Find(uint64_t{1} << 48), 1);
  EXPECT_EQ(locator.Find(~uint64_t{0}), 1);
}

TEST(PartCutTest, CoversEvenlyAndNeverExceedsTheLimit) {
  for (uint64_t count : {0u, 1u, 7u, 100u, 101u}) {
    for (uint64_t rows_max : {1u, 3u, 8u, 100u, 1000u}) {
      for (uint64_t rows_per_number : {1u, 8u}) {
        if (rows_per_number > rows_max) continue;
        const PartCut cut(count, rows_max, rows_per_number);
        uint64_t total = 0;
        for (uint64_t p = 0; p < cut.parts; ++p) {
          const uint64_t rows = cut.Begin(p + 1) - cut.Begin(p);
          EXPECT_GE(rows, 1);
          EXPECT_LE(rows, rows_max);
          EXPECT_EQ(cut.Begin(p), cut.FirstNumber(p) * rows_per_number)
              << "a number never stands for rows of two parts";
          total += rows;
        }
        EXPECT_EQ(total, count);
      }
    }
  }
}

}  // namespace dedupe_test
}  // namespace hotbed
