// Variable batches, jagged tensors and the gradients of weights: against the same batch expanded,
// and against numbers worked out by hand.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "common/random.h"
#include "hotbed/embedding.h"
#include "tests/client/embeddings_fixture.h"
#include "tests/common/test_seed.h"

namespace hotbed {
namespace variable_batch_test {

using testing::ElementsAre;
using testing::FloatNear;
using testing::HasSubstr;
using testing::Pointwise;

// Few ids and short bags, so that many samples have equal bags.
JaggedBatch RandomBatch(Random& random, uint32_t samples, bool weighted) {
  JaggedBatch batch;
  batch.keys = {"a", "b", "c"};
  batch.batch_size = samples;
  for (uint32_t i = 0; i < 3 * samples; ++i) {
    batch.lengths.push_back(static_cast<uint32_t>(random.Uniform(3)));
    for (uint32_t k = 0; k < batch.lengths.back(); ++k) {
      batch.ids.push_back(random.Uniform(4));
      if (weighted) batch.weights.push_back(0.5f * static_cast<float>(1 + random.Uniform(2)));
    }
  }
  EXPECT_TRUE(batch.Validate().ok());
  return batch;
}

void ExpectSame(const absl::StatusOr<JaggedBatch>& got, const absl::StatusOr<JaggedBatch>& want) {
  ASSERT_TRUE(got.ok()) << got.status();
  ASSERT_TRUE(want.ok()) << want.status();
  const auto a = got->Expand();
  ASSERT_TRUE(a.ok()) << a.status();
  EXPECT_EQ(a->keys, want->keys);
  EXPECT_EQ(a->batch_size, want->batch_size);
  EXPECT_EQ(a->lengths, want->lengths);
  EXPECT_EQ(a->ids, want->ids);
  EXPECT_EQ(a->weights, want->weights);
}

TEST(VariableBatchTest, OperationsAreThoseOfTheSameSamples) {
  const TestSeed seed(4);
  Random random(seed.value());
  for (int round = 0; round < 30; ++round) {
    const JaggedBatch batch = RandomBatch(random, 20, round % 2 == 0);
    const auto shared = batch.ShareEqualBags();
    ASSERT_TRUE(shared.ok()) << shared.status();
    ASSERT_TRUE(shared->Validate().ok());
    EXPECT_LT(shared->lengths.size(), batch.lengths.size()) << "of 20 bags, some are equal";
    ExpectSame(shared, batch);
    ExpectSame(shared->Permute({2, 0, 2}), batch.Permute({2, 0, 2}));
    ExpectSame(shared->Samples(3, 9), batch.Samples(3, 9));
    ExpectSame(JaggedBatch::ConcatSamples({{*shared, batch}}),
               JaggedBatch::ConcatSamples({{batch, batch}}));
    const auto groups = batch.Split({1, 2});
    const auto shared_groups = shared->Split({1, 2});
    ASSERT_TRUE(groups.ok() && shared_groups.ok());
    ExpectSame((*shared_groups)[1], (*groups)[1]);
    ExpectSame(JaggedBatch::Concat({{(*shared_groups)[0], (*groups)[1]}}), batch);
  }
}

TEST(VariableBatchTest, RefusalsNameFeatureAndPosition) {
  const auto refusal = [](std::vector<uint32_t> bags, std::vector<uint32_t> lengths,
                          std::vector<uint32_t> inverse) {
    const auto batch = JaggedBatch::FromVariable({"a", "b"}, 3, std::move(bags), std::move(lengths),
                                                 {1, 2, 3}, std::move(inverse));
    EXPECT_EQ(batch.status().code(), absl::StatusCode::kInvalidArgument);
    return std::string(batch.status().message());
  };
  EXPECT_THAT(refusal({1}, {1, 1, 1}, {0, 0, 0, 0, 1, 1}), HasSubstr("1 bags_per_key for 2"));
  EXPECT_THAT(refusal({1, 2}, {1, 1, 1}, {0, 0, 0, 0, 1}), HasSubstr("5 inverse indices for 2"));
  EXPECT_THAT(refusal({1, 2}, {1, 1, 1}, {0, 0, 0, 0, 2, 1}),
              HasSubstr("\"b\": sample 1 has bag 2, the feature has 2"));
  EXPECT_THAT(refusal({1, 2}, {1, 1}, {0, 0, 0, 0, 1, 1}), HasSubstr("2 lengths for 3 bags"));
  EXPECT_THAT(refusal({1, 2}, {1, 1, 4}, {0, 0, 0, 0, 1, 1}),
              HasSubstr("\"b\": the length 4 of bag 1"));
  const auto good =
      JaggedBatch::FromVariable({"a", "b"}, 3, {1, 2}, {1, 1, 1}, {7, 8, 9}, {0, 0, 0, 1, 0, 1});
  ASSERT_TRUE(good.ok()) << good.status();
  EXPECT_THAT(good->Expand()->ids, ElementsAre(7, 7, 7, 9, 8, 9));
  EXPECT_THAT(good->LengthPerKey(), ElementsAre(1, 2));
}

class VariableEmbeddingsTest : public EmbeddingsTest {
 protected:
  void SetUp() override {
    cluster_.AddTable("t", 100, 4, 3);
    Connect();
    t_ = Open("t");
    Fill(t_, 1, 8, [](uint64_t id, uint32_t d) {
      return static_cast<float>(id + 1) * (d % 2 == 0 ? 1.0f : -0.5f) + static_cast<float>(d);
    });
  }
  const Table* t_ = nullptr;
};

TEST_F(VariableEmbeddingsTest, OutputsAndGradientsAreThoseOfTheExpandedBatch) {
  const TestSeed seed(5);
  Random random(seed.value());
  for (const PoolingPlace place : {PoolingPlace::kServer, PoolingPlace::kClient}) {
    for (const bool weighted : {false, true}) {
      const Pooling third = weighted ? Pooling::kSum : Pooling::kMax;
      const auto embeddings = Create(
          {{"c", t_, third, ""}, {"a", t_, Pooling::kMean, ""}, {"b", t_, Pooling::kSum, ""}},
          {.pooling_at = place});
      const JaggedBatch batch = RandomBatch(random, 16, weighted);
      const auto shared = batch.ShareEqualBags();
      EmbeddingOutput out, shared_out;
      const uint64_t before = client_->Stats().rows_pulled;
      ASSERT_TRUE(embeddings->Forward(batch, &out).Wait().ok());
      const uint64_t between = client_->Stats().rows_pulled;
      const absl::Status forward = embeddings->Forward(*shared, &shared_out).Wait();
      ASSERT_TRUE(forward.ok()) << forward;
      if (place == PoolingPlace::kServer) {
        EXPECT_LT(client_->Stats().rows_pulled - between, between - before) << "pooled once";
      }
      EXPECT_EQ(shared_out.values, out.values);
      std::vector<float> gradients(out.values.size());
      for (float& g : gradients) g = static_cast<float>(random.Uniform(9)) - 4.0f;
      const auto sums = embeddings->Gradients(batch, out, {gradients, {}});
      const auto shared_sums = embeddings->Gradients(*shared, shared_out, {gradients, {}});
      ASSERT_TRUE(sums.ok() && shared_sums.ok()) << shared_sums.status();
      EXPECT_EQ((*shared_sums)[0].ids, (*sums)[0].ids);
      EXPECT_THAT((*shared_sums)[0].gradients, Pointwise(FloatNear(1e-4f), (*sums)[0].gradients));
    }
  }
  const auto sequence = Create({{"a", t_, Pooling::kNone, ""}});
  EmbeddingOutput out;
  const auto shared = RandomBatch(random, 4, false).ShareEqualBags();
  const absl::Status refused = sequence->Forward(*shared, &out).Wait();
  EXPECT_THAT(std::string(refused.message()), HasSubstr("Expand the batch first"));
}

// The slope of the loss, by raising each weight a little.
TEST_F(VariableEmbeddingsTest, GradientsOfWeightsAreTheSlopeOfTheLoss) {
  const TestSeed seed(6);
  Random random(seed.value());
  const auto embeddings = Create({{"a", t_, Pooling::kSum, ""},
                                  {"b", t_, Pooling::kMean, ""},
                                  {"a", t_, Pooling::kMean, "x"}});
  const JaggedBatch uniform = RandomBatch(random, 6, true);
  std::vector<float> gradients(6 * 12);
  for (float& g : gradients) g = static_cast<float>(random.Uniform(9)) - 4.0f;
  for (const JaggedBatch& batch : {uniform, *uniform.ShareEqualBags()}) {
    const auto loss = [&](const JaggedBatch& of) {
      EmbeddingOutput out;
      EXPECT_TRUE(embeddings->Forward(of, &out).Wait().ok());
      double sum = 0;
      for (size_t i = 0; i < gradients.size(); ++i) {
        sum += static_cast<double>(out.values[i]) * gradients[i];
      }
      return sum;
    };
    std::vector<float> got;
    const OutputGradients of{gradients, {}};
    const Future<absl::Status> done = embeddings->WeightGradients(batch, of, &got);
    ASSERT_TRUE(done.Wait().ok()) << done.Wait();
    ASSERT_EQ(got.size(), batch.ids.size());
    for (size_t i = 0; i < got.size(); ++i) {
      JaggedBatch more = batch, less = batch;
      more.weights[i] += 1.0f / 64;
      less.weights[i] -= 1.0f / 64;
      EXPECT_NEAR(got[i], (loss(more) - loss(less)) * 32, 0.05) << i;
    }
  }
  JaggedBatch bare = uniform;
  bare.weights.clear();
  std::vector<float> none;
  EXPECT_EQ(embeddings->WeightGradients(bare, {gradients, {}}, &none).Wait().code(),
            absl::StatusCode::kInvalidArgument);
}

// The numbers of TorchRec's introduction.
TEST(JaggedTensorTest, ToAndFromDense) {
  const auto tensor = JaggedTensor<uint64_t>::FromDense({{5}, {7, 1}});
  ASSERT_TRUE(tensor.ok());
  EXPECT_THAT(tensor->values, ElementsAre(5, 7, 1));
  EXPECT_THAT(tensor->Offsets(), ElementsAre(0, 1, 3));
  EXPECT_THAT(*tensor->ToDense(), ElementsAre(ElementsAre(5), ElementsAre(7, 1)));
  EXPECT_THAT(*tensor->ToPadded(3, 0), ElementsAre(5, 0, 0, 7, 1, 0));
  EXPECT_THAT(*tensor->ToPadded(3, 9, /*batch_dim=*/1), ElementsAre(5, 7, 9, 1, 9, 9));
  EXPECT_THAT(*tensor->ToPadded(1, 0), ElementsAre(5, 7)) << "cut";
  for (const int batch_dim : {0, 1}) {
    const auto padded = tensor->ToPadded(2, 0, batch_dim);
    const auto back = JaggedTensor<uint64_t>::FromPadded(*padded, 2, tensor->lengths, 1, batch_dim);
    ASSERT_TRUE(back.ok()) << back.status();
    EXPECT_EQ(back->values, tensor->values);
  }
  const auto rows = JaggedTensor<float>::FromDense({{1, 2, 3, 4}, {}, {5, 6}}, 2);
  EXPECT_THAT(rows->lengths, ElementsAre(2, 0, 1));
  EXPECT_THAT(*rows->ToPadded(2, 0, 1), ElementsAre(1, 2, 0, 0, 5, 6, 3, 4, 0, 0, 0, 0));
  EXPECT_FALSE(JaggedTensor<float>::FromDense({{1, 2, 3}}, 2).ok());
  EXPECT_FALSE(tensor->ToPadded(2, 0, 2).ok());
  EXPECT_THAT(std::string(JaggedTensor<float>::FromPadded({{1, 2}}, 2, {3}).status().message()),
              HasSubstr("the length of sample 0 is 3"));
}

TEST(JaggedTensorTest, FeaturesOfABatch) {
  const auto product = *JaggedTensor<uint64_t>::FromDense({{1, 2, 1}, {5}});
  const auto user = *JaggedTensor<uint64_t>::FromDense({{2, 3}, {4, 1}});
  const auto batch = JaggedBatch::FromFeatures({"product", "user"}, {{product, user}});
  ASSERT_TRUE(batch.ok()) << batch.status();
  EXPECT_THAT(batch->lengths, ElementsAre(3, 1, 2, 2));
  EXPECT_THAT(batch->ids, ElementsAre(1, 2, 1, 5, 2, 3, 4, 1));
  EXPECT_EQ(batch->Feature("user")->values, user.values);
  EXPECT_EQ(batch->Feature("user")->lengths, user.lengths);
  EXPECT_EQ(batch->Feature("usr").status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(batch->FeatureWeights("user").status().code(), absl::StatusCode::kFailedPrecondition);
  const auto weights = *JaggedTensor<float>::FromDense({{.5f, .25f}, {1, 2}});
  const auto weighted = JaggedBatch::FromFeatures({"user"}, {{user}}, {{weights}});
  ASSERT_TRUE(weighted.ok()) << weighted.status();
  EXPECT_EQ(weighted->FeatureWeights("user")->values, weights.values);
  const auto uneven = *JaggedTensor<uint64_t>::FromDense({{1}});
  EXPECT_FALSE(JaggedBatch::FromFeatures({"product", "user"}, {{product, uneven}}).ok());
}

}  // namespace variable_batch_test
}  // namespace hotbed
