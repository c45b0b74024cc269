// Copies of shards: they are equal to the bit, nothing acknowledged is lost, nothing is applied
// twice, whatever the network, the disks and the servers do.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/common/test_seed.h"
#include "tests/shard/replica_fixture.h"

namespace hotbed {
namespace {

constexpr uint32_t kDim = 8;
constexpr uint64_t kRows = 400;
constexpr uint32_t kShards = 2;

TableSpec Table(OptimizerKind optimizer, uint32_t copies = 2) {
  TableSpec table = TestTable(1, "copied", kRows, kDim, optimizer);
  table.durability = copies == 1 ? Durability::kLog : Durability::kReplicated;
  table.copies = copies;
  return table;
}

struct Batch {
  std::vector<uint64_t> ids;
  std::vector<float> gradients;
};

// Random floats for random rows of one shard; repeats are summed, as the client does.
Batch MakeBatch(Random* random, ShardId shard, size_t draws = 12) {
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

std::vector<uint64_t> AllIds() {
  std::vector<uint64_t> ids;
  for (uint64_t id = 0; id < kRows; ++id) ids.push_back(id);
  return ids;
}

// What the same pushes make of a table on one server.
std::vector<float> Twin(const TableSpec& table, uint64_t seed, uint64_t steps) {
  TableSpec alone = table;
  alone.durability = Durability::kLog;
  alone.copies = 1;
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
             ShardHostOptions options = ReplicaCluster::DefaultOptions()) {
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
      while (!stop.load()) Push(1);
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
    cluster_->ExpectCopiesEqual();
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

TEST_F(ReplicaTest, BackupsHaveTheSameBits) {
  for (const OptimizerKind kind : {OptimizerKind::kRowwiseAdagrad, OptimizerKind::kAdam}) {
    random_ = Random(seed_.value());
    step_ = 0;
    Begin(Table(kind, 3), {1, 2, 3});
    Push(60);
    for (const ServerId server : {2, 3}) {
      cluster_->SettleUntil([&] { return CaughtUp(server); }, "backups apply what is committed");
    }
    ExpectAsAlone();
  }
}

TEST_F(ReplicaTest, ABadNetworkCostsTimeOnly) {
  Begin(Table(OptimizerKind::kAdam, 3), {1, 2, 3});
  cluster_->network()->CutOneIn(20);
  cluster_->network()->DelayMost(300);
  Push(60);
  cluster_->network()->CutOneIn(0);
  EXPECT_GT(cluster_->network()->cuts(), 10u);
  ExpectAsAlone();
}

TEST_F(ReplicaTest, NothingIsAcknowledgedWithoutTheBackup) {
  Begin(Table(OptimizerKind::kSgd), {1, 2});
  Push(3);
  cluster_->network()->Hold(1, 2, true);
  const ShardId shard = cluster_->shards()[0];
  std::atomic<bool> answered{false};
  std::thread pusher([&] {
    Push(1);
    answered.store(true);
  });
  Clock::Real()->SleepNs(300'000'000);
  EXPECT_FALSE(answered.load());
  cluster_->network()->Hold(1, 2, false);
  pusher.join();
  EXPECT_EQ(cluster_->host(2)->Status().shards[shard.index].read_only, false);
  ExpectAsAlone();
}

TEST_F(ReplicaTest, AMoveWhilePushesRun) {
  for (const OptimizerKind kind : {OptimizerKind::kRowwiseAdagrad, OptimizerKind::kAdam}) {
    for (const uint32_t copies : {1u, 2u}) {
      random_ = Random(seed_.value());
      step_ = 0;
      Begin(Table(kind, copies),
            copies == 1 ? std::vector<ServerId>{1} : std::vector<ServerId>{1, 2});
      Push(30);
      PushWhile([&] {
        for (const ShardId shard : cluster_->shards()) cluster_->Move(shard, 1, 3);
      });
      for (const ShardId shard : cluster_->shards()) {
        EXPECT_EQ(cluster_->record(shard).primary.server, 3u);
      }
      Push(5);
      // The source deletes what it held, and keeps its promise.
      cluster_->SettleUntil([&] { return cluster_->host(1)->Held().empty(); },
                            "the source has deleted its copy");
      ExpectAsAlone();
    }
  }
}

TEST_F(ReplicaTest, ThereAndBackAgain) {
  Begin(Table(OptimizerKind::kAdam, 1), {1}, 2);
  Push(10);
  const ShardId shard = cluster_->shards()[0];
  for (int i = 0; i < 3; ++i) {
    PushWhile([&] { cluster_->Move(shard, 1, 2); });
    PushWhile([&] { cluster_->Move(shard, 2, 1); });
    cluster_->Kill(1);
    cluster_->Start(1);
    cluster_->FailOver();
    cluster_->Settle();
  }
  ExpectAsAlone();
}

TEST_F(ReplicaTest, FailOverLosesNothing) {
  Begin(Table(OptimizerKind::kRowwiseAdagrad), {1, 2});
  Push(20);
  PushWhile([&] {
    cluster_->Kill(1);
    cluster_->FailOver();
    cluster_->Settle();
    // Refilled by another server, then the old one comes back.
    for (const ShardId shard : cluster_->shards()) {
      cluster_->AddLearner(shard, 3);
      cluster_->SettleUntil([&] { return cluster_->IsMember(shard, 3); }, "it has joined");
    }
    cluster_->Settle();
    cluster_->Start(1);
  });
  Push(5);
  ExpectAsAlone();
}

TEST_F(ReplicaTest, AKilledBackupRejoins) {
  Begin(Table(OptimizerKind::kAdam), {1, 2}, 2);
  Push(20);
  for (int i = 0; i < 3; ++i) {
    PushWhile([&] {
      cluster_->Kill(2);
      cluster_->FailOver();
      cluster_->Settle();
      cluster_->Start(2);
      for (const ShardId shard : cluster_->shards()) {
        cluster_->AddLearner(shard, 2);
        cluster_->SettleUntil([&] { return cluster_->IsMember(shard, 2); }, "it is back");
      }
      cluster_->Settle();
    });
  }
  Push(5);
  ExpectAsAlone();
}

TEST_F(ReplicaTest, AllKilledAtOnceGoOnFromTheirLogs) {
  Begin(Table(OptimizerKind::kRowwiseAdagrad), {1, 2}, 2);
  for (int i = 0; i < 3; ++i) {
    Push(15);
    cluster_->Kill(1);
    cluster_->Kill(2);
    cluster_->Start(static_cast<ServerId>(1 + i % 2));
    cluster_->FailOver();
    cluster_->Settle();
    cluster_->Start(static_cast<ServerId>(2 - i % 2));
    for (const ShardId shard : cluster_->shards()) {
      const ServerId other = 3 - cluster_->record(shard).primary.server;
      cluster_->AddLearner(shard, other);
      cluster_->SettleUntil([&] { return cluster_->IsMember(shard, other); }, "it is back");
    }
    cluster_->Settle();
  }
  Push(5);
  ExpectAsAlone();
}

TEST_F(ReplicaTest, TinyBudgetsSpillAndCopyAllTheSame) {
  ShardHostOptions options = ReplicaCluster::DefaultOptions();
  options.hot_bytes = 16 << 10;
  options.replica_tail_bytes = 8 << 10;
  Begin(Table(OptimizerKind::kAdam), {1, 2}, 3, options);
  Push(30);
  PushWhile([&] {
    for (const ShardId shard : cluster_->shards()) cluster_->Move(shard, 1, 3);
  });
  cluster_->Kill(2);
  cluster_->FailOver();
  cluster_->Settle();
  Push(5);
  uint64_t evictions = 0;
  for (const ShardStatus& s : cluster_->host(3)->Status().shards) evictions += s.evictions;
  EXPECT_GT(evictions, 0u) << "meant to be short of room";
  EXPECT_LE(cluster_->host(3)->Status().replica_tail_bytes, 3 * options.replica_tail_bytes);
  ExpectAsAlone();
}

TEST_F(ReplicaTest, ACopyIsCutAtEveryMessage) {
  Begin(Table(OptimizerKind::kAdam, 1), {1}, 2);
  Push(20);
  const ShardId shard = cluster_->shards()[0];
  // The n-th message of the copy is lost, with its connection; then all go through.
  for (int nth = 1; nth <= 5; ++nth) {
    std::atomic<int> seen{0};
    cluster_->network()->SetFault([&seen, nth](const Member&, const ReplicaMessage& message) {
      using Kind = ReplicaMessage::Kind;
      const bool of_copy =
          message.kind == Kind::kSnapshotBegin || message.kind == Kind::kSnapshotRows ||
          message.kind == Kind::kSnapshotEnd || message.kind == Kind::kSnapshotReply;
      return of_copy && ++seen == nth;
    });
    const ServerId from = cluster_->record(shard).primary.server;
    PushWhile([&] { cluster_->Move(shard, from, 3 - from); });
    cluster_->network()->SetFault(nullptr);
    EXPECT_GE(seen.load(), nth) << "the copy had fewer messages";
  }
  ExpectAsAlone();
}

TEST_F(ReplicaTest, ADamagedBlockIsNeverWritten) {
  Begin(Table(OptimizerKind::kAdam, 1), {1}, 2);
  Push(20);
  std::atomic<int> damaged{0};
  cluster_->network()->SetDamage([&damaged](ReplicaMessage* message) {
    if (message->kind != ReplicaMessage::Kind::kSnapshotRows || ++damaged > 2) return;
    auto* bytes = const_cast<uint8_t*>(message->body.bytes.data());
    bytes[message->body.bytes.size() / 2] ^= 4;
  });
  const ShardId shard = cluster_->shards()[0];
  PushWhile([&] { cluster_->Move(shard, 1, 2); });
  cluster_->network()->SetDamage(nullptr);
  EXPECT_GE(damaged.load(), 3) << "two damaged, then a whole one";
  EXPECT_GE(cluster_->host(1)->Status().copies_failed, 2u);
  ExpectAsAlone();
}

TEST_F(ReplicaTest, ADamagedRecordIsAskedForAgain) {
  Begin(Table(OptimizerKind::kRowwiseAdagrad), {1, 2}, 2);
  std::atomic<int> damaged{0};
  Random random(seed_.value());
  cluster_->network()->SetDamage([&](ReplicaMessage* message) {
    if (message->records.empty() || random.Uniform(4) != 0) return;
    auto& record = message->records[random.Uniform(message->records.size())];
    const_cast<uint8_t*>(record.bytes.data())[random.Uniform(record.bytes.size())] ^= 1;
    ++damaged;
  });
  Push(40);
  cluster_->network()->SetDamage(nullptr);
  EXPECT_GT(damaged.load(), 5);
  EXPECT_GE(cluster_->host(2)->Status().replica_messages_refused, 5u);
  ExpectAsAlone();
}

TEST_F(ReplicaTest, ReadsOfCopies) {
  Begin(Table(OptimizerKind::kSgd), {1, 2}, 3);
  Push(5);
  const ShardId shard = cluster_->shards()[0];
  const std::vector<uint64_t> ids = {0, 1, 2, 3};
  const Batch batch = MakeBatch(&random_, shard);
  const Lsn lsn = client_->Push(shard, ++step_, batch.ids, batch.gradients);
  // A backup has what was acknowledged, at once or in a moment.
  const auto at_primary = cluster_->Pull(1, shard, ids);
  const auto at_backup = cluster_->Pull(2, shard, ids, lsn);
  EXPECT_EQ(at_backup.code, SegmentCode::kOk);
  EXPECT_EQ(at_backup.rows, at_primary.rows);
  EXPECT_EQ(cluster_->Pull(2, shard, ids, lsn + 1000).code, SegmentCode::kUnavailable);
  EXPECT_EQ(cluster_->Pull(2, shard, ids, 0, /*strict=*/true).code, SegmentCode::kWrongEpoch);
  EXPECT_EQ(cluster_->Pull(1, shard, ids, 0, /*strict=*/true).code, SegmentCode::kOk);
  EXPECT_EQ(cluster_->Pull(3, shard, ids).code, SegmentCode::kWrongEpoch);
  // Without a lease the primary cannot know that it still is.
  cluster_->host(1)->SetLease(Clock::Real()->NowNs() - 1);
  EXPECT_EQ(cluster_->Pull(1, shard, ids, 0, /*strict=*/true).code, SegmentCode::kUnavailable);
  EXPECT_EQ(cluster_->Pull(1, shard, ids).code, SegmentCode::kOk);
  // A backup that hears nothing says so to those who care.
  EXPECT_EQ(cluster_->Pull(2, shard, ids, 0, false, 2000).code, SegmentCode::kOk);
  cluster_->network()->Hold(1, 2, true);
  Clock::Real()->SleepNs(600'000'000);
  EXPECT_EQ(cluster_->Pull(2, shard, ids, 0, false, 100).code, SegmentCode::kUnavailable);
  EXPECT_EQ(cluster_->Pull(2, shard, ids).code, SegmentCode::kOk);
  cluster_->network()->Hold(1, 2, false);
}

TEST_F(ReplicaTest, AFullDiskOfABackupHoldsPushesAndLosesNone) {
  FaultFileSystem files(seed_.value());
  table_ = Table(OptimizerKind::kRowwiseAdagrad);
  cluster_ = std::make_unique<ReplicaCluster>(std::vector<TableSpec>{table_}, kShards, 1);
  client_ = std::make_unique<ReplicaClient>(cluster_.get(), 7);
  cluster_->Start(1);
  cluster_->Start(2, &files);
  cluster_->Assign({1, 2});
  Push(10);
  PushWhile([&] {
    files.SetFreeBytes(2000);
    Clock::Real()->SleepNs(400'000'000);
    EXPECT_TRUE(cluster_->host(2)->Status().read_only);
    files.SetFreeBytes(~uint64_t{0});
  });
  Push(5);
  EXPECT_FALSE(cluster_->host(2)->Status().read_only);
  const std::vector<float> rows = cluster_->PullAll(1, AllIds());
  EXPECT_TRUE(rows == Twin(table_, seed_.value(), step_));
  cluster_->Kill(2);  // before its disk
}

TEST_F(ReplicaTest, StagedStepsAreCopied) {
  TableSpec table = Table(OptimizerKind::kAdam);
  table.consistency = Consistency::kSync;
  Begin(table, {1, 2}, 3);
  std::vector<std::unique_ptr<ReplicaClient>> trainers;
  for (SessionId session : {11, 12}) {
    trainers.push_back(std::make_unique<ReplicaClient>(cluster_.get(), session));
  }
  TableSpec alone = table;
  alone.durability = Durability::kLog;
  alone.copies = 1;
  ReplicaCluster twin({alone}, kShards, 1);
  twin.Start(1);
  twin.Assign({1});
  std::vector<std::unique_ptr<ReplicaClient>> twins;
  for (SessionId session : {11, 12}) {
    twins.push_back(std::make_unique<ReplicaClient>(&twin, session));
  }
  const auto commit = [](ReplicaClient* client, ShardId shard, uint64_t step) {
    for (int i = 0; i < 4000; ++i) {
      if (client->CommitStep(shard, step, {11, 12}).code == SegmentCode::kOk) return;
      Clock::Real()->SleepNs(1'000'000);
    }
    ADD_FAILURE() << "step " << step << " is not committed";
  };
  for (uint64_t step = 1; step <= 20; ++step) {
    for (const ShardId shard : cluster_->shards()) {
      for (size_t t = 0; t < trainers.size(); ++t) {
        const Batch batch = MakeBatch(&random_, shard);
        trainers[t]->Push(shard, step, batch.ids, batch.gradients);
        twins[t]->Push(shard, step, batch.ids, batch.gradients);
      }
    }
    // In the middle of steps: staged pushes go over with the log, or with all rows.
    if (step == 7) cluster_->Move(cluster_->shards()[0], 1, 3);
    if (step == 14) {
      cluster_->Kill(2);
      cluster_->FailOver();
      cluster_->Settle();
    }
    for (const ShardId shard : cluster_->shards()) {
      commit(trainers[0].get(), shard, step);
      commit(twins[0].get(), shard, step);
    }
  }
  EXPECT_TRUE(cluster_->PullAll(1, AllIds()) == twin.PullAll(1, AllIds()));
  cluster_->ExpectCopiesEqual();
}

}  // namespace
}  // namespace hotbed
