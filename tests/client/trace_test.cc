// Calls that belong to a trace, against the fake cluster.
#include "hotbed/trace.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "hotbed/client.h"
#include "tests/client/fake_cluster.h"

namespace hotbed {
namespace trace_test {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr char kTrace[] = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
constexpr char kOther[] = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00";
constexpr char kTraceText[] = "(trace 4bf92f3577b34da6a3ce929d0e0e4736)";

class TraceTest : public testing::Test {
 protected:
  void SetUp() override {
    cluster_.AddTable("user", 100, 4, 1);
    ClientOptions options;
    options.deadline = absl::Seconds(20);
    auto client = Client::Connect(cluster_.target(), options);
    ASSERT_TRUE(client.ok()) << client.status();
    client_ = *std::move(client);
    table_ = *client_->OpenTable("user");
  }

  absl::Status Pull(bool lookup = false, absl::Duration deadline = absl::ZeroDuration()) {
    const PullFeature feature{table_, ids_, rows_.data()};
    const PullOptions options = {.deadline = deadline};
    return (lookup ? client_->Lookup({&feature, 1}, options)
                   : client_->Pull({&feature, 1}, options))
        .Wait();
  }
  PushResult Push(uint64_t step) {
    const PushFeature feature{table_, ids_, rows_.data()};
    return client_->Push(step, {&feature, 1}).Wait();
  }
  std::vector<std::string> PullTraces() const {
    const v1::PullHeader header = cluster_.last_pull_of(0);
    return {header.traceparents().begin(), header.traceparents().end()};
  }
  std::vector<std::string> PushTraces() const {
    const v1::PushHeader header = cluster_.last_push_of(0);
    return {header.traceparents().begin(), header.traceparents().end()};
  }

  FakeCluster cluster_{1};
  std::unique_ptr<Client> client_;
  const Table* table_ = nullptr;
  const std::vector<uint64_t> ids_ = {1, 2};
  std::vector<float> rows_ = std::vector<float>(8, 0.5f);
};

TEST_F(TraceTest, CallsCarryTheInnermostScopeOfTheirThread) {
  ASSERT_TRUE(Pull().ok());
  EXPECT_THAT(PullTraces(), ElementsAre());
  ASSERT_TRUE(Push(1).status.ok());
  EXPECT_THAT(PushTraces(), ElementsAre());
  {
    const TraceScope scope(kTrace);
    ASSERT_TRUE(Pull().ok());
    EXPECT_THAT(PullTraces(), ElementsAre(kTrace));
    ASSERT_TRUE(Push(2).status.ok());
    EXPECT_THAT(PushTraces(), ElementsAre(kTrace));
    {
      const TraceScope inner(kOther);
      ASSERT_TRUE(Pull(/*lookup=*/true).ok());
      EXPECT_THAT(PullTraces(), ElementsAre(kOther));
      const TraceScope none("");
      ASSERT_TRUE(Pull().ok());
      EXPECT_THAT(PullTraces(), ElementsAre());
    }
    ASSERT_TRUE(Pull().ok());
    EXPECT_THAT(PullTraces(), ElementsAre(kTrace));
    std::thread([&] { ASSERT_TRUE(Pull().ok()); }).join();
    EXPECT_THAT(PullTraces(), ElementsAre()) << "a thread of its own";
  }
  ASSERT_TRUE(Push(3).status.ok());
  EXPECT_THAT(PushTraces(), ElementsAre());
}

TEST_F(TraceTest, AWrongTraceparentFailsTheCallsOfItsScope) {
  const uint64_t before = cluster_.pull_messages();
  const TraceScope scope("00-0-0-00");
  EXPECT_EQ(Pull().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(Pull().message()), HasSubstr("traceparent is \"00-0-0-00\" of 9 bytes"));
  const PushResult pushed = Push(1);
  EXPECT_EQ(pushed.status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(pushed.outcome, PushResult::Outcome::kFailed);
  EXPECT_EQ(cluster_.pull_messages(), before);
}

TEST_F(TraceTest, ErrorsNameTheTrace) {
  const TraceScope scope(kTrace);
  cluster_.set_pull_script([](int, const PullAsk&) {
    v1::SegmentReply refusal;
    refusal.set_code(v1::CORRUPT);
    refusal.set_detail("damaged");
    return refusal;
  });
  const absl::Status damaged = Pull();
  EXPECT_EQ(damaged.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(damaged.message()), testing::EndsWith(kTraceText));
  cluster_.set_push_script([](int, const PushAsk&) {
    v1::SegmentReply refusal;
    refusal.set_code(v1::NAN_GRADIENT);
    return refusal;
  });
  EXPECT_THAT(std::string(Push(1).status.message()), testing::EndsWith(kTraceText));
  cluster_.SetHanging(0, true);
  const absl::Status late = Pull(/*lookup=*/false, absl::Milliseconds(50));
  cluster_.SetHanging(0, false);
  EXPECT_EQ(late.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(std::string(late.message()), testing::EndsWith(kTraceText));
}

}  // namespace trace_test
}  // namespace hotbed
