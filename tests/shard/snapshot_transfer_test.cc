// Whole shards go to other servers, while pushes run: moves and refills, cut and damaged at every
// place.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/time/clock.h"
#include "server/host/transfer/snapshot_sender.h"
#include "server/tiers/spill/spill_tier.h"
#include "tests/shard/host_fixture.h"
#include "tests/shard/replica_pushes.h"
#include "tests/shard/small_disk.h"

namespace hotbed {
namespace snapshot_transfer_test {

using SnapshotTransferTest = ReplicaTest;

// Another weight in a row of a stopped server's replica, on its disk and with a good checksum: only
// the rolling hash can tell.
void ChangeRow(const ReplicaCluster& cluster, ServerId server, ShardId shard, uint64_t position) {
  const SpillShard format(cluster.table(shard.table), cluster.record(shard).range, shard);
  KvOptions kv;
  kv.wal = false;
  auto tier = SpillTier::Open(cluster.data_dir(server) + "/spill", kv);
  ASSERT_TRUE(tier.ok()) << tier.status();
  std::vector<uint8_t> record(format.record_bytes());
  uint8_t found = 0;
  ASSERT_TRUE((*tier)->Fetch(format, {&position, 1}, record.data(), &found).ok());
  ASSERT_EQ(found, 1) << "row " << position << " was never pushed to";
  record[kSpillHeaderBytes + 2] ^= 1;
  const SpillRows rows{&position, record.data(), 1, SpillTier::LsnOf(record.data())};
  const absl::StatusOr<Lsn> highest = (*tier)->HighestLsn(format);
  ASSERT_TRUE(highest.ok()) << highest.status();
  ASSERT_TRUE((*tier)->Write(format, {&rows, 1}, *highest).ok());
  ASSERT_TRUE((*tier)->store()->Flush().ok());
  MarkRowsOpened(cluster.data_dir(server));
}

TEST_F(SnapshotTransferTest, AMoveWhilePushesRun) {
  for (const OptimizerKind kind : {OptimizerKind::kRowwiseAdagrad, OptimizerKind::kAdam}) {
    for (const uint32_t replicas : {1u, 2u}) {
      random_ = Random(seed_.value());
      step_ = 0;
      Begin(Table(kind, replicas),
            replicas == 1 ? std::vector<ServerId>{1} : std::vector<ServerId>{1, 2});
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
                            "the source has deleted its replica");
      ExpectAsAlone();
    }
  }
}

// The target has the rows in memory before the transfer ends, so it reads none back.
TEST_F(SnapshotTransferTest, RowsComeToMemoryAsTheyArrive) {
  Begin(Table(OptimizerKind::kAdam, 1), {1});
  Push(30);
  const std::vector<float> rows = cluster_->PullAll(1, AllIds());
  const auto memory = [&] { return cluster_->host(3)->Status().numbers["hot_bytes"]; };
  const uint64_t before = memory();
  std::atomic<uint64_t> at_the_end{0};
  cluster_->network()->SetDamage([&](ReplicaMessage* message) {
    if (message->kind == ReplicaMessage::Kind::kSnapshotEnd) at_the_end = memory();
  });
  for (const ShardId shard : cluster_->shards()) cluster_->Move(shard, 1, 3);
  cluster_->network()->SetDamage(nullptr);
  EXPECT_GT(at_the_end, before);
  EXPECT_EQ(cluster_->PullAll(1, AllIds()), rows);
  for (const ShardStatus& shard : cluster_->host(3)->Status().shards) {
    EXPECT_GT(shard.store.rows_resident, 0u);
    EXPECT_EQ(shard.store.misses, 0u) << shard.shard.ToString();
    EXPECT_EQ(shard.store.rows_dirty, 0u) << shard.shard.ToString();
  }
}

// Every replica counts touches for itself, from the log; one that comes later, and one that goes on
// after a kill, have the counts that the others have.
TEST_F(SnapshotTransferTest, ReplicasAdmitTheSameRows) {
  TableSpec table = Table(OptimizerKind::kAdam);
  table.hashed = true;
  table.optimizer.touches = true;
  table.life.admission.after = 3;
  table.life.admission.by = AdmitBy::kBloom;
  table.life.admission.ids = 1;  // blocks of all sizes of counts: ids share counters
  Begin(table, {1, 2});
  const auto push = [this](int steps) {
    for (int i = 0; i < steps; ++i) {
      ++step_;
      std::map<ShardId, std::vector<uint64_t>> ids;
      for (uint64_t id = 0; id < 4000; ++id) {
        if (random_.Uniform(8) == 0) ids[cluster_->ShardOf(1, id)].push_back(id);
      }
      for (const auto& [shard, some] : ids) {
        client_->Push(shard, step_, some, std::vector<float>(some.size() * kDim, 1.0f));
      }
    }
  };
  push(4);
  cluster_->Kill(1);
  cluster_->FailOver();
  cluster_->Settle();
  push(2);
  cluster_->Start(1);
  for (const ShardId shard : cluster_->shards()) cluster_->AddLearner(shard, 1);
  cluster_->SettleUntil(
      [&] {
        return cluster_->IsMember(cluster_->shards()[0], 1) &&
               cluster_->IsMember(cluster_->shards()[1], 1);
      },
      "the killed server is a member again");
  cluster_->Settle();
  push(2);
  for (const ShardId shard : cluster_->shards()) cluster_->Move(shard, 2, 3);
  push(2);
  cluster_->PullAll(1, {0, 1, 2, 3, 4, 5, 6, 7});  // after the last pushes, at both primaries
  cluster_->ExpectReplicasEqual();
}

// The server that sent the rows may have had them in a checkpoint.
TEST_F(SnapshotTransferTest, AMovedShardOfClassCheckpointIsInACheckpointOfItsNewServer) {
  TableSpec table = Table(OptimizerKind::kAdam, 1);
  table.durability = Durability::kCheckpoint;
  Begin(table, {1});
  Push(10);
  const std::vector<uint64_t> ids = {0, 1, 2, 3, 4, 5, 6, 7};
  const std::vector<float> rows = cluster_->PullAll(1, ids);
  const auto kept = [&] { return cluster_->host(3)->Status().numbers["checkpoints"]; };
  for (const ShardId shard : cluster_->shards()) {
    const uint64_t before = kept();
    cluster_->Move(shard, 1, 3);
    for (int i = 0; i < 3000 && kept() == before; ++i) absl::SleepFor(absl::Milliseconds(20));
  }
  cluster_->Kill(3);
  cluster_->Start(3);
  cluster_->FailOver();
  cluster_->Settle();
  EXPECT_EQ(cluster_->PullAll(1, ids), rows);
}

TEST_F(SnapshotTransferTest, ThereAndBackAgain) {
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

TEST_F(SnapshotTransferTest, TinyBudgetsSpillAndTransferAllTheSame) {
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
  for (const ShardStatus& s : cluster_->host(3)->Status().shards) evictions += s.store.evictions;
  EXPECT_GT(evictions, 0u) << "meant to be short of room";
  EXPECT_LE(cluster_->host(3)->Status().numbers["replica_tail_bytes"],
            3 * options.replica_tail_bytes);
  ExpectAsAlone();
}

// Records that one shard keeps in case a replica comes back must not displace those of another
// shard's snapshot transfer in flight, which are needed now.
TEST_F(SnapshotTransferTest, WhatIsKeptInCaseDoesNotRestartATransfer) {
  ShardHostOptions options = ReplicaCluster::DefaultOptions();
  options.replica_tail_bytes = 64 << 10;
  Begin(Table(OptimizerKind::kAdam), {1, 2}, 3, options);
  const ShardId moved = cluster_->shards()[0];
  const ShardId other = cluster_->shards()[1];
  const auto push = [this](ShardId shard) {
    const Batch batch = MakeBatch(&random_, shard);
    client_->Push(shard, ++step_, batch.ids, batch.gradients);
  };
  const auto kept = [this] { return cluster_->host(1)->Status().numbers["replica_tail_bytes"]; };
  for (int i = 0; i < 300; ++i) push(other);
  ASSERT_GT(kept(), options.replica_tail_bytes / 2 - 1024) << "meant to fill what may be kept";
  for (int i = 0; i < 20; ++i) push(moved);  // the first of these are not kept: rows are needed
  std::atomic<int> begun{0};
  cluster_->network()->SetDamage([&begun](ReplicaMessage* message) {
    begun += message->kind == ReplicaMessage::Kind::kSnapshotBegin;
  });
  cluster_->host(1)->SetTransferLimits({.paused = true});
  cluster_->AddLearner(moved, 3);
  cluster_->SettleUntil([&] { return begun > 0; }, "the transfer has begun");
  for (int i = 0; i < 10; ++i) push(moved);
  cluster_->host(1)->SetTransferLimits({});
  cluster_->SettleUntil([&] { return cluster_->IsMember(moved, 3); }, "the learner has joined");
  EXPECT_EQ(begun, 1);
  cluster_->network()->SetDamage(nullptr);
}

// The pushes during each pass of a snapshot transfer are several times as many as may be kept.
TEST_F(SnapshotTransferTest, ATransferThatPushesOutrunEnds) {
  for (const Durability durability : {Durability::kLog, Durability::kCheckpoint}) {
    random_ = Random(seed_.value());
    step_ = 0;
    ShardHostOptions options = ReplicaCluster::DefaultOptions();
    options.replica_tail_bytes = 8 << 10;
    TableSpec table = Table(OptimizerKind::kAdam, 1);
    table.durability = durability;
    Begin(table, {1}, 2, options);
    Push(30);
    const ShardId shard = cluster_->shards()[0];
    std::atomic<int> begun{0};
    std::atomic<int> blocks{0};
    cluster_->network()->SetDamage([&](ReplicaMessage* message) {
      begun += message->kind == ReplicaMessage::Kind::kSnapshotBegin;
      if (message->kind != ReplicaMessage::Kind::kSnapshotRows) return;
      ++blocks;
      // Nothing is acknowledged through the network while it is held here.
      const Lsn behind = cluster_->host(1)->Status().shards[0].applied_lsn + 60;
      const int64_t end_ns = Clock::Real()->NowNs() + 1'000'000'000;
      while (cluster_->host(1)->Status().shards[0].applied_lsn < behind &&
             Clock::Real()->NowNs() < end_ns) {
        Clock::Real()->SleepNs(1'000'000);
      }
    });
    PushWhile([&] { cluster_->Move(shard, 1, 2); });
    cluster_->network()->SetDamage(nullptr);
    EXPECT_EQ(begun, 1) << "it began again";
    EXPECT_GE(blocks, 2) << "meant to need further passes";
    EXPECT_LE(blocks, kTransferPassesMax);
    Push(5);
    ExpectAsAlone();
  }
}

// The next step of a move does not wait for a heartbeat.
TEST_F(SnapshotTransferTest, AJoinIsToldAtOnce) {
  Begin(Table(OptimizerKind::kAdam, 1), {1}, 2);
  Push(1);
  ShardHost* const source = cluster_->host(1);
  std::atomic<bool> told{false};
  source->SetActivationListener([&] {
    if (!source->JoinsReady().empty()) told = true;
  });
  cluster_->AddLearner(cluster_->shards()[0], 2);
  const int64_t end_ns = Clock::Real()->NowNs() + 30'000'000'000;
  while (!told && Clock::Real()->NowNs() < end_ns) Clock::Real()->SleepNs(1'000'000);
  EXPECT_TRUE(told);
  source->SetActivationListener(nullptr);
}

TEST_F(SnapshotTransferTest, ATransferIsCutAtEveryMessage) {
  Begin(Table(OptimizerKind::kAdam, 1), {1}, 2);
  Push(20);
  const ShardId shard = cluster_->shards()[0];
  // The n-th message of the transfer is lost, with its connection; then all go through.
  for (int nth = 1; nth <= 5; ++nth) {
    std::atomic<int> seen{0};
    cluster_->network()->SetFault([&seen, nth](const Member&, const ReplicaMessage& message) {
      using Kind = ReplicaMessage::Kind;
      const bool of_transfer =
          message.kind == Kind::kSnapshotBegin || message.kind == Kind::kSnapshotRows ||
          message.kind == Kind::kSnapshotEnd || message.kind == Kind::kSnapshotReply;
      return of_transfer && ++seen == nth;
    });
    const ServerId from = cluster_->record(shard).primary.server;
    PushWhile([&] { cluster_->Move(shard, from, 3 - from); });
    cluster_->network()->SetFault(nullptr);
    EXPECT_GE(seen.load(), nth) << "the transfer had fewer messages";
  }
  ExpectAsAlone();
}

// What came of the transfer cannot even be deleted until there is room again.
TEST_F(SnapshotTransferTest, ATransferToAFullDiskIsTakenUpWhenThereIsRoom) {
  Begin(Table(OptimizerKind::kAdam, 1), {1}, 2);
  Push(20);
  cluster_->Kill(2);
  const std::string spill = cluster_->data_dir(2) + "/spill";
  const std::string moved = spill + "-moved";
  std::filesystem::rename(spill, moved);
  SmallDisk disk(spill);
  if (!disk.mounted()) GTEST_SKIP() << "this machine lets no test mount a tmpfs";
  std::filesystem::copy(moved, spill, std::filesystem::copy_options::recursive);
  std::filesystem::remove_all(moved);
  cluster_->Start(2);
  disk.Fill(0);
  const ShardId shard = cluster_->shards()[0];
  cluster_->AddLearner(shard, 2);
  cluster_->SettleUntil([&] { return cluster_->host(2)->Status().read_only; }, "the disk is full");
  Clock::Real()->SleepNs(500'000'000);
  EXPECT_FALSE(cluster_->IsMember(shard, 2));
  disk.Free();
  cluster_->SettleUntil([&] { return cluster_->IsMember(shard, 2); }, "it has joined");
  cluster_->Settle();
  Push(5);
  ExpectAsAlone();
}

TEST_F(SnapshotTransferTest, AReplicaThatDiffersIsFoundReportedAndReplaced) {
  ShardHostOptions options = ReplicaCluster::DefaultOptions();
  options.replica_tail_bytes = 8 << 10;  // else its log would be enough to begin again
  Begin(Table(OptimizerKind::kAdam), {1, 2}, 2, options);
  Push(30);
  const ShardId shard = cluster_->shards()[0];
  const auto rejoin = [&] {
    for (const ShardId id : cluster_->shards()) {
      if (cluster_->IsMember(id, 2)) continue;
      cluster_->AddLearner(id, 2);
      cluster_->SettleUntil([&] { return cluster_->IsMember(id, 2); }, "it has joined");
    }
    cluster_->Settle();
  };
  ASSERT_TRUE(cluster_->Stop(2).ok());
  ChangeRow(*cluster_, 2, shard, 0);
  cluster_->Start(2);
  for (const ShardId id : cluster_->shards()) {
    // In one step: an active record without it would have it delete what it holds.
    cluster_->Change(id, true, [&](ShardRecord* record) {
      record->members.resize(1);
      record->learners = {cluster_->member(2)};
    });
    cluster_->SettleUntil([&] { return cluster_->IsMember(id, 2); }, "it has joined");
  }
  cluster_->Settle();
  EXPECT_EQ(cluster_->host(2)->Status().numbers["snapshots_received"], 0u)
      << "it needs the end of the log only";
  PushWhile([&] {
    cluster_->SettleUntil([&] { return !cluster_->host(2)->LostReplicas().empty(); },
                          "the difference is found");
    const std::vector<ShardHost::LostReplica> lost = cluster_->host(2)->LostReplicas();
    ASSERT_EQ(lost.size(), 1u);
    EXPECT_EQ(lost[0].shard, shard);
    EXPECT_EQ(lost[0].epoch, cluster_->record(shard).epoch);
    EXPECT_EQ(cluster_->host(2)->Status().numbers["replicas_diverged"], 1u);
    // As the coordinator does then.
    cluster_->Change(shard, true, [](ShardRecord* record) { record->members.resize(1); });
    cluster_->Settle();
    EXPECT_TRUE(cluster_->host(2)->LostReplicas().empty()) << "nobody counts on it any more";
  });
  rejoin();
  EXPECT_GE(cluster_->host(2)->Status().numbers["snapshots_received"], 1u) << "all rows";
  Push(20);
  ExpectAsAlone();
}

// Its primary may have told that it holds everything: it must not be made a member while its rows
// are half a replica.
TEST_F(SnapshotTransferTest, ALearnerThatWasCountedOnGetsNoOtherSnapshotInItsEpoch) {
  ShardHostOptions options = ReplicaCluster::DefaultOptions();
  options.replica_tail_bytes = 8 << 10;
  Begin(Table(OptimizerKind::kAdam), {1, 2}, 2, options);
  Push(30);
  const ShardId shard = cluster_->shards()[0];
  ASSERT_TRUE(cluster_->Stop(2).ok());
  ChangeRow(*cluster_, 2, shard, 0);
  cluster_->GrantJoins(false);
  cluster_->Start(2);
  for (const ShardId id : cluster_->shards()) {
    cluster_->Change(id, true, [&](ShardRecord* record) {
      record->members.resize(1);
      record->learners = {cluster_->member(2)};
    });
  }
  cluster_->SettleUntil(
      [&] { return cluster_->host(1)->JoinsReady().size() == cluster_->shards().size(); },
      "they are counted on");
  PushWhile([&] {
    cluster_->SettleUntil([&] { return !cluster_->host(2)->LostReplicas().empty(); },
                          "the difference is found and told");
    EXPECT_EQ(cluster_->host(2)->LostReplicas()[0].epoch, cluster_->record(shard).epoch);
    const absl::Time end = absl::Now() + absl::Milliseconds(300);
    cluster_->SettleUntil([&] { return absl::Now() > end; }, "there was time for a transfer");
    EXPECT_EQ(cluster_->host(2)->Status().numbers["snapshots_received"], 0u);
    // As the coordinator does then; until then, what is pushed waits for it.
    cluster_->Change(shard, true, [](ShardRecord* record) { record->learners.clear(); });
    cluster_->Settle();
    EXPECT_TRUE(cluster_->host(2)->LostReplicas().empty());
  });
  cluster_->GrantJoins(true);
  cluster_->AddLearner(shard, 2);
  for (const ShardId id : cluster_->shards()) {
    cluster_->SettleUntil([&] { return cluster_->IsMember(id, 2); }, "it has joined");
  }
  cluster_->Settle();
  EXPECT_EQ(cluster_->host(2)->Status().numbers["snapshots_received"], 1u);
  Push(20);
  ExpectAsAlone();
}

// The rows of a snapshot are ahead of the log that comes after them. Its server may be made primary
// before it has applied all that it holds: what the rows have is not applied again.
TEST_F(SnapshotTransferTest, ANewPrimaryDoesNotApplyAgainWhatItsRowsHave) {
  using Kind = ReplicaMessage::Kind;
  constexpr Lsn kAhead = 4;
  Begin(Table(OptimizerKind::kSgd), {1}, 2);
  Push(10);
  std::atomic<bool> transfers{false};
  cluster_->network()->SetFault([&transfers](const Member&, const ReplicaMessage& message) {
    return !transfers.load() && message.kind == Kind::kSnapshotBegin;
  });
  // The snapshot says that it is of an earlier LSN than its rows are, as if these had been written
  // back since; and no word of a later commit arrives, so nothing of it is applied.
  std::map<ShardId, Lsn> bases;
  cluster_->network()->SetDamage([&bases](ReplicaMessage* message) {
    if (message->kind == Kind::kSnapshotBegin) {
      bases[message->shard] = message->lsn -= kAhead;
    } else if (message->kind == Kind::kSnapshotEnd) {
      auto meta = ShardMeta::Parse(
          {reinterpret_cast<const char*>(message->body.bytes.data()), message->body.bytes.size()});
      ASSERT_TRUE(meta.ok()) << meta.status();
      meta->applied_lsn = message->lsn = bases.at(message->shard);
      auto bytes = std::make_shared<const std::string>(meta->Serialize());
      message->body.bytes = {reinterpret_cast<const uint8_t*>(bytes->data()), bytes->size()};
      message->body.owner = bytes;
    } else if (message->kind == Kind::kAppend && bases.contains(message->shard)) {
      message->commit = std::min(message->commit, bases.at(message->shard));
    }
  });
  for (const ShardId shard : cluster_->shards()) cluster_->AddLearner(shard, 2);
  cluster_->SettleUntil([&] { return cluster_->network()->cuts() > 0; }, "a transfer was tried");
  Push(6);
  transfers.store(true);
  for (const ShardId shard : cluster_->shards()) {
    cluster_->SettleUntil(
        [&] { return cluster_->IsMember(shard, 2) && cluster_->record(shard).active; },
        "the learner has joined");
  }
  for (const ShardStatus& s : cluster_->host(2)->Status().shards) {
    EXPECT_EQ(s.applied_lsn, bases.at(s.shard)) << "meant to be behind its rows";
  }
  cluster_->network()->SetDamage(nullptr);
  for (const ShardId shard : cluster_->shards()) {
    cluster_->Change(shard, /*bump=*/true,
                     [&](ShardRecord* record) { record->primary = cluster_->member(2); });
  }
  cluster_->Settle();
  Push(3);
  EXPECT_EQ(cluster_->host(1)->Status().numbers["replicas_diverged"], 0u)
      << "though one had not seen all rows";
  ExpectAsAlone();
}

TEST_F(SnapshotTransferTest, ADamagedBlockIsNeverWritten) {
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
  EXPECT_GE(cluster_->host(1)->Status().numbers["snapshots_failed"], 2u);
  ExpectAsAlone();
}

}  // namespace snapshot_transfer_test
}  // namespace hotbed
