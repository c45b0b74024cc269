// The counting Bloom filter by which rows are admitted: its promise, and what becomes of its counts
// when shards are saved, cut and merged.
#include "server/tiers/memory/touch_filter.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <numeric>
#include <string>
#include <vector>

#include "common/random.h"
#include "row_math/position.h"
#include "tests/common/test_seed.h"

namespace hotbed {
namespace touch_filter_test {

TableSpec Filtered(uint32_t after, uint64_t ids, float false_positives) {
  TableSpec table;
  table.name = "filtered";
  table.hashed = true;
  table.dim = 4;
  table.optimizer.touches = true;
  table.life.admission.after = after;
  table.life.admission.by = AdmitBy::kBloom;
  table.life.admission.ids = ids;
  table.life.admission.false_positives = false_positives;
  return table;
}

ShardRange Buckets(uint64_t first, uint64_t limit) { return {first, limit, 0, 4}; }
const ShardRange kWhole = Buckets(0, kBuckets);

// Which of the ids have enough touches, with one more.
std::vector<uint8_t> Touch(TouchFilter* filter, const std::vector<uint64_t>& ids) {
  std::vector<uint8_t> enough(ids.size());
  std::vector<uint32_t> all(ids.size());
  std::iota(all.begin(), all.end(), 0);
  filter->Touch(ids.data(), all, enough.data());
  return enough;
}

double PartOf(const std::vector<uint8_t>& enough) {
  double sum = 0;
  for (const uint8_t one : enough) sum += one;
  return sum / static_cast<double>(enough.size());
}

std::vector<uint64_t> RandomIds(Random* random, size_t count) {
  std::vector<uint64_t> ids(count);
  for (uint64_t& id : ids) id = random->Next();
  return ids;
}

// The worst that the promise is made for: all ids of it were touched as often as is counted. Two
// ids in a row are as good as random ones, so half of them are.
TEST(TouchFilterTest, FalsePositivesStayWithinWhatIsAsked) {
  const TestSeed seed(91);
  Random random(seed.value());
  constexpr uint64_t kIds = 1'000'000;
  struct Case {
    uint32_t after;
    float false_positives;
  };
  for (const Case& one : {Case{2, 0.01f}, Case{5, 0.001f}, Case{20, 0.05f}}) {
    TouchFilter filter(Filtered(one.after, kIds, one.false_positives), kWhole);
    std::vector<uint64_t> ids = RandomIds(&random, kIds);
    for (size_t i = 0; i < kIds / 2; ++i) ids[i] = i;
    for (uint32_t touch = 1; touch < one.after; ++touch) Touch(&filter, ids);
    EXPECT_EQ(PartOf(Touch(&filter, ids)), 1.0) << "an id with enough touches is always admitted";
    const double early = PartOf(Touch(&filter, RandomIds(&random, kIds / 4)));
    EXPECT_LE(early, one.false_positives) << "after " << one.after << ", " << filter.bytes();
    EXPECT_GT(early, 0.0) << "the filter is larger than it need be";
  }
}

TEST(TouchFilterTest, CountsAreThoseOfAMapWhereThereIsRoom) {
  const TestSeed seed(92);
  Random random(seed.value());
  TouchFilter filter(Filtered(4, 100'000, 1e-6f), kWhole);
  std::map<uint64_t, int> touches;
  for (int push = 0; push < 50; ++push) {
    std::vector<uint64_t> ids;
    for (uint64_t id = 0; id < 300; ++id) {
      if (random.Uniform(4) == 0) ids.push_back(id);
    }
    const std::vector<uint8_t> enough = Touch(&filter, ids);
    for (size_t i = 0; i < ids.size(); ++i) {
      ASSERT_EQ(enough[i], ++touches[ids[i]] >= 4) << "id " << ids[i] << ", push " << push;
    }
  }
  EXPECT_GT(filter.used(), 300u);
  EXPECT_LT(filter.used(), 300u * kFilterProbesMax);
}

// As the halves of a cut shard do, and then the shard that they are merged into.
TEST(TouchFilterTest, PartsTakeTheirCountsOverAndGiveThemBack) {
  const TestSeed seed(93);
  Random random(seed.value());
  const TableSpec table = Filtered(3, 1'000'000, 0.01f);
  const std::vector<uint64_t> ids = RandomIds(&random, 20'000);
  TouchFilter whole(table, kWhole);
  EXPECT_EQ(whole.Save(), "");
  Touch(&whole, ids);
  const std::string saved = whole.Save();
  constexpr uint64_t kMiddle = 20'000;
  TouchFilter lower(table, Buckets(0, kMiddle)), upper(table, Buckets(kMiddle, kBuckets));
  ASSERT_TRUE(lower.Restore(saved).ok());
  ASSERT_TRUE(upper.Restore(saved).ok());
  EXPECT_EQ(lower.used() + upper.used(), whole.used());
  EXPECT_EQ(lower.bytes() + upper.bytes(), whole.bytes());
  for (const uint64_t id : ids) {
    Touch(Mix64(id) >> 48 < kMiddle ? &lower : &upper, {id});
  }
  Touch(&whole, ids);
  TouchFilter merged(table, kWhole);
  ASSERT_TRUE(merged.Restore(lower.Save() + upper.Save()).ok());
  EXPECT_EQ(merged.Save(), whole.Save());
  EXPECT_EQ(merged.used(), whole.used());
}

TEST(TouchFilterTest, CountsOfAnotherShapeArePassedOverAndDamageIsRefused) {
  TouchFilter small(Filtered(3, 1000, 0.01f), kWhole),
      large(Filtered(3, 10'000'000, 0.01f), kWhole);
  Touch(&small, {1, 2, 3});
  ASSERT_NE(small.bytes(), large.bytes());
  EXPECT_TRUE(large.Restore(small.Save()).ok());
  EXPECT_EQ(large.used(), 0u);
  const std::string saved = small.Save();
  for (size_t bytes : {size_t{1}, size_t{15}, size_t{16}, saved.size() - 1}) {
    TouchFilter other(Filtered(3, 1000, 0.01f), kWhole);
    EXPECT_EQ(other.Restore(saved.substr(0, bytes)).code(), absl::StatusCode::kDataLoss) << bytes;
  }
}

TEST(TouchFilterTest, IsAsLargeAsItsPromiseNeeds) {
  const auto bytes = [](uint32_t after, uint64_t ids, float false_positives) {
    return TouchFilterShapeOf(Filtered(after, ids, false_positives)).Bytes(kBuckets);
  };
  EXPECT_EQ(bytes(2, 1, 0.5f), 4ull << 20) << "a block per bucket at least";
  EXPECT_LT(bytes(2, 10'000'000, 0.01f), 10'000'000 * 8ull);
  EXPECT_LT(bytes(15, 10'000'000, 0.1f), bytes(15, 10'000'000, 0.01f));
  EXPECT_LT(bytes(15, 10'000'000, 0.01f), bytes(16, 10'000'000, 0.01f)) << "counters of 8 bits";
  EXPECT_EQ(bytes(2, uint64_t{1} << 40, 0.01f), 0u) << "too large";
  TableSpec exact = Filtered(2, 1000, 0.01f);
  exact.life.admission.by = AdmitBy::kExact;
  EXPECT_EQ(TouchFilterShapeOf(exact), TouchFilterShape());
}

}  // namespace touch_filter_test
}  // namespace hotbed
