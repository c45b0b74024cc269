// Embeddings over the network, with real daemons and the real client. The steps of TorchRec's
// introduction with their known losses, and the same training on tables cut by columns and pooled
// anywhere.
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/random.h"
#include "hotbed/embedding.h"
#include "tests/common/test_seed.h"
#include "tests/e2e/cluster_fixture.h"

namespace hotbed {
namespace embeddings_network_test {

class EmbeddingsNetworkTest : public ClusterTest {
 protected:
  static const Table* Create(Client* client, const TableOptions& options) {
    const auto table = client->CreateTable(options);
    EXPECT_TRUE(table.ok()) << table.status();
    return table.ok() ? *table : nullptr;
  }
  static double Loss(const EmbeddingOutput& out) {
    double loss = 0;
    for (float value : out.values) loss += 1 - static_cast<double>(value);
    return loss;
  }
};

// loss = sum of (1 - out): the gradient is -1 everywhere.
TEST_F(EmbeddingsNetworkTest, TheTutorialsLosses) {
  const std::unique_ptr<Client> client = Connect();
  const JaggedBatch batch =
      *JaggedBatch::FromLengths({"product", "user"}, {3, 1, 2, 2}, {1, 2, 1, 5, 2, 3, 4, 1});
  for (const bool sgd : {true, false}) {
    TableOptions options = Options("", 64, OptimizerKind::kSgd, 1);
    options.rows = 4096;
    options.optimizer.learning_rate = 0.5f;
    if (!sgd) {
      options.optimizer.kind = OptimizerKind::kRowwiseAdagrad;
      options.optimizer.learning_rate = 0.02f;
      options.optimizer.epsilon = 0.002f;
    }
    std::vector<EmbeddingFeature> features;
    for (const std::string& key : batch.keys) {
      options.name = absl::StrCat(key, sgd ? "_sgd" : "_adagrad");
      features.push_back({key, Create(client.get(), options)});
    }
    const auto embeddings = Embeddings::Create(client.get(), features);
    ASSERT_TRUE(embeddings.ok()) << embeddings.status();
    EmbeddingOutput out;
    ASSERT_TRUE((*embeddings)->Forward(batch, &out).Wait().ok());
    const double before = Loss(out);
    const std::vector<float> gradients(out.values.size(), -1.0f);
    const PushResult pushed = (*embeddings)->Backward(1, batch, out, {gradients, {}}).Wait();
    ASSERT_TRUE(pushed.status.ok()) << pushed.status;
    ASSERT_TRUE((*embeddings)->Forward(batch, &out).Wait().ok());
    EXPECT_NEAR(before - Loss(out), sgd ? 320.0 : 10.222113216, 2e-5);
  }
}

TEST_F(EmbeddingsNetworkTest, SlicesAndPlacesOfPoolingTrainTheSame) {
  const TestSeed seed(61);
  Random random(seed.value());
  const std::unique_ptr<Client> client = Connect();
  std::vector<std::unique_ptr<Embeddings>> all;
  for (int variant = 0; variant < 4; ++variant) {
    TableOptions options =
        Options(absl::StrCat("emb-", variant), 19, OptimizerKind::kAdam, variant % 2 == 0 ? 1 : 3);
    options.rows = 0;
    options.hashed = true;
    options.has_padding_id = true;
    options.padding_id = 7;
    const Table* const table = Create(client.get(), options);
    EmbeddingOptions place;
    place.pooling_at = variant < 2 ? PoolingPlace::kClient : PoolingPlace::kServer;
    auto embeddings = Embeddings::Create(client.get(),
                                         {{"a", table, Pooling::kSum},
                                          {"b", table, Pooling::kMean},
                                          {"a", table, Pooling::kMax, "a-max"},
                                          {"b", table, Pooling::kNone, "b-rows"}},
                                         place);
    ASSERT_TRUE(embeddings.ok()) << embeddings.status();
    all.push_back(*std::move(embeddings));
  }
  for (uint64_t step = 1; step <= 8; ++step) {
    JaggedBatch batch;
    batch.keys = {"b", "a"};
    batch.batch_size = 40;
    for (int i = 0; i < 80; ++i) {
      batch.lengths.push_back(static_cast<uint32_t>(random.Uniform(12)));
      for (uint32_t k = batch.lengths.back(); k > 0; --k) batch.ids.push_back(random.Uniform(300));
    }
    std::vector<float> values, sequence;
    std::vector<EmbeddingOutput> outs(all.size());
    for (size_t v = 0; v < all.size(); ++v) {
      const absl::Status status = all[v]->Forward(batch, &outs[v]).Wait();
      ASSERT_TRUE(status.ok()) << status;
      ASSERT_EQ(outs[v].values.size(), outs[0].values.size());
      for (size_t i = 0; i < outs[0].values.size(); ++i) {
        ASSERT_NEAR(outs[v].values[i], outs[0].values[i], v == 1 ? 0 : 4e-6) << v << " " << i;
      }
      EXPECT_EQ(outs[v].features[3].sequence, outs[0].features[3].sequence);
      EXPECT_EQ(outs[v].arg_max, outs[0].arg_max);
      if (v == 0) {
        for (size_t i = 0; i < outs[0].values.size(); ++i) {
          values.push_back(static_cast<float>(random.Double() - 0.5));
        }
        for (size_t i = 0; i < outs[0].features[3].sequence.size(); ++i) {
          sequence.push_back(static_cast<float>(random.Double() - 0.5));
        }
      }
      const PushResult pushed =
          all[v]->Backward(step, batch, outs[v], {values, {{}, {}, {}, sequence}}).Wait();
      ASSERT_TRUE(pushed.status.ok()) << pushed.status;
    }
  }
}

}  // namespace embeddings_network_test
}  // namespace hotbed
