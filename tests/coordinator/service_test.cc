// The gRPC shell, in process, with fake shard servers as its callers.
#include "planner/coordinator/shell/service.h"

#include <gmock/gmock.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <thread>  // NOLINT(build/c++11)
#include <utility>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "leader/leader_stub.h"
#include "planner/coordinator/store/embedded_meta_store.h"
#include "proto/control.grpc.pb.h"
#include "tests/coordinator/control_client.h"
#include "tests/coordinator/memory_kv.h"
#include "tests/proto/tool_client.h"

namespace hotbed {
namespace service_test {

using ::testing::HasSubstr;

class ServiceTest : public ::testing::Test {
 protected:
  ServiceTest() { StartCoordinator(); }
  ~ServiceTest() override { StopCoordinator(); }

  void StartCoordinator(CoordinatorServiceOptions options = {},
                        std::function<bool()> leads = nullptr) {
    options.control.port.listen = "127.0.0.1:0";
    auto store = EmbeddedMetaStore::Open(std::make_unique<MemoryKv>(disk_));
    ASSERT_TRUE(store.ok()) << store.status();
    store_ = *std::move(store);
    CoreOptions core;
    core.token = absl::StrCat("process ", ++processes_);
    core.new_cluster_id = "test-cluster";
    core.lease_ttl_ms = 500;
    core.heartbeat_interval_ms = 100;
    coordinator_ = std::make_unique<Coordinator>(core, store_.get(), Clock::Real());
    if (leads != nullptr) coordinator_->SetLeads(std::move(leads));
    auto service = CoordinatorService::Start(options, coordinator_.get(), Clock::Real());
    ASSERT_TRUE(service.ok()) << service.status();
    service_ = *std::move(service);
    client_ = std::make_unique<ControlClient>(service_->address());
  }
  void StopCoordinator() {
    service_.reset();
    coordinator_.reset();
    store_.reset();
  }

  std::shared_ptr<MemoryDisk> disk_ = std::make_shared<MemoryDisk>();
  int processes_ = 0;
  std::unique_ptr<EmbeddedMetaStore> store_;
  std::unique_ptr<Coordinator> coordinator_;
  std::unique_ptr<CoordinatorService> service_;
  std::unique_ptr<ControlClient> client_;
};

// What it registers is what clients are sent to. (Over other addresses than loopback:
// seen_address_test.cc.)
TEST_F(ServiceTest, AnAddressThatNobodyCanConnectToIsRefused) {
  FakeServer server("s1", client_.get());
  for (const char* wildcard : {"0.0.0.0:7500", "[::]:7500"}) {
    server.address = wildcard;
    const absl::Status refused = server.Register();
    EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument) << refused;
    EXPECT_THAT(std::string(refused.message()), HasSubstr("--advertise=HOST:7500"));
  }
  server.address = "[::1]:7500";
  EXPECT_TRUE(server.Register().ok());
}

TEST_F(ServiceTest, AServersLife) {
  FakeServer server("s1", client_.get());
  ASSERT_TRUE(server.Register().ok());
  EXPECT_EQ(server.registration().lease_ttl_ms(), 500u);
  EXPECT_EQ(server.registration().heartbeat_interval_ms(), 100u);
  ASSERT_TRUE(client_->CreateTable("clicks", 100000).ok());
  ASSERT_TRUE(server.Heartbeat().ok());
  EXPECT_EQ(server.shards().size(), 8u);
  ASSERT_TRUE(server.ActivateAll().ok());
  for (const auto& [id, record] : server.shards()) EXPECT_TRUE(record.active());

  // A new process over the same data directory.
  ASSERT_TRUE(server.Register().ok());
  ASSERT_TRUE(server.Heartbeat().ok());
  for (const auto& [id, record] : server.shards()) {
    EXPECT_EQ(record.epoch(), 2u);
    EXPECT_FALSE(record.active());
  }
  ASSERT_TRUE(client_->DropTable("clicks").ok());
  ASSERT_TRUE(server.Heartbeat().ok());
  EXPECT_TRUE(server.shards().empty());

  for (int i = 0; i < 200 && client_->Map()->servers(0).live(); ++i) {
    absl::SleepFor(absl::Milliseconds(20));
  }
  EXPECT_FALSE(client_->Map()->servers(0).live()) << "no heartbeat, no lease";
}

// As after a pause: another coordinator may lead by then, and have failed this server over.
TEST_F(ServiceTest, OneThatLeadsNoMoreGrantsNoLease) {
  StopCoordinator();
  std::atomic<bool> leads = true;
  StartCoordinator({}, [&] { return leads.load(); });
  FakeServer server("s1", client_.get());
  ASSERT_TRUE(server.Register().ok());
  ASSERT_TRUE(server.Heartbeat().ok());
  leads = false;
  EXPECT_EQ(server.Heartbeat().code(), absl::StatusCode::kUnavailable);
  const auto map = client_->Map();
  EXPECT_EQ(map.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(map.status().message()), HasSubstr("leads no more"));
  // The coordinator that leads may know the table.
  v1::DropTableRequest drop;
  drop.set_name("t");
  EXPECT_EQ(client_->Call(&v1::Coordinator::Stub::DropTable, drop).status().code(),
            absl::StatusCode::kUnavailable);
}

// A map was not given, so the call may be made again: where another one leads.
TEST_F(ServiceTest, CallersOfOneThatLeadsNoMoreAskAgain) {
  StopCoordinator();
  std::atomic<bool> leads = false;
  StartCoordinator({}, [&] { return leads.load(); });
  LeaderStub stub(service_->address(), {}, {});
  int tries = 0;
  const grpc::Status status =
      stub.Call(absl::Seconds(30), true, [&](v1::Coordinator::Stub* to, grpc::ClientContext* call) {
        if (++tries == 3) leads = true;
        v1::ClusterMap map;
        return to->GetClusterMap(call, {}, &map);
      });
  EXPECT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(tries, 3);
}

TEST_F(ServiceTest, AnswersGeneralTools) {
  ToolClient tool(service_->address());
  EXPECT_EQ(tool.Health(""), "SERVING");
  EXPECT_EQ(tool.Health("hotbed.v1.Coordinator"), "SERVING");
  EXPECT_EQ(tool.Health("hotbed.v1.Data"), "service \"hotbed.v1.Data\" is not on this port");
  const std::vector<std::string> names = tool.Reflect("hotbed.v1.Coordinator.CreateTable");
  EXPECT_THAT(names,
              ::testing::IsSupersetOf({"hotbed.v1.Coordinator", "grpc.health.v1.Health",
                                       "hotbed.v1.CreateTableRequest", "hotbed.v1.TableSpec"}));
}

TEST_F(ServiceTest, HeartbeatsCarryLoads) {
  FakeServer server("s1", client_.get());
  ASSERT_TRUE(server.Register().ok());
  server.load.set_rows_resident(12345);
  ASSERT_TRUE(server.Heartbeat().ok());
  EXPECT_EQ(client_->Map()->servers(0).load().rows_resident(), 12345u);
}

TEST_F(ServiceTest, WatchSendsTheWholeThenWhatChanges) {
  FakeServer server("s1", client_.get());
  ASSERT_TRUE(server.Register().ok());
  ASSERT_TRUE(client_->CreateTable("a", 10).ok());
  MapWatch watch(client_.get(), 0);
  v1::ClusterMap first = watch.Next();
  EXPECT_FALSE(first.delta());
  EXPECT_EQ(first.tables_size(), 1);
  EXPECT_EQ(first.servers_size(), 1);

  ASSERT_TRUE(client_->CreateTable("b", 10).ok());
  v1::ClusterMap second = watch.Next();
  EXPECT_TRUE(second.delta());
  ASSERT_EQ(second.tables_size(), 1);
  EXPECT_EQ(second.tables(0).name(), "b");
  EXPECT_EQ(second.shards_size(), 1);

  ASSERT_TRUE(client_->DropTable("a").ok());
  EXPECT_THAT(watch.Next().tables_dropped(), ::testing::ElementsAre(1));

  MapWatch resumed(client_.get(), second.plan_revision());
  EXPECT_TRUE(resumed.Next().delta());
}

TEST_F(ServiceTest, AWatcherThatDoesNotReadGetsItsChangesJoined) {
  FakeServer server("s1", client_.get());
  ASSERT_TRUE(server.Register().ok());
  MapWatch slow(client_.get(), 0);
  for (int i = 0; i < 100; ++i) {
    ASSERT_TRUE(server.Heartbeat().ok());
    ASSERT_TRUE(client_->CreateTable(absl::StrCat("t", i), 1000, 50).ok());
  }
  std::set<std::string> tables;
  int messages = 0;
  while (tables.size() < 100) {
    v1::ClusterMap map = slow.Next();
    ASSERT_GT(map.plan_revision(), 0u);
    ++messages;
    for (const v1::TableSpec& t : map.tables()) tables.insert(t.name());
  }
  EXPECT_LE(messages, 102);
}

TEST_F(ServiceTest, WatchesBeyondTheLimitAreRefused) {
  StopCoordinator();
  CoordinatorServiceOptions options;
  options.watches.streams_max = 2;
  StartCoordinator(options);
  MapWatch one(client_.get(), 0), two(client_.get(), 0);
  EXPECT_GT(one.Next().plan_revision(), 0u);
  EXPECT_GT(two.Next().plan_revision(), 0u);
  MapWatch three(client_.get(), 0);
  const grpc::Status status = three.Finish();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_THAT(status.error_message(), HasSubstr("the limit is 2"));
}

TEST_F(ServiceTest, ManyCallersAtOnce) {
  ASSERT_TRUE(FakeServer("s1", client_.get()).Register().ok());
  absl::Mutex mu;
  std::set<std::pair<SessionId, Incarnation>> seen;
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 25; ++i) {
        auto reply = client_->OpenSession(absl::StrCat("job/", i % 5));
        ASSERT_TRUE(reply.ok()) << reply.status();
        absl::MutexLock lock(&mu);
        EXPECT_TRUE(seen.insert({reply->session(), reply->incarnation()}).second);
      }
    });
  }
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(seen.size(), 200u);
}

TEST_F(ServiceTest, ErrorsCrossTheWire) {
  auto created = client_->CreateTable("clicks", 10);
  EXPECT_EQ(created.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(created.status().message()), HasSubstr("no shard server is live"));
  EXPECT_EQ(client_->DropTable("none").status().code(), absl::StatusCode::kNotFound);
}

TEST_F(ServiceTest, ARestartKeepsEverythingAcknowledged) {
  FakeServer server("s1", client_.get());
  ASSERT_TRUE(server.Register().ok());
  ASSERT_TRUE(client_->CreateTable("clicks", 100000).ok());
  ASSERT_TRUE(server.Heartbeat().ok());
  ASSERT_TRUE(server.ActivateAll().ok());
  const SessionId session = client_->OpenSession("job/0")->session();
  StopCoordinator();
  EXPECT_EQ(client_->Map().status().code(), absl::StatusCode::kUnavailable);
  StartCoordinator();
  auto map = client_->Map();
  ASSERT_TRUE(map.ok()) << map.status();
  EXPECT_EQ(map->cluster_id(), "test-cluster");
  EXPECT_EQ(map->tables_size(), 1);
  for (const v1::ShardRecord& r : map->shards()) EXPECT_TRUE(r.active());
  EXPECT_EQ(client_->OpenSession("job/0")->session(), session);
  EXPECT_GT(client_->OpenSession("job/1")->session(), session);  // one counter: see OpenSession
  FakeServer same("s1", client_.get(), server);
  EXPECT_TRUE(same.Heartbeat().ok()) << "the server need not even notice";
}

TEST_F(ServiceTest, AStoreThatFailsIsToldAndComesBack) {
  ASSERT_TRUE(FakeServer("s1", client_.get()).Register().ok());
  ASSERT_TRUE(client_->OpenSession("a").ok());
  disk_->FailNext(MemoryDisk::Fault::kBeforeWrite);
  auto failed = client_->OpenSession("a");
  EXPECT_EQ(failed.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(failed.status().message()), HasSubstr("no space left"));
  absl::StatusOr<v1::OpenSessionReply> again = failed;
  for (int i = 0; i < 200 && !again.ok(); ++i) {
    absl::SleepFor(absl::Milliseconds(20));
    again = client_->OpenSession("a");
  }
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(again->incarnation(), 2u);
}

TEST_F(ServiceTest, StoppingEndsWatchesAndAnswersEveryone) {
  MapWatch watch(client_.get(), 0);
  EXPECT_GT(watch.Next().plan_revision(), 0u);
  service_->Shutdown();
  EXPECT_EQ(watch.Finish().error_code(), grpc::StatusCode::UNAVAILABLE);
  coordinator_->Submit(v1::OpenSessionRequest(), [](absl::StatusOr<Reply> reply) {
    EXPECT_EQ(reply.status().code(), absl::StatusCode::kUnavailable);
  });
}

TEST_F(ServiceTest, APortInUseIsNamed) {
  CoordinatorServiceOptions options;
  options.control.port.listen = service_->address();
  auto store = EmbeddedMetaStore::Open(std::make_unique<MemoryKv>(std::make_shared<MemoryDisk>()));
  ASSERT_TRUE(store.ok());
  CoreOptions core;
  core.token = "other";
  Coordinator other(core, store->get(), Clock::Real());
  auto service = CoordinatorService::Start(options, &other, Clock::Real());
  EXPECT_EQ(service.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(service.status().message()), HasSubstr(service_->address()));
}

TEST_F(ServiceTest, ARequestThatCannotBeReadIsToldSo) {
  grpc::GenericStub stub(
      grpc::CreateChannel(service_->address(), grpc::InsecureChannelCredentials()));
  grpc::CompletionQueue queue;
  grpc::ClientContext context;
  const grpc::Slice garbage(std::string("\xff\xff\xff\xff"));
  const auto call = stub.PrepareUnaryCall(&context, "/hotbed.v1.Coordinator/OpenSession",
                                          grpc::ByteBuffer(&garbage, 1), &queue);
  call->StartCall();
  grpc::ByteBuffer reply;
  grpc::Status status;
  call->Finish(&reply, &status, &queue);
  void* tag = nullptr;
  bool ok = false;
  ASSERT_TRUE(queue.Next(&tag, &ok));
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(status.error_message(),
              HasSubstr("/hotbed.v1.Coordinator/OpenSession: the request cannot be read"));
}

}  // namespace service_test
}  // namespace hotbed
