// A cluster of real daemons for tests of the real client, with tables of random rows. All tests of
// a program share the cluster; each creates tables of its own.
#ifndef HOTBED_TESTS_E2E_CLUSTER_FIXTURE_H_
#define HOTBED_TESTS_E2E_CLUSTER_FIXTURE_H_

#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "cli/cluster/local_cluster.h"
#include "common/random.h"
#include "hotbed/client.h"

namespace hotbed {

constexpr int kServers = 3;

class ClusterTest : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    std::string path = (std::filesystem::temp_directory_path() / "hotbed-slices-XXXXXX").string();
    ASSERT_NE(mkdtemp(path.data()), nullptr);
    dir_ = new std::string(path);
    LocalClusterOptions options;
    options.data_dir = path;
    options.servers = kServers;
    options.port = 0;
    options.host_bytes = 128u << 20;
    options.program_dir = HOTBED_PROGRAM_DIR;
    auto cluster = LocalCluster::Start(options, Clock::Real());
    ASSERT_TRUE(cluster.ok()) << cluster.status();
    cluster_ = cluster->release();
    const absl::Status ready = cluster_->WaitReady(absl::Seconds(60));
    ASSERT_TRUE(ready.ok()) << ready;
  }
  static void TearDownTestSuite() {
    delete cluster_;
    if (dir_ != nullptr) std::filesystem::remove_all(*dir_);
    delete dir_;
  }

  static std::unique_ptr<Client> Connect(const ClientOptions& options = {}) {
    auto client = Client::Connect("hotbed://" + cluster_->coordinator_address(), options);
    EXPECT_TRUE(client.ok()) << client.status();
    return *std::move(client);
  }

  static void KillAndRestart(size_t process) {
    const int restarts = cluster_->processes()[process].restarts;
    cluster_->processes()[process].child->Signal(SIGKILL);
    while (cluster_->processes()[process].restarts == restarts) {
      cluster_->Tick();
      absl::SleepFor(absl::Milliseconds(20));
    }
  }

  static inline std::string* dir_ = nullptr;
  static inline LocalCluster* cluster_ = nullptr;
};

inline TableOptions Options(const std::string& name, uint32_t dim, OptimizerKind kind,
                            uint32_t slices) {
  TableOptions options;
  options.name = name;
  options.rows = 9000;
  options.dim = dim;
  options.optimizer.kind = kind;
  options.optimizer.learning_rate = 0.1f;
  options.initializer = {InitializerKind::kNormal, 0.0f, 0.3f};
  options.seed = 77;  // fixed, so that tables of other names begin with the same rows
  options.column_slices = slices;
  return options;
}

inline const Table* Create(Client* client, const TableOptions& options) {
  const auto table = client->CreateTable(options);
  EXPECT_TRUE(table.ok()) << table.status();
  return table.ok() ? *table : nullptr;
}

inline std::vector<float> Rows(Client* client, const Table* table, const std::vector<uint64_t>& ids,
                               RowType wire = RowType::kFp32,
                               std::vector<uint8_t>* exists = nullptr) {
  std::vector<float> rows(ids.size() * table->dim(), -7.0f);
  PullFeature feature{table, ids, rows.data()};
  if (exists != nullptr) {
    exists->assign(ids.size(), 9);
    feature.exists = exists->data();
  }
  PullOptions options;
  options.wire_type = &wire;
  const absl::Status pulled = client->Pull({&feature, 1}, options).Wait();
  EXPECT_TRUE(pulled.ok()) << pulled;
  return rows;
}

inline std::vector<uint64_t> AllIds(const Table* table) {
  std::vector<uint64_t> ids(table->options().rows);
  for (uint64_t i = 0; i < ids.size(); ++i) ids[i] = i;
  return ids;
}

inline size_t Different(const std::vector<float>& a, const std::vector<float>& b) {
  if (a.size() != b.size()) return std::max(a.size(), b.size());
  size_t different = 0;
  for (size_t i = 0; i < a.size(); ++i) different += std::memcmp(&a[i], &b[i], 4) != 0;
  return different;
}

// Ids with duplicates within and between the features.
struct Feature {
  std::vector<uint64_t> ids;
  std::vector<float> gradients;
};
inline std::vector<Feature> Batch(Random& random, uint32_t dim) {
  std::vector<Feature> features(2);
  for (Feature& f : features) {
    for (int i = 0; i < 300; ++i) {
      const double u = random.Double();
      f.ids.push_back(static_cast<uint64_t>(u * u * 9000));
      for (uint32_t c = 0; c < dim; ++c) {
        f.gradients.push_back(static_cast<float>(random.Double() - 0.5));
      }
    }
  }
  return features;
}

}  // namespace hotbed

#endif  // HOTBED_TESTS_E2E_CLUSTER_FIXTURE_H_
