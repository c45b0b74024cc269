// Two replicas of a shard that exchange messages by hand.
#include "server/shard/replica_exchange.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <utility>

#include "tests/shard/shard_parts.h"

namespace hotbed {
namespace replica_exchange_test {

constexpr Member kPrimary{1, 10};
constexpr Member kBackup{2, 10};

class ReplicaExchangeTest : public testing::Test {
 protected:
  ReplicaExchangeTest() : primary_(kPrimary), backup_(kBackup) {
    for (const bool active : {false, true}) {
      const ShardRecord record = PartsRecord(1, {kPrimary, kBackup}, active);
      primary_.Learn(record);
      backup_.Learn(record);
      Deliver();
    }
    EXPECT_TRUE(primary_.gauges.active());
  }

  // Until no message is left.
  void Deliver() {
    while (!primary_.outlet.sent.empty() || !backup_.outlet.sent.empty()) {
      DeliverFrom(&primary_, &backup_);
      DeliverFrom(&backup_, &primary_);
    }
  }
  static void DeliverFrom(ShardParts* from, ShardParts* to) {
    for (auto sent = std::exchange(from->outlet.sent, {}); ReplicaMessage & message : sent) {
      EXPECT_EQ(message.to, to->self);
      to->exchange.OnMessage(from->self, std::move(message));
    }
  }

  ShardParts primary_;
  ShardParts backup_;
};

TEST_F(ReplicaExchangeTest, APushIsAnsweredOnceBothLogsHoldTheSameBytes) {
  const auto push = primary_.Push(1);
  Deliver();
  primary_.log.Commit();
  Deliver();
  EXPECT_FALSE(push->done) << "the backup's log has not taken the record";
  ASSERT_EQ(backup_.log.waiting.size(), 1u);
  backup_.log.Commit();
  Deliver();
  ASSERT_TRUE(push->done);
  EXPECT_EQ(push->segments[0].result.code, SegmentCode::kOk) << push->segments[0].result.detail;
  ASSERT_EQ(primary_.log.records.size(), 1u);
  EXPECT_FALSE(primary_.log.records[0].empty());
  EXPECT_EQ(primary_.log.records, backup_.log.records);
  EXPECT_EQ(backup_.store.applied, (std::vector<Lsn>{1}));
  EXPECT_EQ(primary_.budget.records_sent, 1u);
  EXPECT_EQ(backup_.budget.records_taken, 1u);
}

// Its snapshot had the rows of an entry that all others have lost since.
TEST_F(ReplicaExchangeTest, RowsThatHoldALostEntryAreGivenUp) {
  backup_.store.highest = 1;
  backup_.replay.Finish();
  for (const bool active : {false, true}) {
    const ShardRecord record = PartsRecord(2, {kPrimary, kBackup}, active);
    primary_.Learn(record);
    backup_.Learn(record);
    Deliver();
  }
  EXPECT_TRUE(backup_.serving.error().ok());
  const auto push = primary_.Push(1);
  primary_.log.Commit();
  Deliver();
  EXPECT_TRUE(backup_.log.lsns.empty());
  EXPECT_TRUE(backup_.store.applied.empty());
  EXPECT_THAT(backup_.serving.reason(), testing::HasSubstr("in place of the primary's at LSN 1"));
  EXPECT_EQ(backup_.outlet.news, 1) << "the coordinator hears of it at once";
  for (const bool active : {false, true}) {
    primary_.Learn(PartsRecord(3, {kPrimary}, active));
    Deliver();
  }
  EXPECT_TRUE(push->done);
}

TEST_F(ReplicaExchangeTest, ADamagedRecordIsAskedForAgain) {
  const auto push = primary_.Push(1);
  primary_.log.Commit();
  ASSERT_EQ(primary_.outlet.sent.size(), 1u);
  ReplicaMessage message = std::move(primary_.outlet.sent.front());
  primary_.outlet.sent.clear();
  ASSERT_EQ(message.records.size(), 1u);
  const SharedBytes whole = message.records[0];
  const size_t size = whole.bytes.size();
  const std::shared_ptr<uint64_t[]> damaged(new uint64_t[size / 8]);
  std::memcpy(damaged.get(), whole.bytes.data(), size);
  damaged[size / 8 - 1] ^= 1;
  message.records[0] = {damaged, {reinterpret_cast<const uint8_t*>(damaged.get()), size}};
  backup_.exchange.OnMessage(kPrimary, std::move(message));
  EXPECT_EQ(backup_.budget.messages_refused, 1u);
  EXPECT_TRUE(backup_.log.waiting.empty());
  EXPECT_FALSE(backup_.serving.refused());
  Deliver();
  ASSERT_EQ(backup_.log.waiting.size(), 1u) << "it came again, whole";
  backup_.log.Commit();
  Deliver();
  EXPECT_TRUE(push->done);
}

TEST_F(ReplicaExchangeTest, AReplicaWhoseRowsDifferGivesItselfUp) {
  backup_.store.peeked = {1};
  for (uint64_t seq = 1; seq <= 4; ++seq) {
    if (seq == 3) backup_.store.peeked = {2};  // an update came out differently
    const auto push = primary_.Push(seq);
    primary_.store.peeked = {1};
    primary_.log.Commit();
    Deliver();
    backup_.log.Commit();
    Deliver();
    EXPECT_TRUE(seq >= 3 || !backup_.serving.refused()) << seq;
    if (!push->done) {
      primary_.serving.Refuse(absl::UnavailableError("the backup is gone"));
      primary_.pipeline.Drain();
    }
  }
  EXPECT_TRUE(backup_.serving.refused());
  EXPECT_EQ(backup_.budget.replicas_diverged, 1u);
  EXPECT_GT(backup_.outlet.news, 0);
}

}  // namespace replica_exchange_test
}  // namespace hotbed
