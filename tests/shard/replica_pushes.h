// A table of random floats on several servers, pushed to while a test does things to them, and what
// one server makes of the same pushes.
#ifndef HOTBED_TESTS_SHARD_REPLICA_PUSHES_H_
#define HOTBED_TESTS_SHARD_REPLICA_PUSHES_H_

#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <thread>
#include <vector>

#include "tests/common/test_seed.h"
#include "tests/shard/replica_fixture.h"

namespace hotbed {

inline constexpr uint32_t kDim = 8;
inline constexpr uint64_t kRows = 400;
inline constexpr uint32_t kShards = 2;

inline TableSpec Table(OptimizerKind optimizer, uint32_t replicas = 2) {
  TableSpec table = TestTable(1, "copied", kRows, kDim, optimizer);
  table.durability = replicas == 1 ? Durability::kLog : Durability::kReplicated;
  table.replicas = replicas;
  return table;
}

struct Batch {
  std::vector<uint64_t> ids;
  std::vector<float> gradients;
};

// Random floats for random rows of one shard; repeats are summed, as the client does.
inline Batch MakeBatch(Random* random, ShardId shard, size_t draws = 12) {
  Batch batch;
  std::map<uint64_t, size_t> where;
  const uint64_t rows = kRows / kShards;
  for (size_t i = 0; i < draws; ++i) {
    const double u = random->Double();
    const uint64_t id =
        shard.index * rows + static_cast<uint64_t>(u * u * static_cast<double>(rows));
    const auto [it, is_new] = where.try_emplace(id, batch.ids.size());
    if (is_new) {
      batch.ids.push_back(id);
      batch.gradients.resize(batch.gradients.size() + kDim, 0.0f);
    }
    for (uint32_t c = 0; c < kDim; ++c) {
      batch.gradients[it->second * kDim + c] += static_cast<float>(random->Double() - 0.5);
    }
  }
  return batch;
}

inline std::vector<uint64_t> AllIds() {
  std::vector<uint64_t> ids;
  for (uint64_t id = 0; id < kRows; ++id) ids.push_back(id);
  return ids;
}

// The rows that the same pushes give on one server.
inline std::vector<float> Twin(const TableSpec& table, uint64_t seed, uint64_t steps) {
  TableSpec alone = table;
  alone.durability = Durability::kLog;
  alone.replicas = 1;
  ReplicaCluster cluster({alone}, kShards, 1);
  cluster.Start(1);
  cluster.Assign({1});
  ReplicaClient client(&cluster, 7);
  Random random(seed);
  for (uint64_t step = 1; step <= steps; ++step) {
    for (const ShardId shard : cluster.shards()) {
      const Batch batch = MakeBatch(&random, shard);
      client.Push(shard, step, batch.ids, batch.gradients);
    }
  }
  return cluster.PullAll(1, AllIds());
}

class ReplicaTest : public testing::Test {
 protected:
  void Begin(const TableSpec& table, std::vector<ServerId> members, int servers = 3,
             const ShardHostOptions& options = ReplicaCluster::DefaultOptions()) {
    table_ = table;
    cluster_ = std::make_unique<ReplicaCluster>(std::vector<TableSpec>{table}, kShards,
                                                seed_.value(), options);
    for (int server = 1; server <= servers; ++server) {
      cluster_->Start(static_cast<ServerId>(server));
    }
    cluster_->Assign(members);
    client_ = std::make_unique<ReplicaClient>(cluster_.get(), 7);
  }
  // The next steps, on the test's thread.
  void Push(uint64_t steps) {
    for (uint64_t i = 0; i < steps; ++i) {
      ++step_;
      for (const ShardId shard : cluster_->shards()) {
        const Batch batch = MakeBatch(&random_, shard);
        client_->Push(shard, step_, batch.ids, batch.gradients);
      }
    }
  }
  // The same while the test does something else.
  void PushWhile(const std::function<void()>& meanwhile) {
    std::atomic<bool> stop{false};
    std::thread pusher([&] {
      // Not as fast as it can: a twin has to do the same again.
      while (!stop.load()) {
        Push(1);
        Clock::Real()->SleepNs(2'000'000);
      }
    });
    meanwhile();
    stop.store(true);
    // What is on its way may need a word of the coordinator yet.
    std::atomic<bool> ended{false};
    std::thread joiner([&] {
      pusher.join();
      ended.store(true);
    });
    cluster_->SettleUntil([&] { return ended.load(); }, "the last push is acknowledged");
    joiner.join();
  }
  void ExpectAsAlone() {
    const std::vector<float> rows = cluster_->PullAll(1, AllIds());
    EXPECT_TRUE(rows == Twin(table_, seed_.value(), step_))
        << "after " << step_ << " steps the rows are not those of one server";
    cluster_->ExpectReplicasEqual();
  }
  bool CaughtUp(ServerId server) {
    const HostStatus status = cluster_->host(server)->Status();
    for (const ShardStatus& s : status.shards) {
      const ServerId primary = cluster_->record(s.shard).primary.server;
      for (const ShardStatus& p : cluster_->host(primary)->Status().shards) {
        if (p.shard == s.shard && p.applied_lsn != s.applied_lsn) return false;
      }
    }
    return status.shards.size() == kShards;
  }

  const TestSeed seed_{20260701};
  Random random_{seed_.value()};
  TableSpec table_;
  std::unique_ptr<ReplicaCluster> cluster_;
  std::unique_ptr<ReplicaClient> client_;
  uint64_t step_ = 0;
};

}  // namespace hotbed

#endif  // HOTBED_TESTS_SHARD_REPLICA_PUSHES_H_
