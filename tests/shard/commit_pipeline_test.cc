#include "server/shard/commit_pipeline.h"

#include <gtest/gtest.h>

#include "tests/shard/shard_parts.h"

namespace hotbed {
namespace commit_pipeline_test {

constexpr Member kAlone{1, 10};

class CommitPipelineTest : public testing::Test {
 protected:
  CommitPipelineTest() : parts_(kAlone) {
    parts_.Learn(PartsRecord(1, {kAlone}, false));
    parts_.Learn(PartsRecord(1, {kAlone}, true));
    EXPECT_TRUE(parts_.gauges.active());
  }
  static SegmentCode CodeOfPush(const PartsPush& push) { return push.segments[0].result.code; }

  ShardParts parts_;
};

TEST_F(CommitPipelineTest, APushIsAnsweredOnceItIsInTheLogAndInTheRows) {
  const auto push = parts_.Push(1);
  ASSERT_EQ(parts_.log.waiting.size(), 1u);
  EXPECT_FALSE(push->done);
  EXPECT_TRUE(parts_.store.applied.empty()) << "not in the log yet";
  EXPECT_FALSE(parts_.in_flight.none());
  parts_.log.Commit();
  EXPECT_EQ(parts_.store.applied, (std::vector<Lsn>{1}));
  ASSERT_TRUE(push->done);
  EXPECT_EQ(CodeOfPush(*push), SegmentCode::kOk) << push->segments[0].result.detail;
  EXPECT_EQ(push->segments[0].result.lsn, 1u);
  EXPECT_EQ(parts_.gauges.applied_lsn(), 1u);
  EXPECT_EQ(parts_.gauges.rows_pushed(), 1u);
  EXPECT_TRUE(parts_.in_flight.none());
}

TEST_F(CommitPipelineTest, ThePushNotesHowLongItWasInTheLogAndInTheRows) {
  const auto push = parts_.Push(1, &parts_.clock);
  parts_.clock.Advance(7 * kMillisecondNs);
  parts_.log.Commit();
  ASSERT_TRUE(push->done);
  EXPECT_EQ(push->stages.of(RequestStages::kLog).ns, 7 * kMillisecondNs);
  EXPECT_EQ(push->stages.of(RequestStages::kReplicas).ns, 0);
  EXPECT_EQ(push->stages.of(RequestStages::kRows).ns, 0);
  parts_.store.results = {absl::ResourceExhaustedError("the spill tier is full")};
  const auto stalled = parts_.Push(2, &parts_.clock);
  parts_.log.Commit();
  EXPECT_FALSE(stalled->done);
  parts_.clock.Advance(9 * kMillisecondNs);
  parts_.serving.EndStall();
  parts_.pipeline.Drain();
  ASSERT_TRUE(stalled->done);
  EXPECT_EQ(stalled->stages.of(RequestStages::kLog).ns, 0);
  EXPECT_EQ(stalled->stages.of(RequestStages::kRows).ns, 9 * kMillisecondNs);
}

TEST_F(CommitPipelineTest, AFailedAppendCutsWhatFollowsAndTheLogIsTriedAgain) {
  const auto first = parts_.Push(1);
  const auto second = parts_.Push(2);
  parts_.log.read_only = true;
  parts_.log.EndAll(absl::ResourceExhaustedError("the disk is full"));
  ASSERT_TRUE(first->done);
  ASSERT_TRUE(second->done);
  EXPECT_EQ(CodeOfPush(*first), SegmentCode::kReadOnly);
  EXPECT_EQ(CodeOfPush(*second), SegmentCode::kReadOnly);
  EXPECT_TRUE(parts_.in_flight.none());
  EXPECT_TRUE(parts_.gauges.read_only());
  parts_.pipeline.ResumeLog();
  EXPECT_TRUE(parts_.core.read_only()) << "the log still is";
  parts_.log.read_only = false;
  parts_.pipeline.ResumeLog();
  const auto again = parts_.Push(1);
  parts_.log.Commit();
  ASSERT_TRUE(again->done);
  EXPECT_EQ(CodeOfPush(*again), SegmentCode::kOk) << again->segments[0].result.detail;
}

TEST_F(CommitPipelineTest, AnUpdateThatTheRowsCannotTakeStallsThoseBehindIt) {
  parts_.store.results = {absl::ResourceExhaustedError("the spill tier is full")};
  const auto first = parts_.Push(1);
  const auto second = parts_.Push(2);
  parts_.log.Commit();
  EXPECT_TRUE(parts_.serving.stalled());
  EXPECT_NE(parts_.serving.reason().find("the spill tier is full"), std::string::npos);
  EXPECT_FALSE(first->done);
  EXPECT_FALSE(second->done);
  parts_.serving.EndStall();
  EXPECT_EQ(parts_.serving.reason(), "");
  parts_.pipeline.Drain();
  EXPECT_TRUE(first->done);
  EXPECT_TRUE(second->done);
  EXPECT_EQ(parts_.store.applied, (std::vector<Lsn>{1, 2})) << "in order, each once";
}

}  // namespace commit_pipeline_test
}  // namespace hotbed
