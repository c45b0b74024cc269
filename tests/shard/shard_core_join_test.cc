// When a learner joins: its log has everything, and its rows are near.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/protocol/shard_core.h"
#include "tests/shard/core_group.h"

namespace hotbed {
namespace shard_core_join_test {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::SizeIs;

class ShardCoreJoinTest : public CoreGroup {
 protected:
  // A learner at 1 with a snapshot of the first push; its rows are held from then on.
  void BeginLearner() {
    Establish(1, {0});
    Push(0);
    const ShardRecord record = Record(1, {0}, {1}, true);
    Learn(0, record);
    Learn(1, record);
    DeliverAll();
    SendSnapshot(0, 1);
    replicas_[1].hold_rows = true;
  }
};

// Its log has everything; pushes would wait for its rows as soon as it is the primary.
TEST_F(ShardCoreJoinTest, ALearnerJoinsWhenItsRowsAreNearTheEnd) {
  BeginLearner();
  for (int i = 0; i < 65; ++i) Push(0);
  for (int i = 0; i < 5; ++i) {
    Tick(0);
    DeliverAll();
  }
  ASSERT_EQ(core(1).last_lsn(), 66u);
  ASSERT_EQ(core(1).applied_lsn(), 1u);
  EXPECT_THAT(core(0).JoinReady(), IsEmpty());
  PushToken token = Push(0);
  DeliverAll(To(1));
  EXPECT_EQ(Answer(0, token), SegmentCode::kOk) << "it is not waited for either";
  FinishRows(1);
  for (int i = 0; i < 4; ++i) {
    Tick(0);
    DeliverAll();
  }
  EXPECT_THAT(core(0).JoinReady(), ElementsAre(replicas_[1].member));
  EXPECT_EQ(core(0).backup_count(), 1u);
  replicas_[1].hold_rows = true;
  for (int i = 0; i < 65; ++i) token = Push(0);
  DeliverAll();
  EXPECT_EQ(Answer(0, token), SegmentCode::kOk) << "once it has joined its log counts, no more";
  EXPECT_THAT(core(0).JoinReady(), SizeIs(1)) << "and nobody leaves the set";
}

TEST_F(ShardCoreJoinTest, ALearnerThatNeverAppliesJoinsAllTheSame) {
  BeginLearner();
  for (int i = 0; i < 200; ++i) Push(0);
  int ticks = 0;
  for (; ticks < 200 && core(0).JoinReady().empty(); ++ticks) {
    Tick(0);
    DeliverAll();
  }
  EXPECT_GE(ticks, 100);
  EXPECT_LE(ticks, 103);
}

}  // namespace shard_core_join_test
}  // namespace hotbed
