// Replicas of shards: they are equal to the bit, nothing acknowledged is lost, nothing is applied
// twice, whatever the network, the disks and the servers do.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <numeric>
#include <thread>
#include <utility>
#include <vector>

#include "tests/shard/replica_pushes.h"

namespace hotbed {
namespace replica_test {

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

// A client reads its own push, also if another server has taken over in between.
TEST_F(ReplicaTest, ANewPrimaryAnswersNoPullBeforeItHasAppliedWhatItInherited) {
  ShardHostOptions options = ReplicaCluster::DefaultOptions();
  options.hot_bytes = 16 << 10;  // so that applying takes a while
  Begin(Table(OptimizerKind::kAdam), {1, 2}, 2, options);
  Push(5);
  cluster_->network()->SetDamage([](ReplicaMessage* message) {
    if (message->kind == ReplicaMessage::Kind::kAppend) message->commit = 0;
  });
  Push(200);
  const ShardId shard = cluster_->shards()[0];
  const Lsn acknowledged = cluster_->host(1)->Status().shards[0].applied_lsn;
  ASSERT_LT(cluster_->host(2)->Status().shards[0].applied_lsn, acknowledged);
  ReplicaCluster::Rows first;
  first.code = SegmentCode::kUnavailable;
  std::atomic<bool> answered{false};
  std::thread puller([&] {
    while (first.code != SegmentCode::kOk) {
      const bool primary = cluster_->record(shard).primary.server == 2;
      first = cluster_->Pull(2, shard, {0, 1});
      if (!primary) first.code = SegmentCode::kUnavailable;  // as a backup it answers with less
    }
    answered.store(true);
  });
  cluster_->Change(shard, /*bump=*/true, [&](ShardRecord* record) {
    record->primary = cluster_->member(2);
    record->members = {record->primary};
  });
  cluster_->SettleUntil([&] { return answered.load(); }, "a pull is answered");
  puller.join();
  EXPECT_GE(first.lsn, acknowledged);
  cluster_->network()->SetDamage(nullptr);
  cluster_->SwitchAndDrop(cluster_->shards()[1], 2, 1);
  cluster_->Settle();
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

// Its shards continued without it, and it learns that before it is asked for a replica again.
TEST_F(ReplicaTest, ABackupThatComesBackNeedsTheEndOfTheLogOnly) {
  ShardHostOptions options = ReplicaCluster::DefaultOptions();
  options.replica_tail_bytes = 16 << 10;
  Begin(Table(OptimizerKind::kAdam), {1, 2}, 2, options);
  Push(40);
  for (const ShardStatus& s : cluster_->host(1)->Status().shards) {
    ASSERT_LT(s.tail_bytes, 6000u) << "meant to have dropped the log's beginning";
  }
  cluster_->Kill(2);
  cluster_->FailOver();
  cluster_->Settle();
  Push(3);
  cluster_->Start(2);
  EXPECT_EQ(cluster_->host(2)->Held().size(), kShards);
  for (const ShardId shard : cluster_->shards()) {
    EXPECT_EQ(cluster_->Pull(2, shard, {0}).code, SegmentCode::kWrongEpoch);
    cluster_->AddLearner(shard, 2);
    cluster_->SettleUntil([&] { return cluster_->IsMember(shard, 2); }, "it is back");
  }
  cluster_->Settle();
  EXPECT_EQ(cluster_->host(1)->Status().numbers["snapshots_sent"], 0u);
  Push(5);
  ExpectAsAlone();
}

TEST_F(ReplicaTest, AReplicaThatNobodyAsksForAgainIsDeletedInTheEnd) {
  ShardHostOptions options = ReplicaCluster::DefaultOptions();
  options.keep_left_ms = 1;
  Begin(Table(OptimizerKind::kAdam), {1, 2}, 2, options);
  Push(5);
  cluster_->Kill(2);
  cluster_->FailOver();
  cluster_->Settle();
  cluster_->Start(2);
  cluster_->SettleUntil([&] { return cluster_->host(2)->Held().empty(); }, "it is deleted");
  // The replica comes again where it is wanted after all.
  for (const ShardId shard : cluster_->shards()) {
    cluster_->AddLearner(shard, 2);
    cluster_->SettleUntil([&] { return cluster_->IsMember(shard, 2); }, "it is back");
  }
  cluster_->Settle();
  ExpectAsAlone();
}

// Its log ends with records that are not committed, and so never in its rows.
TEST_F(ReplicaTest, AReplicaThatIsKeptInCaseItReturnsDoesNotHoldUpPushesToOthers) {
  ShardHostOptions options = ReplicaCluster::DefaultOptions();
  options.log_bytes_max = 512 << 10;
  options.keep_left_ms = 3'600'000;
  Begin(Table(OptimizerKind::kSgd), {1, 2}, 2, options);
  Push(5);
  const ShardId kept = cluster_->shards()[0];
  const ShardId busy = cluster_->shards()[1];
  cluster_->network()->SetDamage([kept](ReplicaMessage* message) {
    if (message->kind == ReplicaMessage::Kind::kAppend && message->shard == kept) {
      message->commit = 0;
    }
  });
  Push(5);
  cluster_->SwitchAndDrop(busy, 2, 1);
  cluster_->Change(kept, true, [](ShardRecord* record) { record->members.pop_back(); });
  cluster_->Settle();
  cluster_->network()->SetDamage(nullptr);
  ASSERT_EQ(cluster_->host(2)->Held().size(), kShards) << "it may be asked for again";
  ReplicaClient client(cluster_.get(), 9);
  std::vector<uint64_t> ids(kRows / kShards);
  std::iota(ids.begin(), ids.end(), kRows / kShards);
  const std::vector<float> gradients(ids.size() * kDim, 0.5f);
  const uint64_t bytes = gradients.size() * sizeof(float);
  for (uint64_t step = 1; step * bytes < 16 * options.log_bytes_max; ++step) {
    client.Push(busy, step, ids, gradients);
  }
  cluster_->SettleUntil(
      [&] { return cluster_->host(2)->Status().numbers["log_bytes"] < 2 * options.log_bytes_max; },
      "the log has shrunk");
}

// The record names it only as passed over, and has as many members as are wanted.
TEST_F(ReplicaTest, AServerThatWasPassedOverKeepsItsReplicaAndSaysWhereItsLogEnds) {
  Begin(Table(OptimizerKind::kAdam), {1, 2, 3});
  for (const ShardId shard : cluster_->shards()) {
    cluster_->Change(shard, true, [](ShardRecord* record) { record->members.pop_back(); });
  }
  cluster_->Settle();
  Push(5);
  cluster_->Kill(2);
  cluster_->FailOver();
  cluster_->Settle();
  for (const ShardId shard : cluster_->shards()) {
    cluster_->AddLearner(shard, 3);
    cluster_->SettleUntil([&] { return cluster_->IsMember(shard, 3); }, "it is refilled");
    cluster_->Change(shard, false, [](ShardRecord* record) {
      record->passed_over = {{2, {1, 1}}};
    });
  }
  cluster_->Settle();
  cluster_->Start(2);
  ShardHost* const host = cluster_->host(2);
  EXPECT_EQ(host->Held().size(), kShards);
  for (const bool asked_for : {false, true}) {
    const std::vector<ShardHost::HeldReplica> held = host->HeldReplicas(asked_for);
    ASSERT_EQ(held.size(), kShards);
    for (const ShardHost::HeldReplica& one : held) {
      EXPECT_GE(one.end.lsn, 1u);
      EXPECT_GE(one.end.epoch, 1u);
      EXPECT_FALSE(one.nothing || one.damaged || one.behind);
      EXPECT_EQ(one.member_of, 0u) << "it has restarted";
    }
  }
  EXPECT_NE(host->UndecidedText(), "");
  EXPECT_EQ(cluster_->host(1)->HeldReplicas(true).size(), 0u);
  EXPECT_EQ(cluster_->host(1)->UndecidedText(), "");
  EXPECT_EQ(cluster_->host(1)->HeldReplicas(false)[0].member_of,
            cluster_->record(cluster_->shards()[0]).epoch);
  // For a coordinator that has lost its metadata.
  const ShardHost::Recollection remembered = cluster_->host(1)->Recollect();
  ASSERT_EQ(remembered.records.size(), kShards);
  ASSERT_FALSE(remembered.tables.empty());
  EXPECT_EQ(remembered.tables[0].id, remembered.records[0].shard.table);
  for (const ShardRecord& record : remembered.records) {
    EXPECT_EQ(record.epoch, cluster_->record(record.shard).epoch);
    EXPECT_EQ(record.members, cluster_->record(record.shard).members);
    EXPECT_EQ(record.range.limit, cluster_->record(record.shard).range.limit);
  }
  // It is given up.
  for (const ShardId shard : cluster_->shards()) {
    cluster_->Change(shard, false, [](ShardRecord* record) { record->passed_over.clear(); });
  }
  cluster_->SettleUntil([&] { return host->Held().empty(); }, "it is deleted");
  EXPECT_EQ(host->HeldReplicas(true).size(), 0u);
  ExpectAsAlone();
}

// From PROMISES: a coordinator that has lost its metadata too hears of them from nobody else.
TEST_F(ReplicaTest, AServerThatWasStartedAgainRemembersTheMembersOfItsShards) {
  Begin(Table(OptimizerKind::kAdam), {1, 2}, 2);
  Push(5);
  cluster_->Kill(1);
  cluster_->Kill(2);
  const auto restart = [&](ServerId server, const std::vector<Member>& members) {
    cluster_->Start(server);
    const ShardHost::Recollection& remembered = cluster_->remembered(server);
    EXPECT_EQ(remembered.records.size(), kShards);
    for (const ShardRecord& record : remembered.records) {
      EXPECT_EQ(record.epoch, cluster_->record(record.shard).epoch);
      EXPECT_EQ(record.members, members);
      EXPECT_TRUE(record.active);
    }
  };
  restart(1, {{1, 0}, {2, 0}});
  cluster_->FailOver();
  cluster_->Settle();
  cluster_->Kill(1);
  restart(1, {{1, 0}});  // the epoch without the other one was active
}

// An empty one would pass for what the earlier process held.
TEST_F(ReplicaTest, AServerThatLostItsReplicaOpensNoEmptyOneForAnEarlierProcess) {
  Begin(Table(OptimizerKind::kAdam), {1, 2}, 2);
  Push(5);
  cluster_->Kill(2);
  std::filesystem::remove_all(cluster_->data_dir(2));
  cluster_->Start(2);  // the records still name the process before it
  const std::vector<ShardHost::HeldReplica> held = cluster_->host(2)->HeldReplicas(true);
  ASSERT_EQ(held.size(), kShards);
  for (const ShardHost::HeldReplica& one : held) EXPECT_TRUE(one.nothing);
  EXPECT_TRUE(cluster_->host(2)->HeldReplicas(false).empty());
  EXPECT_TRUE(cluster_->host(2)->Held().empty());
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
  EXPECT_GE(cluster_->host(2)->Status().numbers["replica_messages_refused"], 5u);
  ExpectAsAlone();
}

TEST_F(ReplicaTest, ReadsOfReplicas) {
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

// A fail-over hands a server a thousand shards at once.
TEST_F(ReplicaTest, ManyShardsChangeHandsAtOnce) {
  constexpr uint32_t kMany = 1000;
  TableSpec table = TestTable(1, "many", 100 * kMany, 2, OptimizerKind::kSgd);
  ReplicaCluster cluster({table}, kMany, seed_.value());
  cluster.Start(1);
  cluster.Assign({1});
  int64_t least_ns = ~uint64_t{0} >> 1;
  for (int i = 0; i < 5; ++i) {
    const int64_t begun_ns = Clock::Real()->NowNs();
    cluster.Assign({1});
    least_ns = std::min(least_ns, Clock::Real()->NowNs() - begun_ns);
  }
  std::printf("%u shards: a new epoch learned, promised and active in %.1f ms\n", kMany,
              static_cast<double>(least_ns) / 1e6);
  EXPECT_LT(least_ns, 2'000'000'000);
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
  alone.replicas = 1;
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
  cluster_->ExpectReplicasEqual();
}

}  // namespace replica_test
}  // namespace hotbed
