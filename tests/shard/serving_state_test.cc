#include "server/shard/serving_state.h"

#include <gtest/gtest.h>

#include "tests/shard/shard_parts.h"

namespace hotbed {
namespace serving_state_test {

constexpr Member kHere{2, 10};
constexpr Member kThere{1, 10};

TEST(ServingState, AloneItTellsTheDamageAndWithOthersItSendsThere) {
  for (const bool others : {false, true}) {
    ShardParts parts(kHere);
    parts.Learn(PartsRecord(1, others ? std::vector<Member>{kThere, kHere} : std::vector{kHere},
                            /*active=*/true));
    EXPECT_TRUE(parts.serving.RefusalNow().ok());
    parts.serving.Refuse(absl::DataLossError("wrong checksum"));
    const Refusal refusal = parts.serving.RefusalNow();
    EXPECT_EQ(refusal.code, others ? SegmentCode::kUnavailable : SegmentCode::kCorrupt);
    EXPECT_NE(refusal.detail.find("wrong checksum"), std::string::npos) << refusal.detail;
    EXPECT_EQ(parts.serving.OthersHoldRows(), others);
  }
}

// As a copy of a data directory that is started at the address of its original, until the
// coordinator refuses it: the original's rows may be whole.
TEST(ServingState, DamageIsNoLastWordBeforeTheCoordinatorHasNamedThisProcess) {
  ShardParts parts(kHere);
  parts.serving.Refuse(absl::DataLossError("wrong checksum"));
  EXPECT_EQ(parts.serving.RefusalNow().code, SegmentCode::kUnavailable);
  constexpr Member kEarlierProcess{kHere.server, kHere.incarnation - 1};
  parts.Learn(PartsRecord(1, {kEarlierProcess}, /*active=*/true));
  EXPECT_EQ(parts.serving.RefusalNow().code, SegmentCode::kUnavailable);
  parts.Learn(PartsRecord(2, {kHere}, /*active=*/false));
  EXPECT_EQ(parts.serving.RefusalNow().code, SegmentCode::kCorrupt);
}

TEST(ServingState, OnlyALearnerThatWasNotCountedOnMayBeReplaced) {
  ShardParts parts(kHere);
  ShardRecord record = PartsRecord(1, {kThere}, /*active=*/true);
  record.learners = {kHere};
  parts.Learn(record);
  EXPECT_FALSE(parts.serving.MayBeReplaced(1)) << "it serves";
  parts.serving.Refuse(absl::DataLossError("wrong checksum"));
  EXPECT_TRUE(parts.serving.ReplicaLost(record, kHere)) << "it may have acknowledged in epoch 1";
  EXPECT_FALSE(parts.serving.MayBeReplaced(1));
  record.epoch = 2;
  record.revision = 5;
  EXPECT_FALSE(parts.serving.ReplicaLost(record, kHere)) << "it was refused before epoch 2";
  EXPECT_FALSE(parts.serving.MayBeReplaced(2)) << "that epoch is not known here yet";
  parts.Learn(record);
  EXPECT_TRUE(parts.serving.MayBeReplaced(2));
  record.members.push_back(kHere);
  EXPECT_TRUE(parts.serving.ReplicaLost(record, kHere)) << "a member is counted on";
}

TEST(ServingState, AStallServesAndPasses) {
  ShardParts parts(kHere);
  parts.serving.Stall("waits");
  EXPECT_TRUE(parts.serving.serves());
  EXPECT_EQ(parts.serving.reason(), "table t, shard 1/0: waits");
  parts.serving.EndStall();
  EXPECT_EQ(parts.serving.reason(), "");
}

}  // namespace serving_state_test
}  // namespace hotbed
