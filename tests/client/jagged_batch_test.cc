// Jagged batches: every refusal by name, and the operations against a dumb twin of nested vectors.
#include "client/embedding/jagged_batch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "common/random.h"
#include "hotbed/batch.h"
#include "tests/common/test_seed.h"

namespace hotbed {
namespace jagged_batch_test {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

std::string RefusalOf(const absl::StatusOr<JaggedBatch>& batch) {
  EXPECT_EQ(batch.status().code(), absl::StatusCode::kInvalidArgument) << batch.status();
  return std::string(batch.status().message());
}

// The numbers of TorchRec's own introduction.
JaggedBatch ProductAndUser() {
  auto batch = JaggedBatch::FromLengths({"product", "user"}, {3, 1, 2, 2}, {1, 2, 1, 5, 2, 3, 4, 1},
                                        {.1f, .2f, .3f, .4f, .5f, .6f, .7f, .8f});
  EXPECT_TRUE(batch.ok()) << batch.status();
  return *std::move(batch);
}

TEST(JaggedBatchTest, LengthsAndOffsetsAreTwoWaysToSayTheSame) {
  const JaggedBatch batch = ProductAndUser();
  EXPECT_EQ(batch.batch_size, 2);
  EXPECT_THAT(batch.Offsets(), ElementsAre(0, 3, 4, 6, 8));
  EXPECT_THAT(batch.LengthPerKey(), ElementsAre(4, 4));
  EXPECT_THAT(batch.OffsetPerKey(), ElementsAre(0, 4, 8));
  const auto same = JaggedBatch::FromOffsets(batch.keys, {0, 3, 4, 6, 8}, batch.ids, batch.weights);
  ASSERT_TRUE(same.ok()) << same.status();
  EXPECT_EQ(same->lengths, batch.lengths);
  EXPECT_EQ(same->batch_size, 2);
  const auto docs =
      JaggedBatch::FromLengths({"a", "b"}, {2, 0, 1, 1, 1, 3}, {1, 2, 3, 4, 5, 6, 7, 8});
  ASSERT_TRUE(docs.ok()) << docs.status();
  EXPECT_THAT(docs->Offsets(), ElementsAre(0, 2, 2, 3, 4, 5, 8));
  EXPECT_THAT(docs->OffsetPerKey(), ElementsAre(0, 3, 8));
}

TEST(JaggedBatchTest, NothingAtAllIsABatch) {
  const auto no_keys = JaggedBatch::FromLengths({}, {}, {});
  ASSERT_TRUE(no_keys.ok()) << no_keys.status();
  EXPECT_THAT(no_keys->Offsets(), ElementsAre(0));
  EXPECT_THAT(no_keys->OffsetPerKey(), ElementsAre(0));
  const auto no_samples = JaggedBatch::FromLengths({"a", "b"}, {}, {});
  ASSERT_TRUE(no_samples.ok()) << no_samples.status();
  EXPECT_EQ(no_samples->batch_size, 0);
  EXPECT_THAT(no_samples->LengthPerKey(), ElementsAre(0, 0));
  const auto no_ids = JaggedBatch::FromLengths({"a", "b"}, {0, 0, 0, 0, 0, 0}, {});
  ASSERT_TRUE(no_ids.ok()) << no_ids.status();
  EXPECT_EQ(no_ids->batch_size, 3);
  const auto by_offsets = JaggedBatch::FromOffsets({"a"}, {0}, {});
  ASSERT_TRUE(by_offsets.ok()) << by_offsets.status();
  EXPECT_EQ(by_offsets->batch_size, 0);
  for (const auto& batch : {no_keys, no_samples, no_ids}) {
    EXPECT_TRUE(batch->Permute({}).ok());
    EXPECT_TRUE(batch->Samples(0, batch->batch_size).ok());
    const auto split = batch->Split({batch->keys.size(), 0});
    ASSERT_TRUE(split.ok()) << split.status();
    EXPECT_EQ((*split)[0].keys, batch->keys);
    EXPECT_THAT((*split)[1].keys, IsEmpty());
    EXPECT_EQ((*split)[1].batch_size, batch->batch_size);
    EXPECT_TRUE(JaggedBatch::ConcatSamples({*batch, *batch}).ok());
  }
  EXPECT_TRUE(JaggedBatch::Concat({}).ok());
  EXPECT_TRUE(JaggedBatch::ConcatSamples({}).ok());
}

TEST(JaggedBatchTest, IdsAreExactAndSignExtended) {
  const std::vector<int32_t> narrow = {-1, 16777217, std::numeric_limits<int32_t>::min()};
  EXPECT_THAT(IdsFrom(absl::MakeConstSpan(narrow)),
              ElementsAre(~uint64_t{0}, 16777217, 0xffffffff80000000u));
  const std::vector<int64_t> wide = {-2, (int64_t{1} << 53) + 1,
                                     std::numeric_limits<int64_t>::max()};
  EXPECT_THAT(IdsFrom(absl::MakeConstSpan(wide)),
              ElementsAre(~uint64_t{0} - 1, 9007199254740993u, 0x7fffffffffffffffu));
  const std::vector<uint64_t> plain = {0, ~uint64_t{0}, (uint64_t{1} << 63) + 1};
  EXPECT_EQ(IdsFrom(absl::MakeConstSpan(plain)), plain);
}

TEST(JaggedBatchTest, RefusalsNameFeatureAndPosition) {
  const std::vector<std::string> keys = {"product", "user"};
  EXPECT_THAT(RefusalOf(JaggedBatch::FromLengths(keys, {1, 2, 3}, {1, 2, 3, 4, 5, 6})),
              AllOf(HasSubstr("\"user\""), HasSubstr("sample 1"), HasSubstr("position 3")));
  EXPECT_THAT(RefusalOf(JaggedBatch::FromLengths({}, {1}, {1})), HasSubstr("no features"));
  EXPECT_THAT(RefusalOf(JaggedBatch::FromLengths(keys, {1, 2, 3, 1}, {1, 2, 3, 4, 5})),
              AllOf(HasSubstr("\"user\""), HasSubstr("length 3 of sample 0"),
                    HasSubstr("position 2"), HasSubstr("only 5 ids")));
  EXPECT_THAT(RefusalOf(JaggedBatch::FromLengths(keys, {1, 0, 1, 1}, {1, 2, 3, 4, 5})),
              AllOf(HasSubstr("\"user\""), HasSubstr("position 3"), HasSubstr("2 are left over")));
  EXPECT_THAT(RefusalOf(JaggedBatch::FromLengths({}, {}, {7})), HasSubstr("no feature"));
  EXPECT_THAT(RefusalOf(JaggedBatch::FromLengths({"a", "b", "a"}, {0, 0, 0}, {})),
              AllOf(HasSubstr("\"a\""), HasSubstr("position 2")));
  EXPECT_THAT(RefusalOf(JaggedBatch::FromLengths(keys, {1, 1, 1, 1}, {1, 2, 3, 4}, {1, 1, 1})),
              AllOf(HasSubstr("3 weights for 4 ids"), HasSubstr("\"user\""),
                    HasSubstr("position 1"), HasSubstr("sample 1")));
  EXPECT_THAT(RefusalOf(JaggedBatch::FromLengths(keys, {1, 1, 1, 0}, {1, 2, 3}, {1, 1, 1, 1})),
              AllOf(HasSubstr("4 weights for 3 ids"), HasSubstr("position 3")));
  const float inf = std::numeric_limits<float>::infinity();
  for (float bad : {inf, -inf, std::numeric_limits<float>::quiet_NaN()}) {
    EXPECT_THAT(
        RefusalOf(JaggedBatch::FromLengths(keys, {1, 2, 0, 1}, {1, 2, 3, 4}, {1, 1, bad, 1})),
        AllOf(HasSubstr("\"product\""), HasSubstr("position 2"), HasSubstr("sample 1"),
              HasSubstr("finite")));
  }
  // Sums beyond 32 bits do not come round.
  EXPECT_THAT(RefusalOf(JaggedBatch::FromLengths(keys, {0xffffffff, 1, 0, 1}, {1})),
              AllOf(HasSubstr("\"product\""), HasSubstr("4294967295")));
}

TEST(JaggedBatchTest, RefusesOffsetsByPosition) {
  const std::vector<std::string> keys = {"a", "b"};
  EXPECT_THAT(RefusalOf(JaggedBatch::FromOffsets(keys, {}, {})), HasSubstr("begin with nothing"));
  EXPECT_THAT(RefusalOf(JaggedBatch::FromOffsets(keys, {1, 2, 3}, {1, 2, 3})),
              HasSubstr("begin with 1"));
  EXPECT_THAT(RefusalOf(JaggedBatch::FromOffsets(keys, {0, 3, 2, 3, 4}, {1, 2, 3, 4})),
              AllOf(HasSubstr("fall from 3 to 2 at position 2"), HasSubstr("\"a\", sample 1")));
  EXPECT_THAT(RefusalOf(JaggedBatch::FromOffsets(keys, {0, int64_t{1} << 33}, {1})),
              HasSubstr("grow by 8589934592 at position 1"));
  EXPECT_THAT(RefusalOf(JaggedBatch::FromOffsets(keys, {0, 1, 2, 3}, {1, 2, 3})),
              HasSubstr("3 lengths for 2 features"));
  EXPECT_THAT(RefusalOf(JaggedBatch::FromOffsets(keys, {0, 1, 3}, {1, 2})),
              AllOf(HasSubstr("\"b\""), HasSubstr("only 2 ids")));
}

TEST(JaggedBatchTest, WhatIsAskedOfItIsRefusedByArgument) {
  const JaggedBatch batch = ProductAndUser();
  const auto message = [](const auto& refused) { return std::string(refused.status().message()); };
  EXPECT_THAT(message(batch.IndexOf("produkt")), HasSubstr("\"product\""));
  EXPECT_EQ(batch.IndexOf("x").status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(*batch.IndexOf("user"), 1);
  EXPECT_THAT(message(batch.Split({1})), HasSubstr("add up to 1 of 2"));
  EXPECT_THAT(message(batch.Split({1, 2})), HasSubstr("counts[1] is 2"));
  EXPECT_THAT(message(batch.Split({3, ~size_t{0}})), HasSubstr("counts[0] is 3"));
  EXPECT_THAT(message(batch.Permute({0, 2})), HasSubstr("order[1] is 2"));
  EXPECT_THAT(message(batch.Samples(1, 2)), HasSubstr("[1, 3) of a batch of 2"));
  EXPECT_THAT(message(batch.Samples(3, 0)), HasSubstr("of a batch of 2"));
  EXPECT_THAT(message(batch.Samples(1, 0xffffffff)), HasSubstr("of a batch of 2"));
  EXPECT_THAT(message(batch.Regroup({{"user"}, {"usr"}})), HasSubstr("\"user\""));
  EXPECT_THAT(message(JaggedBatch::Concat({batch, batch})), HasSubstr("\"product\""));
  JaggedBatch other = *JaggedBatch::FromLengths({"x"}, {1, 1, 1}, {1, 2, 3}, {1, 1, 1});
  EXPECT_THAT(message(JaggedBatch::Concat({batch, other})),
              HasSubstr("parts[1] has 3 samples, parts[0] has 2"));
  EXPECT_THAT(message(JaggedBatch::ConcatSamples({batch, other})), HasSubstr("parts[1]"));
  other = *JaggedBatch::FromLengths({"x"}, {1, 1}, {1, 2});
  EXPECT_THAT(message(JaggedBatch::Concat({batch, other})),
              HasSubstr("parts[1] has no weights, parts[0] has"));
  other.lengths[0] = 9;
  EXPECT_THAT(message(JaggedBatch::Concat({batch, other})),
              AllOf(HasSubstr("parts[1]"), HasSubstr("\"x\"")));
}

TEST(JaggedBatchTest, ARepeatedKeyGetsASuffixThatIsFree) {
  const auto batch = JaggedBatch::FromLengths({"a", "a#1"}, {1, 1}, {1, 2});
  const auto repeated = batch->Permute({0, 0, 1, 0});
  ASSERT_TRUE(repeated.ok()) << repeated.status();
  EXPECT_THAT(repeated->keys, ElementsAre("a", "a#2", "a#1", "a#3"));
  EXPECT_THAT(repeated->ids, ElementsAre(1, 1, 2, 1));
  EXPECT_TRUE(repeated->Validate().ok());
}

// --- against a dumb twin: [key][sample] -> bag of (id, weight)
using Bag = std::vector<std::pair<uint64_t, float>>;
struct Twin {
  std::vector<std::string> keys;
  std::vector<std::vector<Bag>> bags;
  bool weighted = false;
};

Twin RandomTwin(Random& random, const std::string& prefix, size_t keys, uint32_t samples,
                bool weighted) {
  Twin twin;
  twin.weighted = weighted;
  for (size_t k = 0; k < keys; ++k) {
    twin.keys.push_back(prefix + std::to_string(k));
    std::vector<Bag>& key = twin.bags.emplace_back(samples);
    if (random.OneIn(4)) continue;
    for (Bag& bag : key) {
      bag.resize(random.OneIn(3) ? 0 : random.Uniform(6));
      for (auto& [id, weight] : bag) {
        id = random.Next();
        weight = weighted ? static_cast<float>(random.Double()) : 1.0f;
      }
    }
  }
  return twin;
}

JaggedBatch BatchOf(const Twin& twin, uint32_t samples) {
  JaggedBatch batch;
  batch.keys = twin.keys;
  batch.batch_size = samples;
  for (const auto& key : twin.bags) {
    for (const Bag& bag : key) {
      batch.lengths.push_back(static_cast<uint32_t>(bag.size()));
      for (const auto& [id, weight] : bag) {
        batch.ids.push_back(id);
        if (twin.weighted) batch.weights.push_back(weight);
      }
    }
  }
  return batch;
}

void ExpectIs(const absl::StatusOr<JaggedBatch>& got, const Twin& twin, uint32_t samples) {
  ASSERT_TRUE(got.ok()) << got.status();
  ASSERT_TRUE(got->Validate().ok()) << got->Validate();
  const JaggedBatch want = BatchOf(twin, samples);
  EXPECT_EQ(got->keys, want.keys);
  EXPECT_EQ(got->batch_size, want.batch_size);
  EXPECT_EQ(got->lengths, want.lengths);
  EXPECT_EQ(got->ids, want.ids);
  EXPECT_EQ(got->weights, want.weights);
}

class JaggedBatchRandomTest : public testing::Test {
 protected:
  const TestSeed seed_{11};
  Random random_{seed_.value()};
};

TEST_F(JaggedBatchRandomTest, SplitPermuteAndSamplesMatchTheirTwins) {
  for (int round = 0; round < 300; ++round) {
    const uint32_t samples = static_cast<uint32_t>(random_.Uniform(6));
    const Twin twin = RandomTwin(random_, "k", random_.Uniform(6), samples, random_.OneIn(2));
    const JaggedBatch batch = BatchOf(twin, samples);
    std::vector<size_t> counts;
    for (size_t left = twin.keys.size(); left > 0; left -= counts.back()) {
      counts.push_back(random_.Uniform(left + 1));
    }
    const auto split = batch.Split(counts);
    ASSERT_TRUE(split.ok()) << split.status();
    size_t key = 0;
    for (size_t g = 0; g < counts.size(); ++g) {
      Twin part{{}, {}, twin.weighted};
      for (size_t n = 0; n < counts[g]; ++n, ++key) {
        part.keys.push_back(twin.keys[key]);
        part.bags.push_back(twin.bags[key]);
      }
      ExpectIs((*split)[g], part, samples);
    }
    std::vector<size_t> order;
    Twin permuted{{}, {}, twin.weighted};
    std::map<size_t, int> seen;
    for (uint64_t n = twin.keys.empty() ? 0 : random_.Uniform(7); n > 0; --n) {
      order.push_back(random_.Uniform(twin.keys.size()));
      const int times = seen[order.back()]++;
      permuted.keys.push_back(twin.keys[order.back()] +
                              (times == 0 ? "" : "#" + std::to_string(times)));
      permuted.bags.push_back(twin.bags[order.back()]);
    }
    ExpectIs(batch.Permute(order), permuted, samples);
    const uint32_t first = static_cast<uint32_t>(random_.Uniform(samples + 1));
    const uint32_t count = static_cast<uint32_t>(random_.Uniform(samples - first + 1));
    Twin some{twin.keys, {}, twin.weighted};
    for (const auto& bags : twin.bags) {
      some.bags.emplace_back(bags.begin() + first, bags.begin() + first + count);
    }
    ExpectIs(batch.Samples(first, count), some, count);
  }
}

TEST_F(JaggedBatchRandomTest, ConcatsMatchTheirTwinsAndUndoSplitAndSamples) {
  for (int round = 0; round < 300; ++round) {
    const uint32_t samples = static_cast<uint32_t>(random_.Uniform(6));
    const bool weighted = random_.OneIn(2);
    std::vector<JaggedBatch> parts, slices;
    Twin all{{}, {}, weighted};
    for (uint64_t p = random_.Uniform(4); p > 0; --p) {
      const Twin twin =
          RandomTwin(random_, "p" + std::to_string(p) + "k", random_.Uniform(4), samples, weighted);
      parts.push_back(BatchOf(twin, samples));
      all.keys.insert(all.keys.end(), twin.keys.begin(), twin.keys.end());
      all.bags.insert(all.bags.end(), twin.bags.begin(), twin.bags.end());
    }
    const uint32_t all_samples = parts.empty() ? 0 : samples;
    ExpectIs(JaggedBatch::Concat(parts), all, all_samples);
    const JaggedBatch whole = BatchOf(all, all_samples);
    for (uint32_t first = 0; first < all_samples;) {
      const uint32_t count = static_cast<uint32_t>(random_.Uniform(all_samples - first + 1));
      slices.push_back(*whole.Samples(first, count));
      first += count;
    }
    if (!slices.empty()) ExpectIs(JaggedBatch::ConcatSamples(slices), all, all_samples);
  }
}

TEST_F(JaggedBatchRandomTest, RegroupPicksKeysByName) {
  const Twin twin = RandomTwin(random_, "k", 4, 5, true);
  const auto groups = BatchOf(twin, 5).Regroup({{"k3", "k0"}, {}, {"k0"}});
  ASSERT_TRUE(groups.ok()) << groups.status();
  ExpectIs((*groups)[0], {{"k3", "k0"}, {twin.bags[3], twin.bags[0]}, true}, 5);
  ExpectIs((*groups)[1], {{}, {}, true}, 5);
  ExpectIs((*groups)[2], {{"k0"}, {twin.bags[0]}, true}, 5);
}

TEST_F(JaggedBatchRandomTest, ThePlaceOfAnIdIsFound) {
  const Twin twin = RandomTwin(random_, "k", 5, 4, false);
  const JaggedBatch batch = BatchOf(twin, 4);
  uint64_t position = 0;
  for (size_t k = 0; k < 5; ++k) {
    const uint64_t begin = position;
    for (uint32_t s = 0; s < 4; ++s) {
      for (size_t i = 0; i < twin.bags[k][s].size(); ++i, ++position) {
        const JaggedPlace place = PlaceOfId(batch, position);
        EXPECT_EQ(place.key, k);
        EXPECT_EQ(place.sample, s);
        EXPECT_EQ(place.key_begin, begin);
      }
    }
  }
}

}  // namespace jagged_batch_test
}  // namespace hotbed
