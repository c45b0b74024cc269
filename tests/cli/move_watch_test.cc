// The wait for moves, over a fake coordinator and a clock that advances by sleeping.
#include "cli/shards/move_watch.h"

#include <csignal>
#include <sstream>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/cli/fake_coordinator.h"

namespace hotbed {
namespace move_watch_test {

using ::testing::HasSubstr;

v1::ListMovesReply List(int moves, uint64_t copied = 0, uint64_t total = 0) {
  v1::ListMovesReply list;
  for (int i = 0; i < moves; ++i) {
    v1::ShardMove* move = list.add_moves();
    move->mutable_goal()->set_shard((uint64_t{1} << 32) | static_cast<uint64_t>(i));
    move->set_bytes_copied(copied);
    move->set_bytes_total(total);
  }
  list.set_moves_total(static_cast<uint64_t>(moves));
  return list;
}

class MoveWatchTest : public ::testing::Test {
 protected:
  MoveWatchTest() : stub_(fake_.address(), absl::Seconds(10)) {
    context_.out = &out_;
    context_.err = &err_;
    options_.label = "moving";
    options_.number = 5;
  }
  absl::Status Watch() { return WatchMoves(context_, &stub_, options_, &clock_); }

  FakeCoordinator fake_;
  CoordinatorStub stub_;
  CommandContext context_;
  std::ostringstream out_, err_;
  MoveWatchOptions options_;
  ManualClock clock_;
};

TEST_F(MoveWatchTest, ShowsHowFarItIsUntilNoneIsListed) {
  options_.work = {2, 200};
  for (int i = 0; i < 60; ++i) fake_.lists.push_back(List(1, 50, 100));  // 12 s
  fake_.lists.back().mutable_moves(0)->set_waits_for("s3 to answer");
  fake_.lists.push_back(fake_.lists.back());
  fake_.lists.push_back(List(0));
  fake_.on_list = [](const v1::ListMovesRequest& request) { EXPECT_EQ(request.number(), 5u); };
  ASSERT_TRUE(Watch().ok());
  EXPECT_EQ(fake_.lists_asked, 62);
  EXPECT_THAT(err_.str(), HasSubstr("75%"));
  EXPECT_THAT(err_.str(), HasSubstr("150 B of 200 B, 0 B/s, 1 of 2 moves"));
  EXPECT_THAT(err_.str(), HasSubstr("ETA"));
  EXPECT_THAT(err_.str(), HasSubstr("100%"));
  EXPECT_THAT(err_.str(), HasSubstr("2 of 2 moves"));
}

TEST_F(MoveWatchTest, AsksWhetherThatWasTheEnd) {
  options_.work = {1, 0};
  int asked = 0;
  options_.ended = [&asked](const v1::ClusterMap& map) -> absl::StatusOr<bool> {
    EXPECT_EQ(map.plan_revision(), 7u);
    return ++asked == 3;
  };
  ASSERT_TRUE(Watch().ok());
  EXPECT_EQ(asked, 3);
  options_.ended = [](const v1::ClusterMap&) -> absl::StatusOr<bool> {
    return absl::AbortedError("given up");
  };
  EXPECT_EQ(Watch().message(), "given up");
}

TEST_F(MoveWatchTest, CtrlCLeavesTheMovesGoing) {
  options_.work = {1, 100};
  fake_.lists.push_back(List(1, 0, 100));
  fake_.on_list = [this](const v1::ListMovesRequest&) {
    if (fake_.lists_asked == 3) raise(SIGINT);
  };
  const absl::Status status = Watch();
  EXPECT_EQ(status.code(), absl::StatusCode::kCancelled);
  EXPECT_THAT(std::string(status.message()), HasSubstr("the moves go on"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("hotbed shard moves --watch 5"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("hotbed shard abort 5"));
  EXPECT_EQ(fake_.lists_asked, 3);
  EXPECT_EQ(fake_.controlled.action(), v1::ControlMovesRequest::NOTHING);
}

TEST_F(MoveWatchTest, ACoordinatorThatIsAwayIsWaitedForAMinute) {
  CoordinatorStub nobody("127.0.0.1:1", absl::Milliseconds(100));
  options_.work = {1, 0};
  const absl::Status status = WatchMoves(context_, &nobody, options_, &clock_);
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_GT(clock_.NowNs(), 60'000'000'000);
  EXPECT_LT(clock_.NowNs(), 62'000'000'000);
  EXPECT_THAT(err_.str(), HasSubstr("the coordinator does not answer"));
}

TEST_F(MoveWatchTest, JsonSaysNothingOnTheWay) {
  context_.output = "json";
  options_.work = {1, 100};
  for (int i = 0; i < 60; ++i) fake_.lists.push_back(List(1, 0, 100));
  fake_.lists.push_back(List(0));
  ASSERT_TRUE(Watch().ok());
  EXPECT_EQ(out_.str() + err_.str(), "");
}

}  // namespace move_watch_test
}  // namespace hotbed
