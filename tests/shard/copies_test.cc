// Whole shards go to other servers, while pushes run: moves and refills, cut and damaged at every
// place.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "server/copy_sender.h"
#include "tests/shard/replica_pushes.h"

namespace hotbed {
namespace {

using CopiesTest = ReplicaTest;

TEST_F(CopiesTest, AMoveWhilePushesRun) {
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

TEST_F(CopiesTest, ThereAndBackAgain) {
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

TEST_F(CopiesTest, TinyBudgetsSpillAndCopyAllTheSame) {
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

TEST_F(CopiesTest, ACopyIsCutAtEveryMessage) {
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

// The rows of a copy are ahead of the log that comes after them. Its server may be made primary
// before it has applied all that it holds: what the rows have is not applied again.
TEST_F(CopiesTest, ANewPrimaryDoesNotApplyAgainWhatItsRowsHave) {
  using Kind = ReplicaMessage::Kind;
  constexpr Lsn kAhead = 4;
  Begin(Table(OptimizerKind::kSgd), {1}, 2);
  Push(10);
  std::atomic<bool> copies{false};
  cluster_->network()->SetFault([&copies](const Member&, const ReplicaMessage& message) {
    return !copies.load() && message.kind == Kind::kSnapshotBegin;
  });
  // The copy says that it is of an earlier LSN than its rows are, as if these had been written back
  // since; and no word of a later commit arrives, so nothing of it is applied.
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
  cluster_->SettleUntil([&] { return cluster_->network()->cuts() > 0; }, "a copy was tried");
  Push(6);
  copies.store(true);
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
  EXPECT_EQ(cluster_->host(1)->Status().copies_differ, 0u) << "though one had not seen all rows";
  ExpectAsAlone();
}

TEST_F(CopiesTest, ADamagedBlockIsNeverWritten) {
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

}  // namespace
}  // namespace hotbed
