#include "server/streams/slow_requests.h"

#include <gmock/gmock.h>

#include "server/net/stream_metrics.h"
#include "tests/server/data_plane_fixture.h"

namespace hotbed {
namespace slow_requests_test {

using testing::HasSubstr;
using testing::Not;

constexpr char kTrace[] = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
constexpr char kTraceId[] = "4bf92f3577b34da6a3ce929d0e0e4736";

uint64_t SlowOf(RequestKind kind) {
  return StreamMetrics::Get().slow_requests[static_cast<size_t>(kind)]->Value();
}

TEST(RequestStagesTest, KeepsTheLongestSegmentOfAStage) {
  ManualClock clock;
  RequestStages stages;
  stages.Begin(&clock);
  clock.Advance(5 * kMillisecondNs);
  EXPECT_EQ(stages.Note(RequestStages::kLog, 0, 3), 5 * kMillisecondNs);
  stages.Note(RequestStages::kLog, 2 * kMillisecondNs, 7);
  EXPECT_EQ(stages.of(RequestStages::kLog).ns, 5 * kMillisecondNs);
  EXPECT_EQ(stages.of(RequestStages::kLog).segment, 3u);
  EXPECT_EQ(stages.of(RequestStages::kRows).ns, 0);
  stages.Begin(nullptr);
  EXPECT_EQ(stages.of(RequestStages::kLog).ns, 0);
  EXPECT_EQ(stages.Note(RequestStages::kLog, 0, 3), 0);
  EXPECT_EQ(stages.of(RequestStages::kLog).ns, 0) << "nothing is noted";
}

AnsweredRequest SlowPush(const RequestStages* stages, const RequestTraces* traces) {
  AnsweredRequest request;
  request.kind = RequestKind::kPush;
  request.took_ns = 1204 * kMillisecondNs;
  request.answer_ns = 2 * kMillisecondNs;
  request.rows = 2048;
  request.request_bytes = 530144;
  request.peer = "ipv4:127.0.0.1:4242";
  request.stages = stages;
  request.traces = traces;
  request.segments = {{"user", 0}, {"user", 7}, {"item", 3}};
  return request;
}

TEST(SlowRequestTextTest, HasEachStageAndItsSlowestShard) {
  ManualClock clock;
  RequestStages stages;
  stages.Begin(&clock);
  clock.Advance(800 * kMillisecondNs);
  stages.Note(RequestStages::kLog, 0, 1);
  stages.Note(RequestStages::kReplicas, 410 * kMillisecondNs, 2);
  RequestTraces traces;
  v1::PushHeader header;
  header.add_traceparents(kTrace);
  traces.Take(header.traceparents());
  AnsweredRequest request = SlowPush(&stages, &traces);
  EXPECT_EQ(SlowRequestText(request),
            "slow push of 1204 ms: table user, shards 0 7; table item, shards 3; 2048 rows, 530144 "
            "bytes in, 0 bytes of rows out; memory 0 ms, strand 0 ms, state 0 ms, log 800 ms "
            "(user/7), replicas 390 ms (item/3), rows 0 ms, answer 2 ms; from "
            "ipv4:127.0.0.1:4242; trace 4bf92f3577b34da6a3ce929d0e0e4736");
  request.kind = RequestKind::kPull;
  request.segments.assign(20, {"user", 5});
  EXPECT_THAT(SlowRequestText(request), HasSubstr("5 5 and 4 more; 2048 rows"));
  EXPECT_THAT(SlowRequestText(request), Not(HasSubstr("log")));
}

TEST(RequestTracesTest, IgnoresAndCountsWhatIsNotOne) {
  v1::PullHeader header;
  header.add_traceparents("00-not-a-trace");
  for (int i = 0; i < 20; ++i) header.add_traceparents(kTrace);
  const uint64_t before = StreamMetrics::Get().traceparents_ignored.Value();
  RequestTraces traces;
  traces.Take(header.traceparents());
  EXPECT_EQ(StreamMetrics::Get().traceparents_ignored.Value() - before, 1u + 5u) << "beyond 16";
  EXPECT_EQ(traces.traces().size(), RequestTraces::kTracesMax - 1);
  traces.Take(v1::PullHeader().traceparents());
  EXPECT_TRUE(traces.traces().empty());
}

TEST(SlowRequestsTest, WritesTenLinesPerSecondAndSaysHowManyAreMissing) {
  ManualClock clock;
  SlowRequests slow(100, &clock, &clock);
  EXPECT_FALSE(slow.IsSlow(100 * kMillisecondNs - 1));
  EXPECT_TRUE(slow.IsSlow(100 * kMillisecondNs));
  RequestStages stages;
  const AnsweredRequest request = SlowPush(&stages, nullptr);
  const uint64_t before = SlowOf(RequestKind::kPush);
  const auto lines = [&](int requests) {
    testing::internal::CaptureStderr();
    for (int i = 0; i < requests; ++i) {
      if (slow.TakeLine(request.kind)) slow.Log(request);
    }
    return testing::internal::GetCapturedStderr();
  };
  const std::string first = lines(25);
  EXPECT_EQ(std::count(first.begin(), first.end(), '\n'), SlowRequests::kLinesPerS);
  EXPECT_THAT(first, Not(HasSubstr("have no line")));
  EXPECT_EQ(lines(1), "");
  clock.Advance(kSecondNs);
  EXPECT_THAT(lines(1), HasSubstr("(16 slow requests before it have no line)"));
  EXPECT_EQ(SlowOf(RequestKind::kPush) - before, 27u);
  SlowRequests off(0, &clock, &clock);
  EXPECT_FALSE(off.IsSlow(int64_t{1} << 60));
  EXPECT_EQ(off.stage_clock(), nullptr);
}

TEST(CoarseClockTest, GoesOn) {
  const Clock* const clock = SlowRequests::CoarseClock();
  const int64_t before = clock->NowNs();
  EXPECT_TRUE(WaitFor([&] { return clock->NowNs() > before; }));
}

using SlowStreamTest = DataPlaneTest;

TEST_F(SlowStreamTest, APullThatTakesLongIsLoggedWithItsTrace) {
  DataServerOptions options;
  options.limits.slow_request_ms = 20;
  StartServer(options);
  const uint64_t before = SlowOf(RequestKind::kPull);
  host_->Hold();
  grpc::ClientContext context;
  auto call = stub_->Pull(&context);
  v1::PullRequest request;
  Greet(&request);
  request.mutable_header()->add_traceparents(kTrace);
  AddSegment(kWide, 3, {5, 1, 9}, &request);
  testing::internal::CaptureStderr();
  ASSERT_TRUE(call->Write(request));
  ASSERT_TRUE(WaitFor([&] { return host_->held() == 1; }));
  std::this_thread::sleep_for(std::chrono::milliseconds(25));
  host_->ReleaseHeld();
  v1::PullReply reply;
  const bool answered = call->Read(&reply);
  const std::string log = testing::internal::GetCapturedStderr();
  ASSERT_TRUE(answered);
  EXPECT_EQ(SlowOf(RequestKind::kPull) - before, 1u);
  EXPECT_THAT(log, HasSubstr("slow pull of "));
  EXPECT_THAT(log, HasSubstr("table fake, shards 0; 3 rows, "));
  EXPECT_THAT(log, HasSubstr("from ipv4:127.0.0.1:"));
  EXPECT_THAT(log, HasSubstr(std::string("; trace ") + kTraceId));
}

TEST_F(SlowStreamTest, TheTimeThatAPullIsKeptBackIsOfTheMemory) {
  DataServerOptions options;
  options.limits.pull_bytes_in_flight_max = 600;  // enough for one answer, not for two
  options.limits.slow_request_ms = 50;
  StartServer(options);
  host_->Hold();
  grpc::ClientContext contexts[2];
  std::vector<std::unique_ptr<PullCall>> calls;
  testing::internal::CaptureStderr();
  for (uint64_t r = 0; r < 2; ++r) {
    calls.push_back(stub_->Pull(&contexts[r]));
    v1::PullRequest request;
    Greet(&request);
    AddSegment(r == 0 ? kWide : kNarrow, r == 0 ? 3 : 4, {r, r + 1}, &request);
    ASSERT_TRUE(calls[r]->Write(request));
    ASSERT_TRUE(WaitFor([&] { return host_->held() == 1; }));
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  host_->ReleaseHeld();
  v1::PullReply reply;
  for (auto& call : calls) ASSERT_TRUE(call->Read(&reply));
  const std::string log = testing::internal::GetCapturedStderr();
  EXPECT_THAT(log, testing::ContainsRegex("table fake, shards 5; .*memory [1-9][0-9]+ ms"));
  EXPECT_THAT(log, testing::ContainsRegex("table fake, shards 0; .*memory 0 ms"));
}

}  // namespace slow_requests_test
}  // namespace hotbed
