// The data port over the real shard host: a plain generated client pulls the rows that it pushed,
// also after a restart.
#include <grpcpp/create_channel.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <functional>
#include <map>
#include <thread>

#include "absl/strings/str_cat.h"
#include "proto/data.grpc.pb.h"
#include "proto/wire.h"
#include "server/data_server.h"
#include "server/host/shard_host.h"
#include "server/server_status.h"
#include "tests/proto/segment_twin.h"
#include "tests/tiers/emulated_device.h"

namespace hotbed {
namespace real_host_test {

constexpr ShardId kShard{1, 0};
constexpr uint32_t kDim = 4;
constexpr ServerId kServer = 5;

class RealHostTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string path = absl::StrCat(::testing::TempDir(), "/hotbed-real-host-XXXXXX");
    ASSERT_NE(mkdtemp(path.data()), nullptr);
    dir_ = path;
  }
  void TearDown() override {
    stub_.reset();
    server_.reset();
    host_.reset();
    std::filesystem::remove_all(dir_);
  }

  // One life of the server process: its incarnation is also the shard's epoch.
  void StartServer(uint64_t incarnation) {
    ShardHostOptions options;
    options.data_dir = dir_;
    options.host_bytes = 128 << 20;
    options.open_device = open_device_;
    auto host = ShardHost::Open(options, Clock::Real());
    ASSERT_TRUE(host.ok()) << host.status();
    host_ = *std::move(host);
    ASSERT_TRUE(host_->SetIdentity({kServer, "cluster-a"}).ok());
    host_->SetIncarnation(incarnation);
    TableSpec table;
    table.id = kShard.table;
    table.name = "items";
    table.rows = 1000;
    table.dim = kDim;
    table.optimizer.kind = OptimizerKind::kSgd;
    table.optimizer.learning_rate = 1.0f;
    ShardRecord record;
    record.shard = kShard;
    record.range = {0, 1000, 0, kDim};
    record.epoch = incarnation;
    record.revision = 10 * incarnation;
    record.primary = {kServer, incarnation};
    record.members = {record.primary};
    const absl::Status assigned = host_->ApplyAssignment({table}, {record}, {});
    ASSERT_TRUE(assigned.ok()) << assigned;
    for (int i = 0; i < 5000 && host_->ShardsToActivate().empty(); ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    ASSERT_EQ(host_->ShardsToActivate().size(), 1u);
    record.active = true;
    record.base = record.members;
    ++record.revision;
    ASSERT_TRUE(host_->ApplyAssignment({}, {record}, {}).ok());
    ASSERT_TRUE(host_->Ready());
    auto server = DataServer::Start(DataServerOptions(), host_.get(), Clock::Real());
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    stub_ = v1::Data::NewStub(
        grpc::CreateChannel(server_->address(), grpc::InsecureChannelCredentials()));
  }

  static std::string Bytes(const std::vector<uint64_t>& ids) {
    return std::string(reinterpret_cast<const char*>(ids.data()), 8 * ids.size());
  }
  static std::string Bytes(const std::vector<float>& values) {
    return std::string(reinterpret_cast<const char*>(values.data()), 4 * values.size());
  }

  v1::ReplyHeader Push(Epoch epoch, uint64_t seq, uint64_t prev_seq, bool open,
                       const std::vector<uint64_t>& ids, const std::vector<float>& gradients) {
    grpc::ClientContext context;
    auto call = stub_->Push(&context);
    v1::PushRequest request;
    v1::PushHeader* const header = request.mutable_header();
    header->mutable_hello()->set_wire_version(kWireVersion);
    header->set_session(21);
    header->set_incarnation(1);
    PushAsk ask;
    ask.shard = kShard;
    ask.epoch = epoch;
    ask.id_count = static_cast<uint32_t>(ids.size());
    ask.seq = seq;
    ask.prev_seq = prev_seq;
    ask.open = open;
    ask.last_part = true;
    AddSegment(ask, header);
    request.set_ids(Bytes(ids));
    request.set_gradients(Bytes(gradients));
    v1::PushReply reply;
    EXPECT_TRUE(call->Write(request));
    EXPECT_TRUE(call->Read(&reply));
    return reply.header();
  }

  v1::PullReply Pull(Epoch epoch, const std::vector<uint64_t>& ids) {
    grpc::ClientContext context;
    v1::PullRequest request;
    const uint32_t count = static_cast<uint32_t>(ids.size());
    AddSegment({.shard = kShard, .epoch = epoch, .id_count = count}, request.mutable_header());
    request.mutable_header()->set_want_flags(true);
    request.set_ids(Bytes(ids));
    v1::PullReply reply;
    EXPECT_TRUE(stub_->Lookup(&context, request, &reply).ok());
    return reply;
  }

  std::string dir_;
  std::function<absl::StatusOr<std::unique_ptr<DeviceTier>>()> open_device_;
  std::unique_ptr<ShardHost> host_;
  std::unique_ptr<DataServer> server_;
  std::unique_ptr<v1::Data::Stub> stub_;
};

TEST_F(RealHostTest, PooledLookupsAndTheirRefusals) {
  StartServer(1);
  const v1::ReplyHeader pushed = Push(1, 1ull << 20, 0, true, {7, 3}, {1, 2, 3, 4, 5, 6, 7, 8});
  ASSERT_EQ(AnswerOf(pushed, 0).code(), v1::OK) << pushed.DebugString();
  v1::PullRequest request;
  const auto add = [&](v1::Pooling pooling, const std::vector<uint64_t>& ids,
                       const std::vector<uint32_t>& lengths) {
    v1::PullGroup* const segment = AddSegment({.shard = kShard,
                                               .epoch = 1,
                                               .id_count = static_cast<uint32_t>(ids.size()),
                                               .pooling = pooling,
                                               .bag_count = static_cast<uint32_t>(lengths.size())},
                                              request.mutable_header());
    request.mutable_ids()->append(Bytes(ids));
    for (const uint32_t length : lengths) {
      request.mutable_lengths()->append(reinterpret_cast<const char*>(&length), 4);
    }
    return segment;
  };
  add(v1::POOLING_SUM, {7, 3, 3, 4}, {3, 1});
  add(v1::POOLING_SUM, {7, 3}, {2, 0});
  add(v1::POOLING_SUM, {7, 3}, {2, 1});
  add(v1::POOLING_SUM, {7, 3, 4}, {1, 1});
  add(v1::POOLING_MAX, {3, 7, 4}, {2, 1})->set_want_arg_max(true);
  add(v1::POOLING_NONE, {7}, {});
  grpc::ClientContext context;
  v1::PullReply reply;
  ASSERT_TRUE(stub_->Lookup(&context, request, &reply).ok());
  ASSERT_EQ(reply.header().segments(), 6u);
  const auto detail = [&](int i) { return AnswerOf(reply.header(), i).detail(); };
  for (int i : {0, 4, 5}) EXPECT_EQ(AnswerOf(reply.header(), i).code(), v1::OK) << detail(i);
  for (int i : {1, 2, 3}) EXPECT_EQ(AnswerOf(reply.header(), i).code(), v1::INVALID_ARGUMENT) << i;
  EXPECT_NE(detail(1).find("bag 1 has length 0"), std::string::npos) << detail(1);
  EXPECT_NE(detail(2).find("bag 1 of length 1 ends at id 3 of 2"), std::string::npos) << detail(2);
  EXPECT_NE(detail(3).find("bag 1, the last, ends at id 2 of 3"), std::string::npos) << detail(3);
  EXPECT_NE(detail(3).find("items"), std::string::npos) << detail(3);
  const std::vector<float> rows = {-11, -14, -17, -20, 0, 0, 0, 0,  // sums
                                   -1,  -2,  -3,  -4,  0, 0, 0, 0,  // maxima
                                   -1,  -2,  -3,  -4};
  EXPECT_EQ(reply.rows(), Bytes(rows));
  const std::vector<uint32_t> args = {1, 1, 1, 1, 0, 0, 0, 0};
  EXPECT_EQ(reply.arg_max(), std::string(reinterpret_cast<const char*>(args.data()), 32));
}

TEST_F(RealHostTest, PushesAreReadBackAndSurviveARestart) {
  StartServer(1);
  const uint64_t step1 = 1ull << 20;
  const uint64_t step2 = 2ull << 20;
  v1::ReplyHeader pushed = Push(1, step1, 0, true, {7, 3}, {1, 2, 3, 4, 5, 6, 7, 8});
  ASSERT_EQ(pushed.segments(), 1u);
  ASSERT_EQ(AnswerOf(pushed, 0).code(), v1::OK) << pushed.DebugString();
  EXPECT_EQ(pushed.exceptions_size(), 0) << "the last sequence is that of the push";
  pushed = Push(1, step2, step1, false, {7}, {1, 1, 1, 1});
  ASSERT_EQ(AnswerOf(pushed, 0).code(), v1::OK) << pushed.DebugString();
  const std::vector<float> rows = {-2, -3, -4, -5, -5, -6, -7, -8, 0, 0, 0, 0};
  v1::PullReply pulled = Pull(1, {7, 3, 4});
  ASSERT_EQ(AnswerOf(pulled.header(), 0).code(), v1::OK) << pulled.header().DebugString();
  EXPECT_EQ(pulled.rows(), Bytes(rows));
  EXPECT_EQ(pulled.flags(), std::string("\1\1\0", 3));

  stub_.reset();
  server_.reset();
  ASSERT_TRUE(host_->Shutdown().ok());
  host_.reset();
  StartServer(2);
  EXPECT_EQ(AnswerOf(Pull(1, {7}).header(), 0).code(), v1::WRONG_EPOCH);
  pulled = Pull(2, {7, 3, 4});
  ASSERT_EQ(AnswerOf(pulled.header(), 0).code(), v1::OK) << pulled.header().DebugString();
  EXPECT_EQ(pulled.rows(), Bytes(rows));
  // The same push again is acknowledged and not applied.
  pushed = Push(2, step2, step1, false, {7}, {1, 1, 1, 1});
  EXPECT_EQ(AnswerOf(pushed, 0).code(), v1::OK) << pushed.DebugString();
  EXPECT_EQ(Pull(2, {7, 3, 4}).rows(), Bytes(rows));
}

// Some rows are in device memory, some below it, some do not exist; other answers are made
// concurrently.
TEST_F(RealHostTest, RowsOfADeviceGoStraightIntoWhatIsSent) {
  open_device_ = EmulatedDevice(SmallMessages(256), 16 << 10);
  StartServer(1);
  std::vector<uint64_t> ids;
  std::vector<float> gradients;
  for (uint64_t id = 0; id < 800; ++id) {
    ids.push_back(id);
    for (uint32_t c = 0; c < kDim; ++c) gradients.push_back(static_cast<float>(id + c));
  }
  ASSERT_EQ(AnswerOf(Push(1, 1 << 20, 0, true, ids, gradients), 0).code(), v1::OK);
  std::vector<std::thread> clients;
  for (uint64_t client = 0; client < 4; ++client) {
    clients.emplace_back([this, client] {
      for (uint64_t round = 0; round < 100; ++round) {
        std::vector<uint64_t> asked;
        std::vector<float> want;
        for (uint64_t k = 0; k < 50 + 40 * client; ++k) {
          asked.push_back((client * 211 + round * 17 + k * (1 + round % 3)) % 1000);
          for (uint32_t c = 0; c < kDim; ++c) {
            want.push_back(asked.back() < 800 ? -static_cast<float>(asked.back() + c) : 0.0f);
          }
        }
        const v1::PullReply pulled = Pull(1, asked);
        ASSERT_EQ(AnswerOf(pulled.header(), 0).code(), v1::OK);
        ASSERT_EQ(pulled.rows().size(), 4 * want.size());
        std::vector<float> got(want.size());
        std::memcpy(got.data(), pulled.rows().data(), 4 * got.size());
        ASSERT_TRUE(got == want) << "client " << client << ", round " << round;
      }
    });
  }
  for (std::thread& client : clients) client.join();
  const HostStatus status = host_->Status();
  EXPECT_GT(status.device_numbers["device_pinned_bytes"], 0u);
  EXPECT_GT(status.device_numbers["device_rows_direct_bytes"], 100'000u);
  EXPECT_EQ(status.device_numbers["device_rows_copied_bytes"], 0u)
      << "the pool has room for all answers";
}

TEST_F(RealHostTest, EveryMetricHasOneNameAndAHelpText) {
  open_device_ = EmulatedDevice(SmallMessages(256), 16 << 10);
  StartServer(1);
  ASSERT_EQ(AnswerOf(Push(1, 1 << 20, 0, true, {7}, {1, 2, 3, 4}), 0).code(), v1::OK);
  std::vector<MetricSample> samples;
  CollectHostMetrics(host_->Status(), &samples);
  std::map<std::pair<std::string, Labels>, double> values;
  for (const MetricSample& sample : samples) {
    EXPECT_TRUE(values.insert({{sample.name, sample.labels}, sample.value}).second) << sample.name;
    EXPECT_FALSE(sample.help.empty()) << sample.name;
  }
  EXPECT_GT((values[{"hotbed_server_device_bytes", {{"device", "emulated on the host"}}}]), 0);
  EXPECT_EQ((values[{"hotbed_table_pushed_rows_total", {{"table", "items"}}}]), 1);
  EXPECT_GE((values[{"hotbed_server_log_appends_total", {}}]), 1);
  // The status page asks for numbers by their keys.
  ServerSnapshot snapshot;
  snapshot.host = host_->Status();
  EXPECT_NE(RenderStatus(snapshot).json.find("\"rows_pushed\":1,"), std::string::npos);
}

TEST_F(RealHostTest, BadPushesChangeNothing) {
  StartServer(1);
  EXPECT_EQ(AnswerOf(Push(1, 1 << 20, 0, false, {7}, {1, 2, 3, 4}), 0).code(), v1::UNKNOWN_SESSION);
  EXPECT_EQ(AnswerOf(Push(2, 1 << 20, 0, true, {7}, {1, 2, 3, 4}), 0).code(), v1::WRONG_EPOCH);
  EXPECT_EQ(AnswerOf(Push(1, 1 << 20, 0, true, {1000}, {1, 2, 3, 4}), 0).code(), v1::OUT_OF_RANGE);
  EXPECT_EQ(AnswerOf(Pull(1, {1000}).header(), 0).code(), v1::OUT_OF_RANGE);
  EXPECT_EQ(Pull(1, {7}).flags(), std::string(1, '\0'));
}

}  // namespace real_host_test
}  // namespace hotbed
