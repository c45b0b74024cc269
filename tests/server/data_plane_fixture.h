// A data server over a fake shard host, and a client of plain generated stubs.
#ifndef HOTBED_TESTS_SERVER_DATA_PLANE_FIXTURE_H_
#define HOTBED_TESTS_SERVER_DATA_PLANE_FIXTURE_H_

#include <grpcpp/create_channel.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "proto/data.grpc.pb.h"
#include "proto/wire.h"
#include "server/data_server.h"
#include "tests/proto/segment_twin.h"
#include "tests/server/fake_shard_host.h"

namespace hotbed {

inline constexpr ShardId kWide{1, 0};    // dim 8, epoch 3
inline constexpr ShardId kNarrow{2, 5};  // dim 3, epoch 4
inline constexpr ShardId kMoved{3, 1};   // not held; its record says epoch 9
inline constexpr ShardId kNowhere{4, 4};

inline std::string IdBytes(const std::vector<uint64_t>& ids) {
  return std::string(reinterpret_cast<const char*>(ids.data()), ids.size() * 8);
}
inline std::string FloatBytes(const std::vector<float>& values) {
  return std::string(reinterpret_cast<const char*>(values.data()), values.size() * 4);
}
// What the fake host answers.
inline std::string ExpectedRows(const std::vector<uint64_t>& ids, uint32_t dim) {
  std::vector<float> values;
  for (const uint64_t id : ids) {
    for (uint32_t c = 0; c < dim; ++c) values.push_back(static_cast<float>(id * 1000 + c));
  }
  return FloatBytes(values);
}

inline bool WaitFor(const std::function<bool()>& condition) {
  for (int i = 0; i < 5000; ++i) {
    if (condition()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return false;
}

template <typename Request>
void Greet(Request* request) {
  request->mutable_header()->mutable_hello()->set_wire_version(kWireVersion);
}

inline v1::PullGroup* AddSegment(ShardId shard, Epoch epoch, const std::vector<uint64_t>& ids,
                                 v1::PullRequest* request) {
  request->mutable_ids()->append(IdBytes(ids));
  const uint32_t count = static_cast<uint32_t>(ids.size());
  return AddSegment({.shard = shard, .epoch = epoch, .id_count = count}, request->mutable_header());
}

// `gradients` is the segment's part of the bulk field.
inline v1::PushGroup* AddSegment(ShardId shard, Epoch epoch, const std::vector<uint64_t>& ids,
                                 const std::string& gradients, v1::PushRequest* request,
                                 uint64_t seq = 0, uint32_t dim = 0) {
  request->mutable_ids()->append(IdBytes(ids));
  request->mutable_gradients()->append(gradients);
  PushAsk ask;
  ask.shard = shard;
  ask.epoch = epoch;
  ask.id_count = static_cast<uint32_t>(ids.size());
  ask.seq = seq;
  ask.dim = dim;
  return AddSegment(ask, request->mutable_header());
}

class DataPlaneTest : public ::testing::Test {
 protected:
  using PullCall = grpc::ClientReaderWriter<v1::PullRequest, v1::PullReply>;
  using PushCall = grpc::ClientReaderWriter<v1::PushRequest, v1::PushReply>;

  void SetUp() override { StartServer(DataServerOptions()); }

  void StartServer(DataServerOptions options) {
    stub_.reset();
    server_.reset();
    if (options.threads == 0) options.threads = 2;
    options.port.limits.unfinished_bytes_max = 256ull << 20;  // the largest message, and then some
    host_ = std::make_unique<FakeShardHost>();
    host_->AddShard(kWide, 8, 3);
    host_->AddShard(kNarrow, 3, 4);
    ShardRecord moved;
    moved.shard = kMoved;
    moved.epoch = 9;
    moved.primary = {77, 2};
    moved.range.limit = 10;
    moved.range.column_limit = 4;
    host_->AddRecord(moved);
    auto server = DataServer::Start(options, host_.get(), Clock::Real());
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    channel_ = Connect();
    stub_ = v1::Data::NewStub(channel_);
  }

  // A connection of its own.
  std::shared_ptr<grpc::Channel> Connect() {
    grpc::ChannelArguments args;
    args.SetMaxReceiveMessageSize(-1);
    args.SetMaxSendMessageSize(-1);
    args.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    return grpc::CreateCustomChannel(server_->address(), grpc::InsecureChannelCredentials(), args);
  }

  std::unique_ptr<FakeShardHost> host_;
  std::unique_ptr<DataServer> server_;
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<v1::Data::Stub> stub_;
};

}  // namespace hotbed

#endif  // HOTBED_TESTS_SERVER_DATA_PLANE_FIXTURE_H_
