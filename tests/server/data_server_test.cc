#include "server/data_server.h"

#include <algorithm>
#include <atomic>
#include <string>
#include <vector>

#include "proto/control.grpc.pb.h"
#include "tests/proto/tool_client.h"
#include "tests/server/data_plane_fixture.h"

namespace hotbed {
namespace data_server_test {

using DataServerTest = DataPlaneTest;

v1::PullRequest SmallPull(ShardId shard, Epoch epoch) {
  v1::PullRequest request;
  AddSegment(shard, epoch, {4, 5}, &request);
  return request;
}

TEST_F(DataServerTest, LooksUpWithoutAStream) {
  grpc::ClientContext context;
  v1::PullReply reply;
  ASSERT_TRUE(stub_->Lookup(&context, SmallPull(kWide, 3), &reply).ok());
  EXPECT_EQ(reply.rows(), ExpectedRows({4, 5}, 8));
  EXPECT_FALSE(reply.header().has_hello());

  grpc::ClientContext stale;
  ASSERT_TRUE(stub_->Lookup(&stale, SmallPull(kWide, 9), &reply).ok());
  EXPECT_EQ(AnswerOf(reply.header(), 0).code(), v1::WRONG_EPOCH);
  EXPECT_EQ(AnswerOf(reply.header(), 0).record().epoch(), 3u);

  v1::PullRequest foreign = SmallPull(kWide, 3);
  Greet(&foreign);
  foreign.mutable_header()->mutable_hello()->set_cluster_id("cluster-b");
  grpc::ClientContext elsewhere;
  EXPECT_EQ(stub_->Lookup(&elsewhere, foreign, &reply).error_code(),
            grpc::StatusCode::FAILED_PRECONDITION);
}

TEST_F(DataServerTest, AnswersGeneralTools) {
  std::atomic<bool> ready{true};
  DataServerOptions options;
  options.ready = [&ready] { return ready.load(); };
  StartServer(options);
  ToolClient tool(server_->address());
  EXPECT_EQ(tool.Health(""), "SERVING");
  EXPECT_EQ(tool.Health("hotbed.v1.Data"), "SERVING");
  EXPECT_EQ(tool.Health("grpc.health.v1.Health"), "SERVING");
  ready = false;
  EXPECT_EQ(tool.Health(""), "NOT_SERVING");
  EXPECT_EQ(tool.Health("hotbed.v1.Data"), "NOT_SERVING");
  EXPECT_EQ(tool.Health("hotbed.v1.Nothing"), "service \"hotbed.v1.Nothing\" is not on this port");
  const std::vector<std::string> names = tool.Reflect("hotbed.v1.Data");
  for (const char* name : {"hotbed.v1.Data", "hotbed.v1.Replica", "grpc.health.v1.Health",
                           "hotbed.v1.PullRequest", "hotbed.v1.ShardRecord"}) {
    EXPECT_EQ(std::count(names.begin(), names.end(), name) > 0, true) << name;
  }
  const std::vector<std::string> unknown = tool.Reflect("hotbed.v1.Nothing");
  EXPECT_EQ(unknown.back(), "\"hotbed.v1.Nothing\" is not known here");

  // A row stream works beside them, and a method of no service is refused as before.
  grpc::ClientContext context;
  v1::PullReply reply;
  EXPECT_TRUE(stub_->Lookup(&context, SmallPull(kWide, 3), &reply).ok());
  grpc::ClientContext other;
  v1::ListEventsReply events;
  const grpc::Status status =
      v1::Coordinator::NewStub(channel_)->ListEvents(&other, v1::ListEventsRequest(), &events);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::UNIMPLEMENTED);
}

TEST_F(DataServerTest, NamesAPortInUse) {
  DataServerOptions options;
  options.port.listen = server_->address();
  const auto second = DataServer::Start(options, host_.get(), Clock::Real());
  ASSERT_FALSE(second.ok());
  EXPECT_TRUE(absl::IsUnavailable(second.status()));
  EXPECT_NE(std::string(second.status().message()).find(server_->address()), std::string::npos);
}

TEST_F(DataServerTest, RefusesStreamsBeyondItsLimit) {
  DataServerOptions options;
  options.limits.streams_max = 1;
  StartServer(options);
  grpc::ClientContext first_context;
  auto first = stub_->Pull(&first_context);
  v1::PullRequest request = SmallPull(kWide, 3);
  Greet(&request);
  v1::PullReply reply;
  ASSERT_TRUE(first->Write(request));
  ASSERT_TRUE(first->Read(&reply));
  grpc::ClientContext second_context;
  auto second = stub_->Pull(&second_context);
  second->Write(request);
  EXPECT_FALSE(second->Read(&reply));
  EXPECT_EQ(second->Finish().error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  grpc::ClientContext lookup;
  EXPECT_TRUE(stub_->Lookup(&lookup, SmallPull(kWide, 3), &reply).ok()) << "lookups do not count";
  EXPECT_EQ(server_->plane().streams.load(), 1u);
}

TEST_F(DataServerTest, FinishesWhatIsInFlightWhenItStops) {
  host_->Hold();
  grpc::ClientContext context;
  auto call = stub_->Pull(&context);
  v1::PullRequest request = SmallPull(kWide, 3);
  Greet(&request);
  ASSERT_TRUE(call->Write(request));
  ASSERT_TRUE(WaitFor([&] { return host_->held() == 1; }));
  std::thread stopper([&] { server_->Stop(10'000); });
  ASSERT_TRUE(WaitFor([&] { return server_->plane().draining.load(); }));
  ASSERT_TRUE(call->Write(request));  // too late: refused, with a retry delay
  v1::PullReply reply;
  ASSERT_TRUE(call->Read(&reply));
  EXPECT_EQ(reply.header().code(), v1::UNAVAILABLE);
  ASSERT_EQ(reply.header().segments(), 1u);
  EXPECT_GT(reply.header().retry_after_ms(), 0u);
  grpc::ClientContext late;
  ASSERT_TRUE(stub_->Lookup(&late, SmallPull(kWide, 3), &reply).ok());
  EXPECT_EQ(reply.header().code(), v1::UNAVAILABLE) << "a unary lookup learns as much";
  EXPECT_GT(reply.header().retry_after_ms(), 0u);
  host_->ReleaseHeld();
  ASSERT_TRUE(call->Read(&reply));
  EXPECT_EQ(reply.header().code(), v1::OK);
  EXPECT_EQ(reply.rows(), ExpectedRows({4, 5}, 8));
  stopper.join();
  EXPECT_FALSE(call->Read(&reply));
}

TEST_F(DataServerTest, StopsWithOpenStreamsAndHeldWork) {
  host_->Hold();
  grpc::ClientContext context;
  auto call = stub_->Pull(&context);
  v1::PullRequest request = SmallPull(kWide, 3);
  Greet(&request);
  ASSERT_TRUE(call->Write(request));
  ASSERT_TRUE(WaitFor([&] { return host_->held() == 1; }));
  std::thread stopper([&] { server_->Stop(1); });
  std::this_thread::sleep_for(std::chrono::milliseconds(30));
  host_->ReleaseHeld();  // the host finishes the request; its answer is dropped
  stopper.join();
  std::string why_not;
  EXPECT_TRUE(server_->Healthy(&why_not)) << why_not;
}

}  // namespace data_server_test
}  // namespace hotbed
