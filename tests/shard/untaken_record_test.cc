// Records that a replica does not take, however often they come.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <vector>

#include "tests/shard/replica_pushes.h"

namespace hotbed {
namespace untaken_record_test {

using ::testing::HasSubstr;
using Kind = ReplicaMessage::Kind;

class UntakenRecordTest : public ReplicaTest {
 protected:
  // No record of the shard reaches the server whole from now on.
  void DamageAll(ShardId shard, ServerId server) {
    cluster_->network()->SetDamage([this, shard, server](ReplicaMessage* message) {
      begun_ += message->kind == Kind::kSnapshotBegin;
      if (!(message->shard == shard) || message->to.server != server) return;
      for (auto& record : message->records) {
        const_cast<uint8_t*>(record.bytes.data())[record.bytes.size() / 2] ^= 1;
        ++damaged_;
      }
    });
  }
  void Rejoin(ShardId shard, ServerId server) {
    cluster_->network()->SetDamage(nullptr);
    cluster_->AddLearner(shard, server);
    cluster_->SettleUntil([&] { return cluster_->IsMember(shard, server); }, "it is back");
    cluster_->Settle();
  }

  std::atomic<int> begun_{0};
  std::atomic<int> damaged_{0};
};

TEST_F(UntakenRecordTest, AMemberGivesItsReplicaUpAfterSomeTriesAndPushesGoOn) {
  Begin(Table(OptimizerKind::kAdam), {1, 2}, 2);
  Push(5);
  const ShardId shard = cluster_->shards()[0];
  DamageAll(shard, 2);
  PushWhile([&] {
    cluster_->SettleUntil([&] { return !cluster_->host(2)->LostReplicas().empty(); },
                          "the replica is given up");
    const std::vector<ShardHost::LostReplica> lost = cluster_->host(2)->LostReplicas();
    ASSERT_EQ(lost.size(), 1u);
    EXPECT_EQ(lost[0].shard, shard);
    EXPECT_THAT(lost[0].why, HasSubstr("is not taken: it fails its checksum (10 times)"));
    EXPECT_EQ(cluster_->host(2)->Status().numbers["replica_messages_refused"], 10u)
        << "asked for in measure";
    cluster_->Change(shard, true, [](ShardRecord* record) { record->members.resize(1); });
    cluster_->Settle();
  });
  Rejoin(shard, 2);
  Push(5);
  ExpectAsAlone();
}

TEST_F(UntakenRecordTest, ALearnerWhoseNewReplicaIsLostIsNotSentAnotherByItself) {
  Begin(Table(OptimizerKind::kAdam), {1}, 2);
  const ShardId shard = cluster_->shards()[0];
  Push(10);
  DamageAll(shard, 2);
  // It needs what is pushed after its rows were taken, or it would join at once.
  cluster_->host(1)->SetTransferLimits({.paused = true});
  cluster_->AddLearner(shard, 2);
  cluster_->SettleUntil([&] { return begun_ > 0; }, "the transfer has begun");
  Push(3);
  cluster_->host(1)->SetTransferLimits({});
  cluster_->SettleUntil([&] { return !cluster_->host(2)->LostReplicas().empty(); },
                        "the learner's replica is called lost");
  EXPECT_FALSE(cluster_->IsMember(shard, 2));
  EXPECT_GT(damaged_.load(), 0);
  const int begun = begun_;
  Clock::Real()->SleepNs(1'000'000'000);
  EXPECT_EQ(begun_.load(), begun) << "the coordinator says when";
  cluster_->Change(shard, true, [](ShardRecord* record) { record->learners.clear(); });
  cluster_->Settle();
  EXPECT_TRUE(cluster_->host(2)->LostReplicas().empty());
  Rejoin(shard, 2);
  Push(5);
  ExpectAsAlone();
}

}  // namespace untaken_record_test
}  // namespace hotbed
