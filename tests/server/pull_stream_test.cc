#include "server/streams/pull_stream.h"

#include <map>

#include "server/net/stream_metrics.h"
#include "tests/server/data_plane_fixture.h"

namespace hotbed {
namespace pull_stream_test {

using PullStreamTest = DataPlaneTest;

TEST_F(PullStreamTest, AnswersSegmentsOfSeveralTablesInOrder) {
  grpc::ClientContext context;
  auto call = stub_->Pull(&context);
  v1::PullRequest request;
  Greet(&request);
  request.mutable_header()->set_request(17);
  AddSegment(kWide, 3, {5, 1, 9}, &request);
  AddSegment(kNarrow, 4, {2}, &request);
  ASSERT_TRUE(call->Write(request));
  v1::PullReply reply;
  ASSERT_TRUE(call->Read(&reply));
  EXPECT_EQ(reply.header().request(), 17u);
  EXPECT_EQ(reply.header().hello().wire_version(), kWireVersion);
  EXPECT_EQ(reply.header().hello().cluster_id(), "cluster-a");
  EXPECT_GT(reply.header().hello().message_bytes_max(), 0u);
  EXPECT_GT(reply.header().hello().messages_in_flight_max(), 0u);
  ASSERT_EQ(reply.header().segments(), 2u);
  EXPECT_EQ(reply.header().exceptions_size(), 0);
  EXPECT_EQ(reply.header().row_bytes_size(), 0);
  ASSERT_EQ(reply.header().lsns_size(), 1) << "one value, which both segments share";
  EXPECT_EQ(reply.header().lsns(0), 99u);
  EXPECT_EQ(reply.rows(), ExpectedRows({5, 1, 9}, 8) + ExpectedRows({2}, 3));
  EXPECT_EQ(reply.flags(), "");

  request.mutable_header()->clear_hello();  // only the first message carries it
  request.mutable_header()->set_request(18);
  ASSERT_TRUE(call->Write(request));
  ASSERT_TRUE(call->Read(&reply));
  EXPECT_FALSE(reply.header().has_hello());
  EXPECT_EQ(reply.header().request(), 18u);
  call->WritesDone();
  EXPECT_FALSE(call->Read(&reply));
  EXPECT_TRUE(call->Finish().ok());
}

TEST_F(PullStreamTest, SendsFlagsBehindTheRows) {
  grpc::ClientContext context;
  auto call = stub_->Pull(&context);
  v1::PullRequest request;
  Greet(&request);
  request.mutable_header()->set_want_flags(true);
  AddSegment(kWide, 3, {5, 2}, &request);
  AddSegment(kNarrow, 4, {7}, &request);
  ASSERT_TRUE(call->Write(request));
  v1::PullReply reply;
  ASSERT_TRUE(call->Read(&reply));
  EXPECT_EQ(reply.rows(), ExpectedRows({5, 2}, 8) + ExpectedRows({7}, 3));
  EXPECT_EQ(reply.flags(), std::string("\1\0\1", 3));
}

TEST_F(PullStreamTest, ARefusedSegmentLeavesNoHole) {
  grpc::ClientContext context;
  auto call = stub_->Pull(&context);
  v1::PullRequest request;
  Greet(&request);
  request.mutable_header()->set_want_flags(true);
  AddSegment(kWide, 3, {1}, &request);
  AddSegment(kWide, 2, {2}, &request);   // a past epoch
  AddSegment(kNarrow, 4, {}, &request);  // no ids
  AddSegment(kNarrow, 4, {3, 4}, &request);
  AddSegment(kNowhere, 1, {5}, &request);
  AddSegment(kMoved, 8, {6}, &request);
  AddSegment(kWide, 3, {FakeShardHost::kIdLimit}, &request);
  AddSegment(kWide, 3, {7}, &request);
  ASSERT_TRUE(call->Write(request));
  v1::PullReply reply;
  ASSERT_TRUE(call->Read(&reply));
  const v1::ReplyHeader& header = reply.header();
  ASSERT_EQ(header.segments(), 8u);
  EXPECT_EQ(header.code(), v1::OK);
  const std::vector<v1::Code> codes = {v1::OK,
                                       v1::WRONG_EPOCH,
                                       v1::INVALID_ARGUMENT,
                                       v1::OK,
                                       v1::UNKNOWN_SHARD,
                                       v1::WRONG_EPOCH,
                                       v1::OUT_OF_RANGE,
                                       v1::OK};
  ASSERT_EQ(header.row_bytes_size(), 8);
  for (int i = 0; i < 8; ++i) {
    EXPECT_EQ(AnswerOf(header, i).code(), codes[i]) << i;
    EXPECT_EQ(header.row_bytes(i) > 0, codes[i] == v1::OK) << i;
    EXPECT_EQ(AnswerOf(header, i).detail().empty(), codes[i] == v1::OK) << i;
  }
  EXPECT_EQ(AnswerOf(header, 1).record().epoch(), 3u);
  EXPECT_EQ(AnswerOf(header, 5).record().epoch(), 9u);
  EXPECT_EQ(AnswerOf(header, 5).record().primary().server(), 77u);
  EXPECT_FALSE(AnswerOf(header, 4).has_record());
  EXPECT_EQ(reply.rows(), ExpectedRows({1}, 8) + ExpectedRows({3, 4}, 3) + ExpectedRows({7}, 8));
  EXPECT_EQ(reply.flags(), std::string("\1\1\0\1", 4));
}

TEST_F(PullStreamTest, MoreSegmentsThanTheRoomBeforeTheRowsExpects) {
  grpc::ClientContext context;
  auto call = stub_->Pull(&context);
  v1::PullRequest request;
  Greet(&request);
  std::vector<uint64_t> all;
  for (uint64_t i = 0; i < 1000; ++i) {
    AddSegment(kNarrow, 4, {i}, &request);
    all.push_back(i);
  }
  ASSERT_TRUE(call->Write(request));
  v1::PullReply reply;
  ASSERT_TRUE(call->Read(&reply));
  EXPECT_EQ(reply.header().segments(), 1000u);
  EXPECT_EQ(reply.rows(), ExpectedRows(all, 3));
}

TEST_F(PullStreamTest, PipelinedRequestsAreAllAnsweredOnce) {
  grpc::ClientContext context;
  auto call = stub_->Pull(&context);
  constexpr uint64_t kRequests = 500;
  std::thread writer([&] {
    for (uint64_t r = 1; r <= kRequests; ++r) {
      v1::PullRequest request;
      if (r == 1) Greet(&request);
      request.mutable_header()->set_request(r);
      std::vector<uint64_t> ids;
      for (uint64_t i = 0; i < r; ++i) ids.push_back(r * 7 + i);
      AddSegment(kWide, r % 3 == 0 ? 1 : 3, ids, &request);
      ASSERT_TRUE(call->Write(request));
    }
    call->WritesDone();
  });
  std::map<uint64_t, int> seen;
  v1::PullReply reply;
  while (call->Read(&reply)) {
    const uint64_t r = reply.header().request();
    ++seen[r];
    ASSERT_EQ(reply.header().segments(), 1u);
    std::vector<uint64_t> ids;
    for (uint64_t i = 0; i < r && r % 3 != 0; ++i) ids.push_back(r * 7 + i);
    EXPECT_EQ(AnswerOf(reply.header(), 0).code(), r % 3 == 0 ? v1::WRONG_EPOCH : v1::OK);
    EXPECT_EQ(reply.rows(), ExpectedRows(ids, 8)) << r;
  }
  writer.join();
  EXPECT_TRUE(call->Finish().ok());
  EXPECT_EQ(seen.size(), kRequests);
  EXPECT_TRUE(WaitFor([&] { return server_->plane().pull_budget.in_flight() == 0; }));
}

TEST_F(PullStreamTest, StopsReadingAtTheMessagesInFlight) {
  DataServerOptions options;
  options.limits.messages_in_flight_max = 3;
  StartServer(options);
  host_->Hold();
  grpc::ClientContext context;
  auto call = stub_->Pull(&context);
  for (uint64_t r = 0; r < 10; ++r) {
    v1::PullRequest request;
    Greet(&request);
    request.mutable_header()->set_request(r);
    AddSegment(kWide, 3, {r}, &request);
    ASSERT_TRUE(call->Write(request));
  }
  ASSERT_TRUE(WaitFor([&] { return host_->held() == 3; }));
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_EQ(host_->held(), 3u);
  host_->ReleaseHeld();
  v1::PullReply reply;
  for (int r = 0; r < 10; ++r) ASSERT_TRUE(call->Read(&reply));
}

TEST_F(PullStreamTest, WaitsForTheServersBudgetAndKeepsDeadlines) {
  DataServerOptions options;
  options.limits.pull_bytes_in_flight_max = 600;  // enough for one answer, not for two
  StartServer(options);
  host_->Hold();
  grpc::ClientContext contexts[3];
  std::vector<std::unique_ptr<PullCall>> calls;
  for (uint64_t r = 0; r < 3; ++r) {
    calls.push_back(stub_->Pull(&contexts[r]));
    v1::PullRequest request;
    Greet(&request);
    request.mutable_header()->set_request(r);
    if (r == 1) request.mutable_header()->set_deadline_ms(1);
    AddSegment(kWide, 3, {r, r + 1}, &request);
    ASSERT_TRUE(calls[r]->Write(request));
    ASSERT_TRUE(WaitFor([&] { return host_->held() == 1; }));
  }
  v1::PullReply reply;
  ASSERT_TRUE(calls[1]->Read(&reply)) << "at its deadline, not when there is room at last";
  EXPECT_EQ(reply.header().request(), 1u);
  EXPECT_EQ(reply.header().code(), v1::DEADLINE_EXCEEDED);
  EXPECT_EQ(host_->held(), 1u);
  host_->ReleaseHeld();
  for (const int r : {0, 2}) {
    ASSERT_TRUE(calls[r]->Read(&reply));
    EXPECT_EQ(reply.header().code(), v1::OK);
  }
}

TEST_F(PullStreamTest, AMessageKeptBackForItsStreamsShareKeepsItsDeadline) {
  DataServerOptions options;
  options.limits.pull_bytes_in_flight_max = 4000;  // a stream's share: 1000
  StartServer(options);
  host_->Hold();
  grpc::ClientContext context;
  auto call = stub_->Pull(&context);
  for (uint64_t r = 1; r <= 2; ++r) {
    v1::PullRequest request;
    Greet(&request);
    request.mutable_header()->set_request(r);
    if (r == 2) request.mutable_header()->set_deadline_ms(1);
    AddSegment(kWide, 3, std::vector<uint64_t>(r == 1 ? 1 : 30, 5), &request);
    ASSERT_TRUE(call->Write(request));
  }
  v1::PullReply reply;
  ASSERT_TRUE(call->Read(&reply));
  EXPECT_EQ(reply.header().request(), 2u);
  EXPECT_EQ(reply.header().code(), v1::DEADLINE_EXCEEDED);
  EXPECT_EQ(host_->held(), 1u);
  host_->ReleaseHeld();
  ASSERT_TRUE(call->Read(&reply));
  EXPECT_EQ(reply.header().request(), 1u);
}

// A client that asks for `bytes` of answers, many times, and reads none of them.
class StalledReaderTest : public DataPlaneTest {
 protected:
  static constexpr uint64_t kBudget = 8 << 20;
  static constexpr uint64_t kIds = 20'000;  // 640,000 bytes of rows

  void Start(int64_t write_timeout_ms) {
    DataServerOptions options;
    options.limits.pull_bytes_in_flight_max = kBudget;
    options.limits.write_timeout_ms = write_timeout_ms;
    StartServer(options);
  }
  v1::PullRequest Request(uint64_t number) {
    v1::PullRequest request;
    if (number == 0) Greet(&request);
    request.mutable_header()->set_request(number);
    AddSegment(kWide, 3, std::vector<uint64_t>(kIds, 5), &request);
    return request;
  }
  // Writes until the server stops reading.
  void Stall(PullCall* call) {
    writer_ = std::thread([this, call] {
      for (uint64_t r = 0; r < 60 && call->Write(Request(r)); ++r) {
      }
    });
    const auto in_flight = [this] { return server_->plane().pull_budget.in_flight(); };
    ASSERT_TRUE(WaitFor([&] { return in_flight() > kBudget / 8; }));
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }

  std::thread writer_;
};

TEST_F(StalledReaderTest, HoldsAQuarterOfTheBudgetAndTheOthersGoOn) {
  Start(/*write_timeout_ms=*/600'000);
  grpc::ClientContext stalled;
  auto stalled_call = stub_->Pull(&stalled);
  Stall(stalled_call.get());
  EXPECT_LE(server_->plane().pull_budget.in_flight(), kBudget / 4);
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(30));
  const auto stub = v1::Data::NewStub(Connect());
  auto call = stub->Pull(&context);
  v1::PullReply reply;
  for (uint64_t r = 0; r < 20; ++r) {
    ASSERT_TRUE(call->Write(Request(r)));
    ASSERT_TRUE(call->Read(&reply)) << "held up by the one that does not read";
    EXPECT_EQ(reply.header().code(), v1::OK);
  }
  stalled.TryCancel();
  writer_.join();
  EXPECT_EQ(stalled_call->Finish().error_code(), grpc::StatusCode::CANCELLED);
}

TEST_F(StalledReaderTest, LosesItsStreamAfterTheWriteTimeout) {
  Start(/*write_timeout_ms=*/300);
  const uint64_t stalled_before = StreamMetrics::Get().streams_stalled.Value();
  grpc::ClientContext stalled;
  auto call = stub_->Pull(&stalled);
  Stall(call.get());
  EXPECT_TRUE(WaitFor([&] { return server_->plane().pull_budget.in_flight() == 0; }));
  EXPECT_TRUE(WaitFor([&] { return server_->plane().streams.load() == 0; }));
  EXPECT_EQ(StreamMetrics::Get().streams_stalled.Value(), stalled_before + 1);
  writer_.join();
  v1::PullReply reply;
  while (call->Read(&reply)) {
  }
  EXPECT_EQ(call->Finish().error_code(), grpc::StatusCode::CANCELLED);
}

TEST_F(StalledReaderTest, LosesItsLookupAfterTheWriteTimeout) {
  Start(/*write_timeout_ms=*/300);
  const uint64_t stalled_before = StreamMetrics::Get().streams_stalled.Value();
  grpc::CompletionQueue queue;
  grpc::ClientContext context;  // no deadline
  // 6.4 MB. Without Finish() the client does not read: bytes beyond the first window stay in the
  // server.
  v1::PullRequest request;
  Greet(&request);
  AddSegment(kWide, 3, std::vector<uint64_t>(10 * kIds, 5), &request);
  auto call = stub_->AsyncLookup(&context, request, &queue);
  call->ReadInitialMetadata(&context);
  const auto in_flight = [this] { return server_->plane().lookup_budget.in_flight(); };
  ASSERT_TRUE(WaitFor([&] { return in_flight() > 0; }));
  EXPECT_TRUE(WaitFor([&] { return in_flight() == 0; }));
  EXPECT_EQ(StreamMetrics::Get().streams_stalled.Value(), stalled_before + 1);
  v1::PullReply reply;
  grpc::Status status;
  call->Finish(&reply, &status, &status);
  void* tag = nullptr;
  bool ok = false;
  while (tag != &status) ASSERT_TRUE(queue.Next(&tag, &ok));
  EXPECT_EQ(status.error_code(), grpc::StatusCode::CANCELLED) << status.error_message();
}

class LookupStreamTest : public DataPlaneTest {
 protected:
  // Generated stubs have lookups as unary calls only.
  auto Open(grpc::ClientContext* context) {
    using Factory = grpc::internal::ClientReaderWriterFactory<v1::PullRequest, v1::PullReply>;
    const grpc::internal::RpcMethod method("/hotbed.v1.Data/Lookup",
                                           grpc::internal::RpcMethod::BIDI_STREAMING, channel_);
    return std::unique_ptr<grpc::ClientReaderWriter<v1::PullRequest, v1::PullReply>>(
        Factory::Create(channel_.get(), method, context));
  }
};

TEST_F(LookupStreamTest, AnswersManyLookupsFromTheirOwnBudget) {
  StreamMetrics& metrics = StreamMetrics::Get();
  const uint64_t lookups_before = metrics.lookup_messages.Value();
  const uint64_t pulls_before = metrics.pull_messages.Value();
  host_->Hold();
  grpc::ClientContext context;
  auto call = Open(&context);
  v1::PullRequest request;
  Greet(&request);
  AddSegment(kWide, 3, {5, 1}, &request);
  for (uint64_t number = 1; number <= 3; ++number) {
    request.mutable_header()->set_request(number);
    ASSERT_TRUE(call->Write(request));
    request.mutable_header()->clear_hello();
  }
  ASSERT_TRUE(WaitFor([&] { return host_->held() == 3; }));
  EXPECT_GT(server_->plane().lookup_budget.in_flight(), 0u);
  EXPECT_EQ(server_->plane().pull_budget.in_flight(), 0u);
  host_->ReleaseHeld();
  std::map<uint64_t, v1::PullReply> replies;
  for (int i = 0; i < 3; ++i) {
    v1::PullReply reply;
    ASSERT_TRUE(call->Read(&reply));
    EXPECT_EQ(reply.header().has_hello(), i == 0);
    EXPECT_EQ(reply.rows(), ExpectedRows({5, 1}, 8));
    replies[reply.header().request()] = reply;
  }
  EXPECT_EQ(replies.size(), 3u);
  call->WritesDone();
  EXPECT_TRUE(call->Finish().ok());
  EXPECT_EQ(metrics.lookup_messages.Value(), lookups_before + 3);
  EXPECT_EQ(metrics.pull_messages.Value(), pulls_before);
  EXPECT_TRUE(WaitFor([&] { return server_->plane().lookup_budget.in_flight() == 0; }));
}

// A lookup that waits for the budget of lookups, which another has taken.
class WaitingLookupTest : public LookupStreamTest {
 protected:
  void SetUp() override {
    DataServerOptions options;
    options.limits.pull_bytes_in_flight_max = 4 * 600;  // lookups have a quarter
    StartServer(options);
    calls_before_ = server_->plane().calls.load();
    host_->Hold();
    Greet(&request_);
    AddSegment(kWide, 3, std::vector<uint64_t>(10, 5), &request_);
    first_ = Open(&first_context_);
    ASSERT_TRUE(first_->Write(request_));
    ASSERT_TRUE(WaitFor([&] { return host_->held() == 1; }));
  }
  // Call after the waiting lookup has ended for its caller.
  void ExpectItIsNotServed() {
    // A call is an open stream, or the accept of one.
    EXPECT_TRUE(WaitFor([&] { return server_->plane().calls.load() == calls_before_ + 1; }));
    host_->ReleaseHeld();  // from now on the host serves all that comes
    v1::PullReply reply;
    ASSERT_TRUE(first_->Read(&reply));
    EXPECT_EQ(reply.header().code(), v1::OK);
    first_->WritesDone();
    EXPECT_TRUE(first_->Finish().ok());
    EXPECT_TRUE(WaitFor([&] { return server_->plane().calls.load() == calls_before_; }));
    EXPECT_EQ(server_->plane().lookup_budget.in_flight(), 0u);
    EXPECT_EQ(host_->pulls(), 1u);
  }

  v1::PullRequest request_;
  grpc::ClientContext first_context_;
  std::unique_ptr<grpc::ClientReaderWriter<v1::PullRequest, v1::PullReply>> first_;
  uint64_t calls_before_ = 0;
};

TEST_F(WaitingLookupTest, IsNotServedAfterItsDeadline) {
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::milliseconds(100));
  v1::PullReply reply;
  const grpc::Status late = stub_->Lookup(&context, request_, &reply);
  // Either side may notice first.
  EXPECT_TRUE(late.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED ||
              reply.header().code() == v1::DEADLINE_EXCEEDED)
      << late.error_message();
  ExpectItIsNotServed();
}

TEST_F(WaitingLookupTest, IsNotServedAfterItsCallerHasGone) {
  const uint64_t parked_before = StreamMetrics::Get().requests_parked.Value();
  grpc::ClientContext context;  // no deadline
  grpc::CompletionQueue queue;
  auto call = stub_->AsyncLookup(&context, request_, &queue);
  v1::PullReply reply;
  grpc::Status status;
  call->Finish(&reply, &status, &status);
  const auto parked = [] { return StreamMetrics::Get().requests_parked.Value(); };
  ASSERT_TRUE(WaitFor([&] { return parked() == parked_before + 1; }));
  context.TryCancel();
  void* tag = nullptr;
  bool ok = false;
  ASSERT_TRUE(queue.Next(&tag, &ok));
  EXPECT_EQ(status.error_code(), grpc::StatusCode::CANCELLED);
  ExpectItIsNotServed();
}

TEST_F(PullStreamTest, ACancelledStreamDropsWhatWaits) {
  DataServerOptions options;
  options.limits.pull_bytes_in_flight_max = 600;
  StartServer(options);
  host_->Hold();
  {
    grpc::ClientContext context;
    auto call = stub_->Pull(&context);
    for (uint64_t r = 1; r <= 5; ++r) {
      v1::PullRequest request;
      Greet(&request);
      AddSegment(kWide, 3, {r, r + 1}, &request);
      ASSERT_TRUE(call->Write(request));
    }
    ASSERT_TRUE(WaitFor([&] { return host_->held() == 1; }));
    context.TryCancel();
    EXPECT_EQ(call->Finish().error_code(), grpc::StatusCode::CANCELLED);
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  host_->ReleaseHeld();
  EXPECT_TRUE(WaitFor([&] { return server_->plane().pull_budget.in_flight() == 0; }));
  EXPECT_TRUE(WaitFor([&] { return server_->plane().streams.load() == 0; }));
  EXPECT_EQ(host_->held(), 0u);
}

}  // namespace pull_stream_test
}  // namespace hotbed
