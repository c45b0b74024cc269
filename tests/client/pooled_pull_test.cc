// Pooled pulls against the fake cluster: mixed with rows, cut, refused, rerouted.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <vector>

#include "hotbed/client.h"
#include "tests/client/fake_cluster.h"

namespace hotbed {
namespace pooled_pull_test {

using ::testing::HasSubstr;

class PooledPullTest : public testing::Test {
 protected:
  void SetUp() override {
    cluster_.AddTable("user", 1000, 5, 4);
    cluster_.AddTable("item", 500, 16, 3);
  }
  void Connect(ClientOptions options = {}) {
    options.deadline = absl::Seconds(20);
    options.session_name = "pooled-test";
    auto client = Client::Connect(cluster_.target(), options);
    ASSERT_TRUE(client.ok()) << client.status();
    client_ = *std::move(client);
    user_ = *client_->OpenTable("user");
    item_ = *client_->OpenTable("item");
    Fill(user_);
    Fill(item_);
  }
  // Small integers: sums are exact in every order. Odd rows only.
  static float Value(uint64_t id, uint32_t column) {
    return id % 2 == 0 ? 0.0f : static_cast<float>(id % 50) - 2.0f * static_cast<float>(column);
  }
  void Fill(const Table* table) {
    std::vector<uint64_t> ids;
    std::vector<float> gradients;
    for (uint64_t id = 1; id < table->options().rows; id += 2) {
      ids.push_back(id);
      for (uint32_t c = 0; c < table->dim(); ++c) gradients.push_back(-Value(id, c));
    }
    const PushFeature feature{table, ids, gradients.data()};
    const PushResult result = client_->Push(1, {&feature, 1}).Wait();
    ASSERT_TRUE(result.status.ok()) << result.status;
  }
  struct Bags {
    std::vector<uint64_t> ids;
    std::vector<uint32_t> lengths;
    std::vector<float> rows;
    std::vector<uint32_t> arg_max;
    PullFeature feature;
  };
  Bags Ask(const Table* table, const std::vector<std::vector<uint64_t>>& bags,
           BagPooling pooling = BagPooling::kSum) {
    Bags asked;
    for (const auto& bag : bags) {
      asked.ids.insert(asked.ids.end(), bag.begin(), bag.end());
      asked.lengths.push_back(static_cast<uint32_t>(bag.size()));
    }
    asked.rows.assign(bags.size() * table->dim(), -99.0f);
    asked.arg_max.assign(asked.rows.size(), 99);
    asked.feature.table = table;
    asked.feature.pooling = pooling;
    return asked;
  }
  // Set once the vectors no longer move.
  static PullFeature FeatureOf(Bags& asked) {
    PullFeature feature = asked.feature;
    feature.ids = asked.ids;
    feature.rows = asked.rows.data();
    feature.bag_lengths = asked.lengths;
    if (feature.pooling == BagPooling::kMax) feature.arg_max = asked.arg_max.data();
    return feature;
  }
  static void Check(const Bags& asked) {
    const uint32_t dim = asked.feature.table->dim();
    size_t first = 0;
    for (size_t b = 0; b < asked.lengths.size(); first += asked.lengths[b++]) {
      for (uint32_t c = 0; c < dim; ++c) {
        float want = 0.0f;
        uint32_t arg = kArgMaxOfNothing;
        for (uint32_t k = 0; k < asked.lengths[b]; ++k) {
          const float value = Value(asked.ids[first + k], c);
          if (asked.feature.pooling != BagPooling::kMax) {
            want += value;
          } else if (k == 0 || value > want) {
            want = value;
            arg = k;
          }
        }
        if (asked.feature.pooling == BagPooling::kMean && asked.lengths[b] > 0) {
          want /= static_cast<float>(asked.lengths[b]);
        }
        ASSERT_EQ(asked.rows[b * dim + c], want) << "bag " << b << " column " << c;
        if (asked.feature.pooling == BagPooling::kMax) {
          ASSERT_EQ(asked.arg_max[b * dim + c], arg) << "bag " << b << " column " << c;
        }
      }
    }
  }
  absl::Status Pull(const std::vector<PullFeature>& features) {
    return client_->Pull(features).Wait();
  }

  FakeCluster cluster_{2};
  std::unique_ptr<Client> client_;
  const Table* user_ = nullptr;
  const Table* item_ = nullptr;
};

TEST_F(PooledPullTest, BagsAndRowsOfSeveralTablesInOneMessageAServer) {
  Connect();
  Bags sum = Ask(user_, {{1, 999, 3, 3}, {}, {500, 2}, {7}});
  Bags mean = Ask(user_, {{1, 999, 3, 700}, {}, {5}}, BagPooling::kMean);
  Bags max = Ask(item_, {{3, 499, 3, 11, 61}, {}, {4}}, BagPooling::kMax);
  Bags none = Ask(user_, {{}, {}});
  std::vector<uint8_t> exists(sum.ids.size(), 9);
  const std::vector<uint64_t> ids = {3, 999, 3};
  std::vector<float> rows(ids.size() * 16);
  std::vector<PullFeature> features = {FeatureOf(sum),
                                       FeatureOf(mean),
                                       FeatureOf(max),
                                       FeatureOf(none),
                                       {item_, {ids.data(), 1}, rows.data()}};
  features[0].exists = exists.data();
  const uint64_t before = cluster_.pull_messages();
  ASSERT_TRUE(Pull(features).ok());
  EXPECT_EQ(cluster_.pull_messages() - before, 2);
  Check(sum);
  Check(mean);
  Check(max);
  Check(none);
  for (uint32_t c = 0; c < 16; ++c) EXPECT_EQ(rows[c], Value(3, c));
  EXPECT_EQ(exists, std::vector<uint8_t>({1, 1, 1, 1, 0, 0, 1}));
}

TEST_F(PooledPullTest, WeightedSumsAndMeans) {
  Connect();
  const std::vector<float> weights = {2, -1, 0.5f, 4, 1, 3};
  for (BagPooling pooling : {BagPooling::kSum, BagPooling::kMean}) {
    Bags asked = Ask(user_, {{1, 999, 3}, {7, 7}, {501}}, pooling);
    PullFeature feature = FeatureOf(asked);
    feature.id_weights = weights.data();
    ASSERT_TRUE(Pull({feature}).ok());
    const float divisors[] = {1.5f, 5, 3};
    const size_t firsts[] = {0, 3, 5};
    for (int b = 0; b < 3; ++b) {
      for (uint32_t c = 0; c < 5; ++c) {
        float want = 0;
        for (uint32_t k = 0; k < asked.lengths[b]; ++k) {
          want += weights[firsts[b] + k] * Value(asked.ids[firsts[b] + k], c);
        }
        if (pooling == BagPooling::kMean) want /= divisors[b];
        EXPECT_EQ(asked.rows[b * 5 + c], want);
      }
    }
  }
}

TEST_F(PooledPullTest, WhatIsRefusedIsAskedAgain) {
  Connect();
  std::atomic<int> refusals{0};
  cluster_.set_pull_script([&](int, const PullAsk& segment) -> std::optional<v1::SegmentReply> {
    if (segment.pooling == v1::POOLING_NONE || refusals.fetch_add(1) % 3 != 0) return std::nullopt;
    v1::SegmentReply reply;
    reply.set_code(v1::RESOURCE_EXHAUSTED);
    reply.set_retry_after_ms(1);
    return reply;
  });
  cluster_.Move({1, 0}, 1);  // the client's map is behind
  for (int round = 0; round < 5; ++round) {
    Bags sum = Ask(user_, {{1, 999, 3, 3}, {}, {501, 251}, {7}});
    Bags max = Ask(item_, {{3, 499, 3, 11, 61}, {}, {4}}, BagPooling::kMax);
    const absl::Status status = Pull({FeatureOf(sum), FeatureOf(max)});
    ASSERT_TRUE(status.ok()) << status;
    Check(sum);
    Check(max);
  }
  EXPECT_GT(refusals.load(), 10);
}

TEST_F(PooledPullTest, LargeCallsAreCutByBytes) {
  ClientOptions options;
  options.message_bytes_max = 65536;
  Connect(options);
  std::vector<std::vector<uint64_t>> bags(4000);
  for (size_t b = 0; b < bags.size(); ++b) {
    for (size_t k = 0; k < b % 40; ++k) bags[b].push_back((b * 37 + k * 11) % 500);
  }
  for (BagPooling pooling : {BagPooling::kSum, BagPooling::kMax, BagPooling::kMean}) {
    Bags asked = Ask(item_, bags, pooling);
    const uint64_t before = cluster_.pull_messages();
    ASSERT_TRUE(Pull({FeatureOf(asked)}).ok());
    Check(asked);
    EXPECT_GT(cluster_.pull_messages() - before, 10);
  }
  EXPECT_LE(cluster_.largest_message(), 65536u);
}

TEST_F(PooledPullTest, ManyCallsAtOnceAreJoined) {
  Connect();
  std::vector<Bags> asked;
  for (uint64_t i = 0; i < 200; ++i) {
    const auto pooling = static_cast<BagPooling>(i % 3);
    asked.push_back(Ask(i % 2 == 0 ? user_ : item_, {{i, i + 1, i + 3}, {}, {2 * i + 1}}, pooling));
  }
  std::vector<Future<absl::Status>> futures;
  for (Bags& bags : asked) {
    const PullFeature feature = FeatureOf(bags);
    futures.push_back(client_->Pull({&feature, 1}));
  }
  for (auto& future : futures) EXPECT_TRUE(future.Wait().ok());
  for (const Bags& bags : asked) Check(bags);
}

TEST_F(PooledPullTest, MistakesAreRefusedWholeByNameAndPlace) {
  Connect();
  Bags bags = Ask(user_, {{1, 2}, {3}});
  const float weights[] = {1, 2, 3};
  const auto error = [&](const std::function<void(PullFeature*)>& change) {
    PullFeature feature = FeatureOf(bags);
    change(&feature);
    const absl::Status status = Pull({{user_, {bags.ids.data(), 1}, bags.rows.data()}, feature});
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    EXPECT_THAT(status.message(), HasSubstr("feature 1 of table user"));
    return std::string(status.message());
  };
  const std::vector<uint32_t> short_of = {1, 1}, too_long = {2, 2};
  const uint64_t before = cluster_.pull_messages();
  EXPECT_THAT(error([&](auto* f) { f->bag_lengths = short_of; }),
              HasSubstr("the last of 2 bags ends at id 2 of 3"));
  EXPECT_THAT(error([&](auto* f) { f->bag_lengths = too_long; }),
              HasSubstr("bag 1 of length 2 ends at id 4 of 3"));
  EXPECT_THAT(error([&](auto* f) { f->rows = nullptr; }), HasSubstr("no buffer for 2 pooled rows"));
  EXPECT_THAT(error([&](auto* f) { f->row_type = RowType::kFp16; }), HasSubstr("arrive as fp32"));
  EXPECT_THAT(error([&](auto* f) { f->arg_max = bags.arg_max.data(); }),
              HasSubstr("arg_max without pooling max"));
  EXPECT_THAT(error([&](auto* f) {
                f->pooling = BagPooling::kMax;
                f->id_weights = weights;
              }),
              HasSubstr("weights with pooling max"));
  EXPECT_THAT(error([&](auto* f) { f->row_stride = 4; }), HasSubstr("row_stride is 4"));
  EXPECT_THAT(error([&](auto* f) {
                f->bag_lengths = {};
                f->id_weights = weights;
              }),
              HasSubstr("id_weights without bag_lengths"));
  EXPECT_EQ(cluster_.pull_messages(), before);
  const RowType int8 = RowType::kInt8;
  const PullFeature feature = FeatureOf(bags);
  const absl::Status status = client_->Pull({&feature, 1}, {.wire_type = &int8}).Wait();
  EXPECT_THAT(status.message(), HasSubstr("not int8"));
}

}  // namespace pooled_pull_test
}  // namespace hotbed
