// Embeddings against the fake cluster: known numbers, messages, and calls that are refused whole.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "hotbed/client.h"
#include "hotbed/embedding.h"
#include "tests/client/embeddings_fixture.h"

namespace hotbed {
namespace embeddings_test {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using Outcome = PushResult::Outcome;

// The numbers of TorchRec's introduction: gradient -1 per element, SGD.
TEST_F(EmbeddingsTest, TheTutorialsNumbers) {
  const uint32_t p = cluster_.AddTable("product_table", 4096, 4, 3);
  cluster_.AddTable("user_table", 4096, 4, 2);
  Connect();
  const Table* const product = Open("product_table");
  const Table* const user = Open("user_table");
  Fill(product, 1, 6, [](uint64_t id, uint32_t d) { return static_cast<float>(id * 10 + d); });
  Fill(user, 1, 6, [](uint64_t id, uint32_t) { return static_cast<float>(id); });
  const auto batch =
      JaggedBatch::FromLengths({"product", "user"}, {3, 1, 2, 2}, {1, 2, 1, 5, 2, 3, 4, 1});
  ASSERT_TRUE(batch.ok());
  // Outputs in the order of the list, not of the keys.
  auto embeddings = Create({{"user", user, Pooling::kMean}, {"product", product}});
  EmbeddingOutput out;
  ASSERT_TRUE(embeddings->Forward(*batch, &out).Wait().ok());
  EXPECT_EQ(out.columns, 8);
  EXPECT_THAT(out.values, ElementsAre(2.5, 2.5, 2.5, 2.5, 40, 43, 46, 49,  //
                                      2.5, 2.5, 2.5, 2.5, 50, 51, 52, 53));
  ASSERT_NE(out.Find("product"), nullptr);
  EXPECT_EQ(out.Find("product")->column, 4);
  EXPECT_EQ(out.Find("nobody"), nullptr);
  const std::vector<float> gradients(16, -1.0f);
  const PushResult pushed = embeddings->Backward(2, *batch, out, {gradients, {}}).Wait();
  ASSERT_EQ(pushed.outcome, Outcome::kApplied) << pushed.status;
  EXPECT_THAT(cluster_.Row(p, 1), ElementsAre(12, 13, 14, 15)) << "hit twice";
  EXPECT_THAT(cluster_.Row(p, 2), ElementsAre(21, 22, 23, 24)) << "hit once";
  EXPECT_THAT(cluster_.Row(user->options().id, 2), ElementsAre(2.5, 2.5, 2.5, 2.5));
}

TEST_F(EmbeddingsTest, OneMessageAServerForwardAndBackward) {
  std::vector<EmbeddingFeature> features;
  for (int t = 0; t < 10; ++t) cluster_.AddTable("t" + std::to_string(t), 100, 4, 6);
  Connect();
  std::vector<std::string> keys;
  std::vector<uint64_t> ids;
  for (int t = 0; t < 10; ++t) {
    keys.push_back("f" + std::to_string(t));
    features.push_back(
        {keys.back(), Open("t" + std::to_string(t)), static_cast<Pooling>(t % 4), ""});
    for (uint64_t i = 0; i < 20; ++i) ids.push_back(i * 5);
  }
  const auto batch = JaggedBatch::FromLengths(keys, std::vector<uint32_t>(20, 10), ids);
  auto embeddings = Create(features);
  EmbeddingOutput out;
  const uint64_t pulls = cluster_.pull_messages();
  ASSERT_TRUE(embeddings->Forward(*batch, &out).Wait().ok());
  EXPECT_EQ(cluster_.pull_messages() - pulls, 3);
  OutputGradients gradients{out.values, {}};
  for (const auto& feature : out.features) gradients.sequences.push_back(feature.sequence);
  ASSERT_EQ(embeddings->Backward(1, *batch, out, gradients).Wait().outcome, Outcome::kApplied);
  EXPECT_EQ(cluster_.push_messages(), 3);
}

TEST_F(EmbeddingsTest, NothingInABatchIsZerosAndSendsNothing) {
  cluster_.AddTable("t", 10, 2, 2);
  Connect();
  auto embeddings = Create({{"a", Open("t"), Pooling::kMax}, {"b", Open("t"), Pooling::kNone}});
  for (uint32_t samples : {0u, 3u}) {
    const auto batch = JaggedBatch::FromLengths({"b", "a"}, std::vector<uint32_t>(2 * samples), {});
    EmbeddingOutput out;
    out.values = {7, 7, 7};
    ASSERT_TRUE(embeddings->Forward(*batch, &out).Wait().ok());
    EXPECT_EQ(out.values, std::vector<float>(2 * samples));
    EXPECT_EQ(out.arg_max[0], std::vector<uint32_t>(2 * samples, 0xffffffffu));
    EXPECT_TRUE(out.features[1].sequence.empty());
    EXPECT_EQ(out.features[1].lengths, std::vector<uint32_t>(samples));
    const PushResult pushed = embeddings->Backward(1, *batch, out, {out.values, {}}).Wait();
    EXPECT_EQ(pushed.outcome, Outcome::kApplied) << pushed.status;
  }
  EXPECT_EQ(cluster_.pull_messages() + cluster_.push_messages(), 0);
}

// --- refusals
TEST_F(EmbeddingsTest, FeaturesAreCheckedByName) {
  cluster_.AddTable("t", 10, 2, 2);
  Connect();
  const Table* const table = Open("t");
  const auto refusal = [&](std::vector<EmbeddingFeature> features) {
    const auto refused = Embeddings::Create(client_.get(), std::move(features));
    EXPECT_EQ(refused.status().code(), absl::StatusCode::kInvalidArgument) << refused.status();
    return std::string(refused.status().message());
  };
  EXPECT_THAT(refusal({}), HasSubstr("no features"));
  EXPECT_THAT(refusal({{"a", table}, {"b", nullptr}}),
              AllOf(HasSubstr("features[1]"), HasSubstr("\"b\""), HasSubstr("no table")));
  EXPECT_THAT(refusal({{"", table}}), HasSubstr("names no feature"));
  EXPECT_THAT(refusal({{"a", table, static_cast<Pooling>(4)}}), HasSubstr("pooling is 4"));
  EXPECT_THAT(refusal({{"a", table, Pooling::kSum}, {"a", table, Pooling::kMax}}),
              AllOf(HasSubstr("\"a@t\""), HasSubstr("features[0]")));
  auto other = Client::Connect(cluster_.target(), {});
  ASSERT_TRUE(other.ok());
  EXPECT_THAT(refusal({{"a", *(*other)->OpenTable("t")}}), HasSubstr("another client"));
  auto twice = Create({{"a", table, Pooling::kSum}, {"a", table, Pooling::kMax, "largest"}});
  EmbeddingOutput out;
  ASSERT_TRUE(twice->Forward(*JaggedBatch::FromLengths({"a"}, {0}, {}), &out).Wait().ok());
  EXPECT_NE(out.Find("a@t"), nullptr);
  EXPECT_NE(out.Find("largest"), nullptr);
}

TEST_F(EmbeddingsTest, BadBatchesAreRefusedWholeAndNothingIsSent) {
  v1::TableSpec none = Spec("none", 10, 2);
  none.mutable_optimizer()->set_kind(v1::OPTIMIZER_NONE);
  cluster_.AddTable(none, 2);
  cluster_.AddTable("t", 10, 2, 2);
  Connect();
  auto embeddings = Create({{"a", Open("t")}, {"b", Open("none"), Pooling::kNone}});
  auto largest = Create({{"a", Open("t"), Pooling::kMax}});
  const JaggedBatch good = *JaggedBatch::FromLengths({"a", "b"}, {1, 2, 1, 0}, {1, 2, 3, 4});
  const auto refusal = [&](const JaggedBatch& batch, Embeddings* of = nullptr) {
    EmbeddingOutput out;
    const absl::Status status =
        (of != nullptr ? of : embeddings.get())->Forward(batch, &out).Wait();
    EXPECT_FALSE(status.ok());
    return std::string(status.message());
  };
  JaggedBatch bad = good;
  bad.lengths[2] = 3;
  EXPECT_THAT(refusal(bad), AllOf(HasSubstr("\"b\""), HasSubstr("sample 0")));
  bad = good;
  bad.weights = {1, 1, 1};
  EXPECT_THAT(refusal(bad), AllOf(HasSubstr("3 weights for 4 ids"), HasSubstr("\"b\"")));
  bad.weights = {1, 1, 1, 1};
  EXPECT_THAT(refusal(bad), AllOf(HasSubstr("\"b\""), HasSubstr("pooling none")));
  EXPECT_THAT(refusal(bad, largest.get()), AllOf(HasSubstr("\"a\""), HasSubstr("pooling max")));
  bad = good;
  bad.keys[1] = "c";
  EXPECT_THAT(refusal(bad), HasSubstr("no feature \"b\""));
  bad = good;
  bad.ids[2] = 10;
  EXPECT_THAT(refusal(bad), AllOf(HasSubstr("\"a\""), HasSubstr("id 10 at position 2"),
                                  HasSubstr("sample 1"), HasSubstr("table t's 0..9")));
  EXPECT_EQ(cluster_.pull_messages(), 0);

  EmbeddingOutput out;
  ASSERT_TRUE(embeddings->Forward(good, &out).Wait().ok());
  const std::vector<float> values(4, 1.0f), sequence(2, 1.0f);
  const auto push = [&](const JaggedBatch& batch, const EmbeddingOutput& output,
                        const OutputGradients& gradients) {
    const PushResult result = embeddings->Backward(1, batch, output, gradients).Wait();
    EXPECT_EQ(result.outcome, Outcome::kFailed);
    return std::string(result.status.message());
  };
  const std::vector<absl::Span<const float>> sequences = {{}, sequence};
  EXPECT_THAT(push(good, out, {values, {}}), AllOf(HasSubstr("sequences[1]"), HasSubstr("\"b\"")));
  EXPECT_THAT(push(good, out, {sequence, sequences}), HasSubstr("values has 2"));
  EXPECT_THAT(push(good, out, {values, {sequence, sequence}}), HasSubstr("is pooled"));
  EXPECT_THAT(push(good, out, {values, {{}, sequence, {}}}), HasSubstr("at most 2"));
  EXPECT_THAT(push(good, EmbeddingOutput(), {values, sequences}), HasSubstr("Forward of this"));
  EXPECT_THAT(push(bad, out, {values, sequences}), HasSubstr("id 10 at position 2"));
  EXPECT_THAT(push(good, out, {values, sequences}),
              AllOf(HasSubstr("table none"), HasSubstr("Embeddings::Gradients")));
  EXPECT_EQ(cluster_.push_messages(), 0);
  const auto gradients = embeddings->Gradients(good, out, {values, sequences});
  ASSERT_TRUE(gradients.ok()) << gradients.status();
  EXPECT_THAT((*gradients)[1].ids, ElementsAre(4));
  EXPECT_THAT((*gradients)[1].gradients, ElementsAre(1, 1));
}

TEST_F(EmbeddingsTest, IdsBeyondFloatsComeBackExact) {
  v1::TableSpec spec = Spec("h", 1000, 1);
  spec.set_hashed(true);
  cluster_.AddTable(spec, 4);
  Connect();
  const Table* const table = Open("h");
  const std::vector<uint64_t> ids = {16777216, 16777217, (uint64_t{1} << 53) + 1, ~uint64_t{0}, 0};
  const std::vector<float> gradients = {-1, -2, -3, -4, -5};
  const PushFeature feature{table, ids, gradients.data()};
  ASSERT_EQ(client_->Push(1, {&feature, 1}).Wait().outcome, Outcome::kApplied);
  auto embeddings = Create({{"a", table, Pooling::kNone}});
  EmbeddingOutput out;
  ASSERT_TRUE(embeddings->Forward(*JaggedBatch::FromLengths({"a"}, {5}, ids), &out).Wait().ok());
  EXPECT_THAT(out.features[0].sequence, ElementsAre(1, 2, 3, 4, 5));
}

TEST_F(EmbeddingsTest, ZeroedIdsAreCounted) {
  v1::TableSpec spec = Spec("z", 10, 1);
  spec.set_bounds_mode(v1::BOUNDS_ZERO);
  spec.set_padding_id(0);
  cluster_.AddTable(spec, 2);
  Connect();
  Fill(Open("z"), 1, 10, [](uint64_t id, uint32_t) { return static_cast<float>(id); });
  EXPECT_THAT(cluster_.Row(1, 0), ElementsAre(0)) << "the padding row is never updated";
  auto embeddings = Create({{"a", Open("z"), Pooling::kMean}, {"b", Open("z"), Pooling::kNone}});
  EmbeddingOutput out;
  // 0 is padding; 10 counts in the mean's number.
  const auto batch = JaggedBatch::FromLengths({"a", "b"}, {4, 3}, {4, 0, 10, 5, 11, 0, 7});
  ASSERT_TRUE(embeddings->Forward(*batch, &out).Wait().ok());
  EXPECT_THAT(out.values, ElementsAre(3));
  EXPECT_THAT(out.features[1].sequence, ElementsAre(0, 0, 7));
  EXPECT_EQ(out.out_of_bounds, 2);
  EXPECT_EQ(client_->Stats().ids_zeroed, 2);
}

}  // namespace embeddings_test
}  // namespace hotbed
