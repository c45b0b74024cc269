// Embeddings against the fake cluster: forward and gradients of random batches against the dumb
// twin, and what is refused whole.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "common/random.h"
#include "hotbed/client.h"
#include "hotbed/embedding.h"
#include "tests/client/embedding_twin.h"
#include "tests/client/fake_cluster.h"
#include "tests/common/test_seed.h"

namespace hotbed {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using Outcome = PushResult::Outcome;

v1::TableSpec Spec(const std::string& name, uint64_t rows, uint32_t dim) {
  v1::TableSpec spec;
  spec.set_name(name);
  spec.set_rows(rows);
  spec.set_dim(dim);
  return spec;
}

class EmbeddingsTest : public testing::Test {
 protected:
  void Connect(ClientOptions options = {}) {
    options.deadline = absl::Seconds(20);
    options.session_name = "embeddings-test";
    auto client = Client::Connect(cluster_.target(), options);
    ASSERT_TRUE(client.ok()) << client.status();
    client_ = *std::move(client);
  }
  const Table* Open(const std::string& name) {
    auto table = client_->OpenTable(name);
    EXPECT_TRUE(table.ok()) << table.status();
    return table.ok() ? *table : nullptr;
  }
  std::unique_ptr<Embeddings> Create(std::vector<EmbeddingFeature> features,
                                     const EmbeddingOptions& options = {}) {
    auto embeddings = Embeddings::Create(client_.get(), std::move(features), options);
    EXPECT_TRUE(embeddings.ok()) << embeddings.status();
    return *std::move(embeddings);
  }
  // Rows of the table become `value(id, column)` for ids [0, count).
  void Fill(const Table* table, uint64_t step, uint64_t count,
            const std::function<float(uint64_t, uint32_t)>& value) {
    std::vector<uint64_t> ids;
    std::vector<float> gradients;
    for (uint64_t id = 0; id < count; ++id) {
      ids.push_back(id);
      for (uint32_t d = 0; d < table->dim(); ++d) gradients.push_back(-value(id, d));
    }
    const PushFeature feature{table, ids, gradients.data()};
    const PushResult pushed = client_->Push(step, {&feature, 1}).Wait();
    ASSERT_EQ(pushed.outcome, Outcome::kApplied) << pushed.status;
  }
  TwinRow RowOf(const Table* table, uint64_t id) const {
    const std::vector<float> row = cluster_.Row(table->options().id, id);
    return {row.begin(), row.end()};
  }

  FakeCluster cluster_{3};
  std::unique_ptr<Client> client_;
};

// The numbers of TorchRec's introduction: grad -1 an element, SGD.
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

// --- random batches against the twin
class EmbeddingsRandomTest : public EmbeddingsTest {
 protected:
  void MakeTables() {
    for (int t = 0; t < 4; ++t) {
      v1::TableSpec spec = Spec("t" + std::to_string(t), 20 + 20 * t, 1 + 5 * t + t % 2);
      spec.set_hashed(t == 3);
      if (t == 1) spec.set_bounds_mode(v1::BOUNDS_ZERO);
      if (t == 2) spec.set_bounds_mode(v1::BOUNDS_MODULO);
      if (t >= 1) spec.set_padding_id(t == 2 ? ~uint64_t{0} : 3);
      spec.set_column_slices(t == 2 ? 3 : 1);
      cluster_.AddTable(spec, 1 + 2 * t);
    }
    Connect();
    for (int t = 0; t < 4; ++t) {
      tables_.push_back(Open("t" + std::to_string(t)));
      // The upper half of the ids has never been pushed.
      Fill(tables_.back(), 1, tables_.back()->options().rows / 2,
           [&](uint64_t, uint32_t) { return static_cast<float>(random_.Double() - 0.5); });
    }
  }
  JaggedBatch RandomBatch(bool weighted, bool bounds) {
    JaggedBatch batch;
    batch.batch_size = static_cast<uint32_t>(random_.Uniform(12));
    for (int k = 0; k < 3; ++k) {
      batch.keys.push_back("k" + std::to_string(k));
      for (uint32_t s = 0; s < batch.batch_size; ++s) {
        batch.lengths.push_back(static_cast<uint32_t>(
            random_.OneIn(3) ? 0 : random_.Uniform(random_.OneIn(40) ? 1200 : 8)));
        const bool one_id = batch.lengths.back() > 500;
        for (uint32_t i = 0; i < batch.lengths.back(); ++i) {
          batch.ids.push_back(one_id ? 5 : random_.Uniform(20));
          // Both sides of the bounds; -1 is one table's padding id.
          if (bounds && random_.OneIn(5)) batch.ids.back() = random_.Uniform(140) - 30;
          if (weighted) batch.weights.push_back(static_cast<float>(random_.Double() + 0.1));
        }
      }
    }
    return batch;
  }
  std::vector<EmbeddingFeature> RandomFeatures(bool weighted, bool bounds) {
    std::vector<EmbeddingFeature> features(1 + random_.Uniform(6));
    for (size_t f = 0; f < features.size(); ++f) {
      features[f] = {"k" + std::to_string(random_.Uniform(3)),
                     tables_[bounds ? 1 + random_.Uniform(3) : random_.Uniform(4)],
                     static_cast<Pooling>(random_.Uniform(weighted ? 2 : 4)),
                     "out" + std::to_string(f)};
    }
    return features;
  }
  void ExpectForward(const std::vector<EmbeddingFeature>& features, const JaggedBatch& batch,
                     const EmbeddingOutput& out, std::vector<TwinOutput>* twins) {
    uint64_t zeroed = 0;
    uint32_t column = 0;
    for (size_t f = 0; f < features.size(); ++f) {
      const TwinOutput twin = ForwardTwin(
          features[f], batch, [this](const Table* t, uint64_t id) { return RowOf(t, id); });
      zeroed += twin.zeroed;
      const uint32_t dim = features[f].table->dim();
      EXPECT_EQ(out.features[f].name, features[f].output);
      EXPECT_EQ(out.features[f].dim, dim);
      if (features[f].pooling == Pooling::kNone) {
        ASSERT_EQ(out.features[f].sequence.size(), twin.sequence.size());
        for (size_t i = 0; i < twin.sequence.size(); ++i) {
          ASSERT_EQ(out.features[f].sequence[i], twin.sequence[i]) << f << " " << i;
        }
      } else {
        ASSERT_EQ(out.features[f].column, column);
        for (uint32_t s = 0; s < batch.batch_size; ++s) {
          for (uint32_t d = 0; d < dim; ++d) {
            const double want = twin.values[s * dim + d];
            ASSERT_NEAR(out.values[s * out.columns + column + d], want,
                        1e-6 * (1 + 10 * std::fabs(want)))
                << "feature " << f << " sample " << s << " column " << d;
          }
        }
        if (features[f].pooling == Pooling::kMax) {
          ASSERT_EQ(out.arg_max[f], twin.arg_max);
        }
        column += dim;
      }
      twins->push_back(twin);
    }
    EXPECT_EQ(out.columns, column);
    EXPECT_EQ(out.out_of_bounds, zeroed);
  }

  const TestSeed seed_{41};
  Random random_{seed_.value()};
  std::vector<const Table*> tables_;
};

TEST_F(EmbeddingsRandomTest, ForwardAndGradientsMatchTheirTwin) {
  MakeTables();
  for (uint64_t round = 2; round < 80; ++round) {
    SCOPED_TRACE("round " + std::to_string(round));
    const bool weighted = random_.OneIn(2);
    const bool bounds = random_.OneIn(2);
    const std::vector<EmbeddingFeature> features = RandomFeatures(weighted, bounds);
    const JaggedBatch batch = RandomBatch(weighted, bounds);
    auto embeddings = Create(features);
    EmbeddingOutput out;
    const absl::Status status = embeddings->Forward(batch, &out).Wait();
    ASSERT_TRUE(status.ok()) << status;
    std::vector<TwinOutput> twins;
    ASSERT_NO_FATAL_FAILURE(ExpectForward(features, batch, out, &twins));

    std::vector<float> values(out.values.size());
    for (float& g : values) g = static_cast<float>(random_.Double() - 0.5);
    OutputGradients gradients{values, {}};
    std::vector<std::vector<float>> sequences(features.size());
    TwinGradients want;
    uint32_t column = 0;
    for (size_t f = 0; f < features.size(); ++f) {
      const uint32_t dim = features[f].table->dim();
      sequences[f].resize(out.features[f].sequence.size());
      for (float& g : sequences[f]) g = static_cast<float>(random_.Double() - 0.5);
      gradients.sequences.push_back(sequences[f]);
      const bool sequence = features[f].pooling == Pooling::kNone;
      BackwardTwin(
          features[f], batch, twins[f].arg_max,
          [&](uint32_t s, uint64_t at, uint32_t d) -> double {
            return sequence ? sequences[f][at * dim + d] : values[s * out.columns + column + d];
          },
          &want);
      if (!sequence) column += dim;
    }
    const auto got = embeddings->Gradients(batch, out, gradients);
    ASSERT_TRUE(got.ok()) << got.status();
    ASSERT_EQ(got->size(), want.size());
    std::vector<std::vector<std::vector<float>>> before;
    for (const SparseGradient& gradient : *got) {
      const TwinGradient& twin = want[gradient.table];
      ASSERT_EQ(gradient.ids, twin.order) << "in the order of first appearance";
      const uint32_t dim = gradient.table->dim();
      before.emplace_back();
      for (size_t i = 0; i < gradient.ids.size(); ++i) {
        before.back().push_back(cluster_.Row(gradient.table->options().id, gradient.ids[i]));
        for (uint32_t d = 0; d < dim; ++d) {
          const double sum = twin.sums.at(gradient.ids[i])[d];
          ASSERT_NEAR(gradient.gradients[i * dim + d], sum, 1e-5 * (1 + std::fabs(sum)));
        }
      }
    }
    // What is pushed is to the bit what Gradients says.
    const PushResult pushed = embeddings->Backward(round, batch, out, gradients).Wait();
    ASSERT_EQ(pushed.outcome, Outcome::kApplied) << pushed.status;
    for (size_t g = 0; g < got->size(); ++g) {
      const SparseGradient& gradient = (*got)[g];
      const uint32_t dim = gradient.table->dim();
      for (size_t i = 0; i < gradient.ids.size(); ++i) {
        const std::vector<float> after =
            cluster_.Row(gradient.table->options().id, gradient.ids[i]);
        for (uint32_t d = 0; d < dim; ++d) {
          ASSERT_EQ(after[d], before[g][i][d] - gradient.gradients[i * dim + d]);
        }
      }
    }
  }
}

TEST_F(EmbeddingsRandomTest, OutputsAreTheSameBitsForEveryNumberOfShards) {
  for (uint32_t shards : {1u, 3u, 24u}) {
    v1::TableSpec spec = Spec("s" + std::to_string(shards), 200, 17);
    spec.set_column_slices(shards == 3 ? 4 : 1);
    cluster_.AddTable(spec, shards);
  }
  Connect();
  std::vector<float> rows(200 * 17);
  for (float& x : rows) x = static_cast<float>(random_.Double() - 0.5);
  std::vector<std::unique_ptr<Embeddings>> embeddings;
  EmbeddingOptions here;
  here.pooling_at = PoolingPlace::kClient;
  for (uint32_t shards : {1u, 3u, 24u}) {
    const Table* const table = Open("s" + std::to_string(shards));
    Fill(table, 1, 200, [&](uint64_t id, uint32_t d) { return rows[id * 17 + d]; });
    embeddings.push_back(
        Create({{"k0", table, Pooling::kSum, "a"}, {"k1", table, Pooling::kMean, "b"}}, here));
  }
  for (uint64_t round = 2; round < 12; ++round) {
    const JaggedBatch batch = RandomBatch(random_.OneIn(2), false);
    std::vector<EmbeddingOutput> outs(3);
    for (size_t e = 0; e < 3; ++e) {
      ASSERT_TRUE(embeddings[e]->Forward(batch, &outs[e]).Wait().ok());
      EXPECT_EQ(outs[e].values, outs[0].values);
      ASSERT_EQ(embeddings[e]->Backward(round, batch, outs[e], {outs[e].values, {}}).Wait().outcome,
                Outcome::kApplied);
    }
    for (uint64_t id = 0; id < 20; ++id) {
      EXPECT_EQ(cluster_.Row(2, id), cluster_.Row(1, id));
      EXPECT_EQ(cluster_.Row(3, id), cluster_.Row(1, id));
    }
  }
}

// --- what is refused
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

}  // namespace
}  // namespace hotbed
