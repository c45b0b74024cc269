#include "server/streams/push_stream.h"

#include <random>

#include "tests/server/data_plane_fixture.h"

namespace hotbed {
namespace push_stream_test {

using PushStreamTest = DataPlaneTest;

std::string RandomBytes(size_t bytes, std::mt19937_64* random) {
  std::string text(bytes, '\0');
  for (char& c : text) c = static_cast<char>((*random)());
  return text;
}

TEST_F(PushStreamTest, HandsOverEachSegmentAsItWasSent) {
  grpc::ClientContext context;
  auto call = stub_->Push(&context);
  v1::PushRequest request;
  Greet(&request);
  request.mutable_header()->set_request(5);
  request.mutable_header()->set_session(11);
  const std::string wide = FloatBytes({1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16});
  const std::string narrow = FloatBytes({0.5, 0.25, 0.125});
  AddSegment(kWide, 3, {40, 41}, wide, &request, 1 << 20);
  AddSegment(kNarrow, 4, {6}, narrow, &request, 2 << 20);
  ASSERT_TRUE(call->Write(request));
  v1::PushReply reply;
  ASSERT_TRUE(call->Read(&reply));
  EXPECT_EQ(reply.header().request(), 5u);
  EXPECT_EQ(reply.header().hello().wire_version(), kWireVersion);
  ASSERT_EQ(reply.header().segments(), 2u);
  EXPECT_EQ(reply.header().exceptions_size(), 0);
  ASSERT_EQ(reply.header().lsns_size(), 1);
  EXPECT_EQ(reply.header().lsns(0), 99u);
  const auto pushes = host_->pushes();
  ASSERT_EQ(pushes.size(), 2u);
  EXPECT_EQ(pushes[0].shard, kWide);
  EXPECT_EQ(pushes[0].ids, (std::vector<uint64_t>{40, 41}));
  ASSERT_EQ(pushes[0].gradients.size(), 2u);
  EXPECT_EQ(std::string(pushes[0].gradients[1].begin(), pushes[0].gradients[1].end()),
            wide.substr(32));
  EXPECT_EQ(pushes[1].shard, kNarrow);
  EXPECT_EQ(std::string(pushes[1].gradients[0].begin(), pushes[1].gradients[0].end()), narrow);
}

// Large messages arrive in several slices, so that rows straddle them.
TEST_F(PushStreamTest, LargePipelinedMessagesKeepTheirOrderAndBytes) {
  std::mt19937_64 random(42);
  grpc::ClientContext context;
  auto call = stub_->Push(&context);
  constexpr uint64_t kMessages = 12;
  std::vector<std::string> sent;
  std::vector<std::vector<uint64_t>> ids(kMessages);
  for (uint64_t m = 0; m < kMessages; ++m) {
    const size_t rows = 1 + random() % 60000;
    for (size_t i = 0; i < rows; ++i) ids[m].push_back(random());
    sent.push_back(RandomBytes(rows * 12, &random));
    v1::PushRequest request;
    if (m == 0) Greet(&request);
    AddSegment(kNarrow, 4, ids[m], sent[m], &request, m);
    ASSERT_TRUE(call->Write(request));
  }
  v1::PushReply reply;
  for (uint64_t m = 0; m < kMessages; ++m) {
    ASSERT_TRUE(call->Read(&reply));
    ASSERT_EQ(reply.header().segments(), 1u);
    EXPECT_EQ(AnswerOf(reply.header(), 0).code(), v1::OK);
  }
  const auto pushes = host_->pushes();
  ASSERT_EQ(pushes.size(), kMessages);
  for (uint64_t m = 0; m < kMessages; ++m) {
    EXPECT_EQ(pushes[m].seq, m);  // in the order in which they were sent
    EXPECT_EQ(pushes[m].ids, ids[m]);
    std::string got;
    for (const auto& row : pushes[m].gradients) got.append(row.begin(), row.end());
    EXPECT_TRUE(got == sent[m]) << "message " << m;
  }
  EXPECT_TRUE(WaitFor([&] { return server_->plane().push_budget.in_flight() == 0; }));
}

TEST_F(PushStreamTest, AWrongDimOrUnknownShardTakesNoNeighbourWithIt) {
  grpc::ClientContext context;
  auto call = stub_->Push(&context);
  v1::PushRequest request;
  Greet(&request);
  AddSegment(kWide, 3, {1}, std::string(20, 'x'), &request, 0, 5);
  AddSegment(kNowhere, 1, {2, 3}, std::string(56, 'y'), &request, 0, 7);
  AddSegment(kNowhere, 2, {4}, std::string(8, 'z'), &request, 0, 2);
  AddSegment(kWide, 3, {}, "", &request);
  const std::string good = FloatBytes({1, 2, 3});
  AddSegment(kNarrow, 4, {5}, good, &request);
  ASSERT_TRUE(call->Write(request));
  v1::PushReply reply;
  ASSERT_TRUE(call->Read(&reply));
  ASSERT_EQ(reply.header().segments(), 5u);
  EXPECT_EQ(AnswerOf(reply.header(), 0).code(), v1::INVALID_ARGUMENT);
  EXPECT_NE(AnswerOf(reply.header(), 0).detail().find("dim 8"), std::string::npos);
  EXPECT_EQ(AnswerOf(reply.header(), 1).code(), v1::UNKNOWN_SHARD);
  EXPECT_EQ(AnswerOf(reply.header(), 2).code(), v1::UNKNOWN_SHARD);
  EXPECT_EQ(AnswerOf(reply.header(), 3).code(), v1::INVALID_ARGUMENT);
  EXPECT_EQ(AnswerOf(reply.header(), 4).code(), v1::OK);
  const auto pushes = host_->pushes();
  ASSERT_EQ(pushes.size(), 1u);
  EXPECT_EQ(std::string(pushes[0].gradients[0].begin(), pushes[0].gradients[0].end()), good);
}

TEST_F(PushStreamTest, DeletesOfABoundedTableAreRefused) {
  grpc::ClientContext context;
  auto call = stub_->Push(&context);
  v1::PushRequest request;
  Greet(&request);
  AddSegment(kWide, 3, {1, 2}, "", &request)->set_deletes(true);
  ASSERT_TRUE(call->Write(request));
  v1::PushReply reply;
  ASSERT_TRUE(call->Read(&reply));
  ASSERT_EQ(reply.header().segments(), 1u);
  EXPECT_EQ(AnswerOf(reply.header(), 0).code(), v1::INVALID_ARGUMENT);
  EXPECT_NE(AnswerOf(reply.header(), 0).detail().find("deletes rows of a bounded table"),
            std::string::npos)
      << AnswerOf(reply.header(), 0).detail();
  EXPECT_EQ(host_->pushes().size(), 0u);
}

TEST_F(PushStreamTest, WithoutDimsRecordsAndTheRestFindTheNeighbours) {
  grpc::ClientContext context;
  auto call = stub_->Push(&context);
  v1::PushRequest request;
  Greet(&request);
  AddSegment(kMoved, 8, {1, 2}, std::string(32, 'm'), &request);  // dim 4 by its record
  AddSegment(kNowhere, 1, {3, 4}, std::string(40, 'n'),
             &request);  // from the remaining bytes: dim 5
  const std::string good = FloatBytes({1, 2, 3});
  AddSegment(kNarrow, 4, {5}, good, &request);
  ASSERT_TRUE(call->Write(request));
  v1::PushReply reply;
  ASSERT_TRUE(call->Read(&reply));
  ASSERT_EQ(reply.header().segments(), 3u);
  EXPECT_EQ(AnswerOf(reply.header(), 0).code(), v1::WRONG_EPOCH);
  EXPECT_EQ(AnswerOf(reply.header(), 0).record().epoch(), 9u);
  EXPECT_EQ(AnswerOf(reply.header(), 1).code(), v1::UNKNOWN_SHARD);
  EXPECT_EQ(AnswerOf(reply.header(), 2).code(), v1::OK);

  AddSegment({9, 9}, 1, {6}, std::string(4, 'n'),
             &request);  // a second one: now neither can be located
  ASSERT_TRUE(call->Write(request));
  ASSERT_TRUE(call->Read(&reply));
  EXPECT_EQ(reply.header().code(), v1::UNKNOWN_SHARD);
  EXPECT_EQ(host_->pushes().size(), 1u);
}

TEST_F(PushStreamTest, GradientsThatDoNotFitAreRefusedAndTheStreamLives) {
  grpc::ClientContext context;
  auto call = stub_->Push(&context);
  v1::PushRequest bad;
  Greet(&bad);
  AddSegment(kWide, 3, {1}, std::string(33, 'x'), &bad);
  ASSERT_TRUE(call->Write(bad));
  v1::PushReply reply;
  ASSERT_TRUE(call->Read(&reply));
  EXPECT_EQ(reply.header().code(), v1::INVALID_ARGUMENT);
  EXPECT_NE(reply.header().detail().find("33"), std::string::npos);

  v1::PushRequest int8;
  int8.mutable_header()->set_gradient_type(v1::ROW_INT8);
  AddSegment(kWide, 3, {1}, std::string(16, 'x'), &int8);
  ASSERT_TRUE(call->Write(int8));
  ASSERT_TRUE(call->Read(&reply));
  EXPECT_EQ(reply.header().code(), v1::INVALID_ARGUMENT);

  v1::PushRequest half;
  half.mutable_header()->set_gradient_type(v1::ROW_FP16);
  AddSegment(kWide, 3, {1}, std::string(16, 'x'), &half);
  ASSERT_TRUE(call->Write(half));
  ASSERT_TRUE(call->Read(&reply));
  EXPECT_EQ(reply.header().code(), v1::OK);
  EXPECT_EQ(AnswerOf(reply.header(), 0).code(), v1::OK);
  EXPECT_EQ(host_->pushes().size(), 1u);
}

TEST_F(PushStreamTest, WaitsForTheServersBudget) {
  DataServerOptions options;
  options.limits.push_bytes_in_flight_max = 1000;
  StartServer(options);
  host_->Hold();
  // Two streams, each with a message of more than half the budget.
  grpc::ClientContext contexts[2];
  std::unique_ptr<PushCall> calls[2] = {stub_->Push(&contexts[0]), stub_->Push(&contexts[1])};
  for (auto& call : calls) {
    v1::PushRequest request;
    Greet(&request);
    AddSegment(kWide, 3, {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16},
               std::string(16 * 32, 'g'), &request);
    ASSERT_TRUE(call->Write(request));
  }
  ASSERT_TRUE(WaitFor([&] { return host_->held() == 1; }));
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_EQ(host_->held(), 1u);
  host_->ReleaseHeld();
  v1::PushReply reply;
  for (auto& call : calls) {
    ASSERT_TRUE(call->Read(&reply));
    EXPECT_EQ(AnswerOf(reply.header(), 0).code(), v1::OK);
  }
}

TEST_F(PushStreamTest, PushesThatWaitForRoomAreCounted) {
  DataServerOptions options;
  options.limits.push_bytes_in_flight_max = 1000;
  options.limits.push_bytes_waiting_max = 1000;
  StartServer(options);
  host_->Hold();
  // One request is in progress, one waits, and there is no memory for a third.
  grpc::ClientContext contexts[3];
  std::vector<std::unique_ptr<PushCall>> calls;
  const auto send = [&] {
    calls.push_back(stub_->Push(&contexts[calls.size()]));
    v1::PushRequest request;
    Greet(&request);
    AddSegment(kWide, 3, {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16},
               std::string(16 * 32, 'g'), &request);
    ASSERT_TRUE(calls.back()->Write(request));
  };
  send();
  ASSERT_TRUE(WaitFor([&] { return host_->held() == 1; }));
  send();
  ASSERT_TRUE(WaitFor([&] { return server_->plane().push_budget.waiting_bytes() > 500; }));
  send();
  v1::PushReply reply;
  ASSERT_TRUE(calls[2]->Read(&reply));
  EXPECT_EQ(reply.header().code(), v1::RESOURCE_EXHAUSTED);
  EXPECT_GT(reply.header().retry_after_ms(), 0u);
  EXPECT_NE(reply.header().detail().find("1000 bytes"), std::string::npos)
      << reply.header().detail();
  host_->ReleaseHeld();
  for (int i = 0; i < 2; ++i) {
    ASSERT_TRUE(calls[i]->Read(&reply));
    EXPECT_EQ(AnswerOf(reply.header(), 0).code(), v1::OK);
  }
  EXPECT_EQ(server_->plane().push_budget.waiting_bytes(), 0u);
}

}  // namespace push_stream_test
}  // namespace hotbed
