// Embeddings against the fake cluster: forward and gradients of random batches against the dumb
// twin, wherever bags are pooled.
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "client/batch/pooling_place.h"
#include "common/random.h"
#include "tests/client/embeddings_fixture.h"
#include "tests/common/test_seed.h"

namespace hotbed {
namespace embeddings_random_test {

using Outcome = PushResult::Outcome;

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
                     "out" + std::to_string(f), random_.OneIn(3)};
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
            ASSERT_NEAR(out.values[s * out.columns + column + d], want, twin.rounding[s * dim + d])
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

  void ExpectGradient(const SparseGradient& got, const TwinGradient& twin) {
    ASSERT_EQ(got.ids, twin.order) << "in the order of first appearance";
    const uint32_t dim = got.table->dim();
    for (size_t i = 0; i < got.ids.size(); ++i) {
      const uint64_t id = got.ids[i];
      for (uint32_t d = 0; d < dim; ++d) {
        ASSERT_NEAR(got.gradients[i * dim + d], twin.sums.at(id)[d],
                    RoundingOf(twin.magnitudes.at(id)[d], twin.terms.at(id)));
      }
    }
  }
  // By gradient, the present rows of its ids, one after another.
  std::vector<std::vector<float>> RowsOf(const std::vector<SparseGradient>& gradients) const {
    std::vector<std::vector<float>> rows(gradients.size());
    for (size_t g = 0; g < gradients.size(); ++g) {
      for (uint64_t id : gradients[g].ids) {
        const std::vector<float> row = cluster_.Row(gradients[g].table->options().id, id);
        rows[g].insert(rows[g].end(), row.begin(), row.end());
      }
    }
    return rows;
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
    EmbeddingOptions options;
    options.pooling_at = static_cast<PoolingPlace>(random_.Uniform(3));
    auto embeddings = Create(features, options);
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
    for (const SparseGradient& gradient : *got) {
      ASSERT_NO_FATAL_FAILURE(ExpectGradient(gradient, want.at(gradient.table)));
    }
    // Backward pushes exactly the gradients that Gradients returns.
    const std::vector<std::vector<float>> before = RowsOf(*got);
    const PushResult pushed = embeddings->Backward(round, batch, out, gradients).Wait();
    ASSERT_EQ(pushed.outcome, Outcome::kApplied) << pushed.status;
    const std::vector<std::vector<float>> after = RowsOf(*got);
    for (size_t g = 0; g < got->size(); ++g) {
      for (size_t i = 0; i < after[g].size(); ++i) {
        ASSERT_EQ(after[g][i], before[g][i] - (*got)[g].gradients[i]);
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

TEST_F(EmbeddingsRandomTest, BagsArePooledWhereFewerBytesTravel) {
  v1::TableSpec spec = Spec("t", 2000, 32);
  cluster_.AddTable(spec, 2);
  for (const bool repeats : {false, true}) {
    JaggedBatch batch;
    batch.keys = {"k"};
    batch.batch_size = 100;
    batch.lengths.assign(100, 20);
    for (int i = 0; i < 2000; ++i)
      batch.ids.push_back(repeats ? random_.Uniform(30) * 66 : random_.Uniform(2000));
    uint64_t bytes[3];
    for (int place = 0; place < 3; ++place) {
      Connect();
      EmbeddingOptions options;
      options.pooling_at = static_cast<PoolingPlace>(place);
      auto embeddings = Create({{"k", Open("t")}}, options);
      EmbeddingOutput out;
      ASSERT_TRUE(embeddings->Forward(batch, &out).Wait().ok());
      const ClientStats stats = client_->Stats();
      bytes[place] = stats.bytes_sent + stats.bytes_received;
      EXPECT_EQ(stats.ids_asked, 2000);
      client_.reset();
    }
    EXPECT_NEAR(static_cast<double>(bytes[0]), static_cast<double>(std::min(bytes[1], bytes[2])),
                200);
    EXPECT_EQ(bytes[1] < bytes[2], !repeats);
    // The estimate of all bytes except headers.
    PoolingWork work{32, 2, 1, 2000, repeats ? 30u : 1264u, 0, 0, 0};
    work.AddBags(batch.lengths, false);
    const double here = BytesPooledHere(work, RowType::kFp32);
    const double there = BytesPooledOnServers(work, RowType::kFp32);
    EXPECT_NEAR(static_cast<double>(bytes[1]), there, 0.03 * there + 500);
    EXPECT_NEAR(static_cast<double>(bytes[2]), here, 0.05 * here + 500);
  }
}

}  // namespace embeddings_random_test
}  // namespace hotbed
