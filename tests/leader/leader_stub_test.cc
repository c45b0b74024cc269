// Callers find the coordinator that leads, among real ports in this process.
#include "leader/leader_stub.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <string>
#include <thread>  // NOLINT(build/c++11)

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "planner/coordinator/shell/control_server.h"
#include "planner/coordinator/shell/stand_by_service.h"
#include "tests/proto/tool_client.h"

namespace hotbed {
namespace leader_stub_test {

using ::testing::HasSubstr;

// One coordinator: it leads, stands by, or is away, always at the same address.
class FakeCoordinator : private v1::Coordinator::Service {
 public:
  FakeCoordinator() { StandBy(""); }
  ~FakeCoordinator() override { Away(); }

  void Lead() {
    Away();
    tools_ = std::make_unique<ToolService>(ToolCalls({}, [] { return true; }));
    Open();
    server_->Serve({this}, tools_.get());
  }
  // While `leader` leads.
  void StandBy(const std::string& leader) {
    Away();
    standing_by_ = std::make_unique<StandByService>([leader] { return leader; });
    Open();
    server_->Serve({}, standing_by_.get());
  }
  void Away() { server_.reset(); }

  const std::string& address() const { return address_; }
  int calls() const { return calls_; }

 private:
  grpc::Status OpenSession(grpc::ServerContext*, const v1::OpenSessionRequest* request,
                           v1::OpenSessionReply* reply) override {
    reply->set_session(static_cast<uint64_t>(++calls_));
    return grpc::Status::OK;
  }
  grpc::Status WatchClusterMap(grpc::ServerContext*, const v1::GetClusterMapRequest*,
                               grpc::ServerWriter<v1::ClusterMap>* writer) override {
    writer->Write(v1::ClusterMap());
    return grpc::Status::OK;
  }
  void Open() {
    ControlServerOptions options;
    options.port.listen = address_;
    options.port.probes = false;
    auto server = ControlServer::Open(options, Clock::Real());
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    address_ = server_->port().address();
  }

  std::string address_ = "127.0.0.1:0";
  std::unique_ptr<ToolService> tools_;
  std::unique_ptr<StandByService> standing_by_;
  std::unique_ptr<ControlServer> server_;
  std::atomic<int> calls_ = 0;
};

class LeaderStubTest : public ::testing::Test {
 protected:
  std::unique_ptr<LeaderStub> StubOf(const std::string& addresses) const {
    grpc::ChannelArguments args;
    args.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    args.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 50);
    args.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 100);
    return std::make_unique<LeaderStub>(addresses, ClientIdentity(), args);
  }
  std::string Both() const { return absl::StrCat(a_.address(), ",", b_.address()); }

  static grpc::Status OpenSession(LeaderStub* stub, absl::Duration timeout = absl::Seconds(20),
                                  bool patient = false) {
    v1::OpenSessionReply reply;
    return stub->Call(timeout, patient, [&](v1::Coordinator::Stub* to, grpc::ClientContext* how) {
      return to->OpenSession(how, v1::OpenSessionRequest(), &reply);
    });
  }

  FakeCoordinator a_;
  FakeCoordinator b_;
};

TEST_F(LeaderStubTest, OneThatStandsByTellsWhereTheLeaderIs) {
  b_.Lead();
  a_.StandBy(b_.address());
  // The second address is not named by the caller in one of the two cases.
  for (const std::string& addresses : {Both(), a_.address()}) {
    const auto stub = StubOf(addresses);
    const int before = b_.calls();
    for (int i = 0; i < 3; ++i) {
      const grpc::Status status = OpenSession(stub.get());
      EXPECT_TRUE(status.ok()) << status.error_message();
    }
    EXPECT_EQ(b_.calls(), before + 3);
  }
}

TEST_F(LeaderStubTest, TheNextIsCalledWhenOneIsAway) {
  a_.Away();
  b_.Lead();
  const auto stub = StubOf(Both());
  EXPECT_TRUE(OpenSession(stub.get()).ok());
  // The leadership goes over.
  a_.Lead();
  b_.StandBy(a_.address());
  EXPECT_TRUE(OpenSession(stub.get(), absl::Seconds(20), /*patient=*/true).ok());
  EXPECT_EQ(a_.calls(), 1);
  EXPECT_EQ(b_.calls(), 1);
}

TEST_F(LeaderStubTest, ACallWaitsUntilSomebodyLeads) {
  const auto stub = StubOf(Both());
  const grpc::Status early = OpenSession(stub.get(), absl::Milliseconds(300));
  EXPECT_EQ(early.error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_THAT(early.error_message(), HasSubstr("stands by, and none leads now"));
  std::thread later([this] {
    absl::SleepFor(absl::Milliseconds(200));
    b_.Lead();
  });
  const grpc::Status status = OpenSession(stub.get());
  later.join();
  EXPECT_TRUE(status.ok()) << status.error_message();
}

TEST_F(LeaderStubTest, ALeaderOutOfReachIsNamed) {
  a_.Away();
  b_.StandBy(a_.address());
  const auto stub = StubOf(b_.address());
  const grpc::Status status = OpenSession(stub.get(), absl::Milliseconds(500));
  EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_THAT(status.error_message(), HasSubstr(absl::StrCat("the leader is at ", a_.address())));
  a_.Lead();
  EXPECT_TRUE(OpenSession(stub.get()).ok());
}

TEST_F(LeaderStubTest, NobodyThereEndsAnImpatientCallSoon) {
  a_.Away();
  b_.Away();
  const auto stub = StubOf(Both());
  const absl::Time begin = absl::Now();
  const grpc::Status status = OpenSession(stub.get(), absl::Seconds(60));
  EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_LT(absl::Now() - begin, absl::Seconds(4)) << "nobody waited for the connections";
}

TEST_F(LeaderStubTest, AStreamIsOpenedAtTheLeader) {
  b_.Lead();
  a_.StandBy(b_.address());
  const auto stub = StubOf(a_.address());
  for (const bool stands_by : {true, false}) {
    const auto place = stub->Find(absl::Seconds(20), /*patient=*/true);
    grpc::ClientContext context;
    const auto reader = place->stub->WatchClusterMap(&context, v1::GetClusterMapRequest());
    v1::ClusterMap map;
    EXPECT_EQ(reader->Read(&map), !stands_by);
    EXPECT_EQ(stub->Learn(*place, reader->Finish(), context), stands_by);
  }
}

TEST_F(LeaderStubTest, StopEndsAWait) {
  const auto stub = StubOf(Both());
  std::thread later([&] {
    absl::SleepFor(absl::Milliseconds(100));
    stub->Stop();
  });
  const absl::Time begin = absl::Now();
  EXPECT_FALSE(OpenSession(stub.get(), absl::Seconds(60)).ok());
  EXPECT_LT(absl::Now() - begin, absl::Seconds(30));
  later.join();
}

TEST_F(LeaderStubTest, HealthChecksSayThatOneStandsBy) {
  EXPECT_EQ(ToolClient(a_.address()).Health(""), "NOT_SERVING");
}

}  // namespace leader_stub_test
}  // namespace hotbed
