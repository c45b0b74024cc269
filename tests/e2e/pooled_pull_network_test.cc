// Pooled pulls over the network, with real daemons and the real client. Sums equal those of the
// rows up to rounding, and maxima to the bit, in tables of whole rows and of slices (which have
// other ranges, so that their sums are rounded differently). A kill -9 changes no bit.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/random.h"
#include "hotbed/client.h"
#include "tests/common/test_seed.h"
#include "tests/e2e/cluster_fixture.h"

namespace hotbed {
namespace pooled_pull_network_test {

using PooledPullNetworkTest = ClusterTest;

struct Bags {
  std::vector<uint64_t> ids;
  std::vector<uint32_t> lengths;
  std::vector<float> weights;
};

Bags DrawBags(Random& random, uint64_t rows) {
  Bags bags;
  for (int b = 0; b < 200; ++b) {
    bags.lengths.push_back(static_cast<uint32_t>(random.Uniform(25)));
    for (uint32_t k = bags.lengths.back(); k > 0; --k) {
      bags.ids.push_back(random.Uniform(rows));
      bags.weights.push_back(static_cast<float>(random.Double() + 0.1));
    }
  }
  return bags;
}

struct Pooled {
  std::vector<float> rows;
  std::vector<uint32_t> arg_max;
};

Pooled Pull(Client* client, const Table* table, const Bags& bags, BagPooling pooling,
            bool weighted) {
  Pooled out;
  out.rows.assign(bags.lengths.size() * table->dim(), -7.0f);
  out.arg_max.assign(out.rows.size(), 7);
  PullFeature feature;
  feature.table = table;
  feature.ids = bags.ids;
  feature.rows = out.rows.data();
  feature.bag_lengths = bags.lengths;
  feature.pooling = pooling;
  if (weighted) feature.id_weights = bags.weights.data();
  if (pooling == BagPooling::kMax) feature.arg_max = out.arg_max.data();
  const absl::Status status = client->Pull({&feature, 1}).Wait();
  EXPECT_TRUE(status.ok()) << status;
  return out;
}

// Computed from the rows in double.
void Check(const Bags& bags, const std::vector<float>& rows, uint32_t dim, BagPooling pooling,
           bool weighted, const Pooled& pooled) {
  size_t first = 0;
  for (size_t b = 0; b < bags.lengths.size(); first += bags.lengths[b++]) {
    for (uint32_t c = 0; c < dim; ++c) {
      double sum = 0, weight = 0, magnitude = 0;
      uint32_t arg = kArgMaxOfNothing;
      for (uint32_t k = 0; k < bags.lengths[b]; ++k) {
        const double value = rows[(first + k) * dim + c];
        const double w = weighted ? bags.weights[first + k] : 1.0;
        sum += w * value;
        magnitude += std::abs(w * value);
        weight += w;
        if (arg == kArgMaxOfNothing || rows[(first + arg) * dim + c] < value) arg = k;
      }
      const float got = pooled.rows[b * dim + c];
      if (pooling == BagPooling::kMax) {
        const float want = arg == kArgMaxOfNothing ? 0.0f : rows[(first + arg) * dim + c];
        ASSERT_EQ(got, want) << "bag " << b << " column " << c;
        ASSERT_EQ(pooled.arg_max[b * dim + c], arg) << "bag " << b << " column " << c;
        continue;
      }
      const double divisor = pooling == BagPooling::kMean && bags.lengths[b] > 0 ? weight : 1.0;
      ASSERT_NEAR(got, sum / divisor, 2e-6 * magnitude / divisor) << "bag " << b;
    }
  }
}

TEST_F(PooledPullNetworkTest, BagsAreThoseOfTheirRowsOverAKill) {
  const TestSeed seed(20261126);
  Random random(seed.value());
  constexpr uint32_t kDim = 37;
  const std::unique_ptr<Client> client = Connect();
  std::vector<const Table*> tables;
  for (const uint32_t slices : {1u, 2u, 4u}) {
    const std::string name = absl::StrCat("pooled-", slices);
    tables.push_back(Create(client.get(), Options(name, kDim, OptimizerKind::kAdagrad, slices)));
    ASSERT_NE(tables.back(), nullptr);
  }
  for (uint64_t step = 1; step <= 4; ++step) {
    const std::vector<Feature> batch = Batch(random, kDim);
    std::vector<PushFeature> features;
    for (const Table* table : tables) {
      for (const Feature& f : batch) features.push_back({table, f.ids, f.gradients.data()});
    }
    ASSERT_TRUE(client->Push(step, features).Wait().status.ok());
  }
  const Bags bags = DrawBags(random, 9000);
  const std::vector<float> rows = Rows(client.get(), tables[0], bags.ids);
  std::vector<std::vector<float>> before;
  for (int life = 0; life < 2; ++life) {
    size_t n = 0;
    for (const BagPooling pooling : {BagPooling::kSum, BagPooling::kMean, BagPooling::kMax}) {
      for (const bool weighted : {false, true}) {
        if (weighted && pooling == BagPooling::kMax) continue;
        for (const Table* table : tables) {
          SCOPED_TRACE(table->name());
          const Pooled pooled = Pull(client.get(), table, bags, pooling, weighted);
          Check(bags, rows, kDim, pooling, weighted, pooled);
          if (life == 0) {
            before.push_back(pooled.rows);
          } else {
            EXPECT_EQ(Different(pooled.rows, before[n++]), 0u);
          }
        }
      }
    }
    if (life == 0) KillAndRestart(2);
  }
}

}  // namespace pooled_pull_network_test
}  // namespace hotbed
