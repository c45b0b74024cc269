// The fake cluster with a client and Embeddings over it.
#ifndef HOTBED_TESTS_CLIENT_EMBEDDINGS_FIXTURE_H_
#define HOTBED_TESTS_CLIENT_EMBEDDINGS_FIXTURE_H_

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "hotbed/client.h"
#include "hotbed/embedding.h"
#include "tests/client/embedding_twin.h"
#include "tests/client/fake_cluster.h"

namespace hotbed {

inline v1::TableSpec Spec(const std::string& name, uint64_t rows, uint32_t dim) {
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
    ASSERT_EQ(pushed.outcome, PushResult::Outcome::kApplied) << pushed.status;
  }
  TwinRow RowOf(const Table* table, uint64_t id) const {
    const std::vector<float> row = cluster_.Row(table->options().id, id);
    return {row.begin(), row.end()};
  }

  FakeCluster cluster_{3};
  std::unique_ptr<Client> client_;
};

}  // namespace hotbed

#endif  // HOTBED_TESTS_CLIENT_EMBEDDINGS_FIXTURE_H_
