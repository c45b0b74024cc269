#include "server/peers/transfer_stream.h"

#include <gmock/gmock.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/generic/generic_stub.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "server/data_server.h"
#include "tests/common/test_seed.h"
#include "tests/server/fake_shard_host.h"
#include "tests/server/replica_recorder.h"

namespace hotbed {
namespace transfer_stream_test {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr Member kSelf = {7, 70};
constexpr Member kPeer = {3, 30};

// A data server with a client of generated stubs.
class TransferStreamTest : public ::testing::Test {
 protected:
  using Call = grpc::ClientReaderWriter<v1::TransferMessage, v1::TransferReply>;

  void SetUp() override {
    host_.SetReplicaSink(&recorder_);
    StartServer(/*replica_tail_bytes=*/0);
  }
  void StartServer(uint64_t replica_tail_bytes) {
    server_.reset();
    DataServerOptions options;
    options.threads = 2;
    options.peer_limits.transfer_bytes_max = 200'000;
    options.peer_limits.replica_tail_bytes_max = replica_tail_bytes;
    auto server = DataServer::Start(options, &host_, Clock::Real());
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    server_->network()->SetSelf(kSelf, "cluster-a");
    server_->network()->SetPeers({{{kPeer.server, kPeer.incarnation + 1}, ""}, {{5, 1}, ""}});
    grpc::ChannelArguments args;
    args.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    channel_ =
        grpc::CreateCustomChannel(server_->address(), grpc::InsecureChannelCredentials(), args);
    stub_ = v1::Replica::NewStub(channel_);
  }

  static v1::TransferMessage Hello(const Member& from = kPeer) {
    v1::TransferMessage message;
    message.mutable_header()->mutable_hello()->set_wire_version(kWireVersion);
    message.mutable_header()->mutable_hello()->set_cluster_id("cluster-a");
    message.mutable_header()->mutable_from()->set_server(from.server);
    message.mutable_header()->mutable_from()->set_incarnation(from.incarnation);
    message.mutable_header()->mutable_to()->set_server(kSelf.server);
    message.mutable_header()->mutable_to()->set_incarnation(kSelf.incarnation);
    return message;
  }
  static void AddReply(uint64_t chunk, v1::TransferMessage* message) {
    v1::TransferItem* const item = message->mutable_header()->add_items();
    item->set_kind(v1::TRANSFER_SNAPSHOT_REPLY);
    item->set_chunk(chunk);
    item->mutable_to()->set_server(kSelf.server);
    item->mutable_to()->set_incarnation(kSelf.incarnation);
  }
  static v1::TransferMessage Body(v1::TransferKind kind, uint64_t chunk, uint64_t bytes) {
    v1::TransferMessage message;
    AddReply(chunk, &message);
    v1::TransferItem* const item = message.mutable_header()->mutable_items(0);
    item->set_kind(kind);
    item->set_body_bytes(bytes);
    if (kind == v1::TRANSFER_APPEND) item->add_record_bytes(bytes);
    message.set_body(std::string(bytes, 'b'));
    return message;
  }
  // Sends `message`; returns how the stream ends.
  grpc::Status Say(const v1::TransferMessage& message) {
    grpc::ClientContext context;
    const auto call = stub_->Transfer(&context);
    call->Write(message);
    v1::TransferReply reply;
    while (call->Read(&reply)) {
    }
    return call->Finish();
  }

  ReplicaRecorder recorder_;
  FakeShardHost host_;
  std::unique_ptr<DataServer> server_;
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<v1::Replica::Stub> stub_;
};

TEST_F(TransferStreamTest, AnswersTheHelloAndHandsOverInOrder) {
  grpc::ClientContext context;
  const auto call = stub_->Transfer(&context);
  v1::TransferMessage message = Hello();
  AddReply(1, &message);
  AddReply(2, &message);
  ASSERT_TRUE(call->Write(message));
  v1::TransferReply reply;
  ASSERT_TRUE(call->Read(&reply));
  EXPECT_EQ(reply.hello().cluster_id(), "cluster-a");
  EXPECT_EQ(reply.hello().wire_version(), kWireVersion);
  message.Clear();
  AddReply(3, &message);
  ASSERT_TRUE(call->Write(message));
  ASSERT_TRUE(Soon([&] { return recorder_.heard_count() == 3; }));
  EXPECT_THAT(recorder_.chunks(), ElementsAre(1, 2, 3));
  EXPECT_TRUE(recorder_.lost().empty());
  call->WritesDone();
  EXPECT_TRUE(call->Finish().ok());
  ASSERT_TRUE(Soon([&] { return recorder_.lost().size() == 1; }));
  EXPECT_EQ(recorder_.lost()[0], kPeer);
}

TEST_F(TransferStreamTest, RefusesStrangers) {
  v1::TransferMessage message = Hello();
  message.mutable_header()->clear_hello();
  EXPECT_EQ(Say(message).error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  message = Hello();
  message.mutable_header()->clear_from();
  EXPECT_EQ(Say(message).error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  message = Hello();
  message.mutable_header()->mutable_hello()->set_wire_version(kWireVersion + 1);
  EXPECT_EQ(Say(message).error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  message = Hello();
  message.mutable_header()->mutable_hello()->set_cluster_id("cluster-b");
  grpc::Status status = Say(message);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  EXPECT_THAT(status.error_message(), HasSubstr("'cluster-b'"));
  message = Hello();
  message.mutable_header()->mutable_to()->set_incarnation(69);
  status = Say(message);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  EXPECT_THAT(status.error_message(), HasSubstr("incarnation 70"));
  server_->network()->SetSelf({}, "");
  EXPECT_EQ(Say(Hello()).error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_EQ(recorder_.heard_count(), 0u);
  EXPECT_TRUE(recorder_.lost().empty());
}

TEST_F(TransferStreamTest, AnOlderProcessOfTheSameServerIsRefused) {
  grpc::ClientContext context;
  const auto call = stub_->Transfer(&context);
  ASSERT_TRUE(call->Write(Hello({3, 31})));
  v1::TransferReply reply;
  ASSERT_TRUE(call->Read(&reply));
  const grpc::Status status = Say(Hello({3, 30}));
  EXPECT_EQ(status.error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  EXPECT_THAT(status.error_message(), HasSubstr("incarnation 31"));
  context.TryCancel();
}

TEST_F(TransferStreamTest, ANewerStreamTakesTheOldersPlace) {
  grpc::ClientContext first_context, second_context;
  const auto first = stub_->Transfer(&first_context);
  v1::TransferReply reply;
  ASSERT_TRUE(first->Write(Hello()));
  ASSERT_TRUE(first->Read(&reply));
  const auto second = stub_->Transfer(&second_context);
  ASSERT_TRUE(second->Write(Hello()));
  ASSERT_TRUE(second->Read(&reply));
  v1::TransferMessage message;
  AddReply(1, &message);
  first->Write(message);
  EXPECT_FALSE(first->Read(&reply));
  EXPECT_EQ(first->Finish().error_code(), grpc::StatusCode::ABORTED);
  message.mutable_header()->mutable_items(0)->set_chunk(2);
  ASSERT_TRUE(second->Write(message));
  ASSERT_TRUE(Soon([&] { return recorder_.heard_count() == 1; }));
  EXPECT_THAT(recorder_.chunks(), ElementsAre(2));
  EXPECT_EQ(recorder_.lost().size(), 1u);
  second_context.TryCancel();
}

// Rows wait for the disk: the stream is not read, and resumes by itself.
TEST_F(TransferStreamTest, RowsBeyondTheirBudgetAreNotRead) {
  recorder_.Keep();
  grpc::ClientContext context;
  const auto call = stub_->Transfer(&context);
  ASSERT_TRUE(call->Write(Hello()));
  std::thread writer([&] {
    for (uint64_t i = 0; i < 20; ++i) {
      if (!call->Write(Body(v1::TRANSFER_SNAPSHOT_ROWS, i, 30'000))) return;
    }
  });
  ASSERT_TRUE(Soon([&] { return recorder_.heard_count() == 4; }));  // 4 x 30,000 >= 100,000
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_EQ(recorder_.heard_count(), 4u);
  EXPECT_EQ(server_->peers().budget->rows_bytes(), 120'000u);
  recorder_.LetGo();
  ASSERT_TRUE(Soon([&] { return recorder_.heard_count() == 20; }));
  writer.join();
  EXPECT_TRUE(Soon([&] { return server_->peers().budget->rows_bytes() == 0; }));
  context.TryCancel();
}

// Records wait for messages that the same stream may bring, so it ends instead.
TEST_F(TransferStreamTest, RecordsBeyondTheirBudgetEndTheStream) {
  recorder_.Keep();
  grpc::ClientContext context;
  const auto call = stub_->Transfer(&context);
  ASSERT_TRUE(call->Write(Hello()));
  for (uint64_t i = 0; i < 4; ++i) call->Write(Body(v1::TRANSFER_APPEND, i, 30'000));
  v1::TransferReply reply;
  ASSERT_TRUE(call->Read(&reply));
  EXPECT_FALSE(call->Read(&reply));
  EXPECT_EQ(call->Finish().error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_THAT(recorder_.chunks(), ElementsAre(0, 1, 2));
  ASSERT_TRUE(Soon([&] { return recorder_.lost().size() == 1; }));
  // The next message of the primary may free them, so a new stream is read.
  v1::TransferMessage again = Hello();
  AddReply(9, &again);
  grpc::ClientContext second_context;
  const auto second = stub_->Transfer(&second_context);
  ASSERT_TRUE(second->Write(again));
  ASSERT_TRUE(Soon([&] { return recorder_.heard_count() == 4; }));
  recorder_.LetGo();
  EXPECT_EQ(server_->peers().budget->log_bytes(), 0u);
  second_context.TryCancel();
}

// Records that shards keep for other replicas stay where they were received. If they counted
// against the limit for uncommitted records, every stream would end from then on.
TEST_F(TransferStreamTest, RecordsThatAreKeptHaveRoomBesideThoseOnTheirWay) {
  StartServer(/*replica_tail_bytes=*/100'000);
  recorder_.Keep();
  grpc::ClientContext context;
  const auto call = stub_->Transfer(&context);
  ASSERT_TRUE(call->Write(Hello()));
  for (uint64_t i = 0; i < 6; ++i) {
    ASSERT_TRUE(call->Write(Body(v1::TRANSFER_APPEND, i, 30'000)));
  }
  ASSERT_TRUE(Soon([&] { return recorder_.heard_count() == 6; }));
  EXPECT_EQ(server_->peers().budget->log_bytes(), 180'000u);
  call->Write(Body(v1::TRANSFER_APPEND, 6, 30'000));  // 100,000 for each of the two
  v1::TransferReply reply;
  while (call->Read(&reply)) {
  }
  EXPECT_EQ(call->Finish().error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_EQ(recorder_.heard_count(), 6u);
  recorder_.LetGo();
}

TEST_F(TransferStreamTest, StopsWithOpenStreamsWhoseMessagesAreStillHeld) {
  recorder_.Keep();
  grpc::ClientContext context;
  const auto call = stub_->Transfer(&context);
  ASSERT_TRUE(call->Write(Hello()));
  for (uint64_t i = 0; i < 5; ++i) call->Write(Body(v1::TRANSFER_SNAPSHOT_ROWS, i, 30'000));
  ASSERT_TRUE(Soon([&] { return recorder_.heard_count() == 4; }));
  server_->Stop(0);
  server_.reset();
  v1::TransferReply reply;
  while (call->Read(&reply)) {
  }
  call->Finish();
  recorder_.LetGo();  // after the server has gone
}

// Random bytes, and messages with changed bytes: each stream ends with an error or continues, and
// the server serves the next one.
TEST_F(TransferStreamTest, GarbageHarmsNobody) {
  const TestSeed seed(21);
  Random random(seed.value());
  grpc::GenericStub raw(channel_);
  int ended = 0;
  for (int round = 0; round < 150; ++round) {
    v1::TransferMessage message = Hello({4, 1});
    for (uint64_t n = random.Uniform(4); n > 0; --n) AddReply(n, &message);
    std::string bytes = message.SerializeAsString();
    if (random.OneIn(3)) bytes = std::string(random.Uniform(200), static_cast<char>(round));
    for (uint64_t n = random.Uniform(6); n > 0 && !bytes.empty(); --n) {
      bytes[random.Uniform(bytes.size())] = static_cast<char>(random.Next());
    }
    grpc::CompletionQueue queue;
    grpc::ClientContext context;
    const auto call = raw.PrepareCall(&context, "/hotbed.v1.Replica/Transfer", &queue);
    void* tag = nullptr;
    bool ok = false;
    call->StartCall(nullptr);
    queue.Next(&tag, &ok);
    grpc::Slice slice(bytes);
    call->WriteLast(grpc::ByteBuffer(&slice, 1), grpc::WriteOptions(), nullptr);
    queue.Next(&tag, &ok);
    grpc::ByteBuffer answer;
    do {
      call->Read(&answer, nullptr);
      queue.Next(&tag, &ok);
    } while (ok);
    grpc::Status status;
    call->Finish(&status, nullptr);
    queue.Next(&tag, &ok);
    if (!status.ok()) ++ended;
    queue.Shutdown();
    while (queue.Next(&tag, &ok)) {
    }
  }
  EXPECT_GT(ended, 50);
  v1::TransferMessage good = Hello({5, 1});
  AddReply(777, &good);
  grpc::ClientContext context;
  const auto call = stub_->Transfer(&context);
  ASSERT_TRUE(call->Write(good));
  EXPECT_TRUE(Soon([&] {
    const auto chunks = recorder_.chunks();
    return !chunks.empty() && chunks.back() == 777;
  }));
  context.TryCancel();
}

}  // namespace transfer_stream_test
}  // namespace hotbed
