// Malformed input from a client: each error gets a clear answer, and other requests do not suffer.
#include <grpcpp/completion_queue.h>
#include <grpcpp/generic/generic_stub.h>

#include <random>

#include "server/streams/pull_stream.h"
#include "tests/server/data_plane_fixture.h"

namespace hotbed {
namespace bad_input_test {

class BadInputTest : public DataPlaneTest {
 protected:
  // Sends messages of any bytes on one stream, then half-closes; the status at the end, replies in
  // `replies`.
  grpc::Status SendRaw(const std::string& method, const std::vector<std::string>& messages,
                       std::vector<std::string>* replies = nullptr) {
    grpc::GenericStub stub(channel_);
    grpc::CompletionQueue queue;
    grpc::ClientContext context;
    auto stream = stub.PrepareCall(&context, method, &queue);
    const auto wait = [&queue] {
      void* tag;
      bool ok = false;
      queue.Next(&tag, &ok);
      return ok;
    };
    stream->StartCall(this);
    EXPECT_TRUE(wait());
    bool alive = true;
    for (const std::string& message : messages) {
      const grpc::Slice slice(message);
      stream->Write(grpc::ByteBuffer(&slice, 1), this);
      alive = alive && wait();
    }
    if (alive) {
      stream->WritesDone(this);
      wait();
    }
    grpc::ByteBuffer reply;
    for (;;) {
      stream->Read(&reply, this);
      if (!wait()) break;
      grpc::Slice slice;
      EXPECT_TRUE(reply.DumpToSingleSlice(&slice).ok());
      if (replies != nullptr) replies->emplace_back(slice.begin(), slice.end());
    }
    grpc::Status status;
    stream->Finish(&status, this);
    wait();
    queue.Shutdown();
    return status;
  }

  v1::PullRequest GoodPull() {
    v1::PullRequest request;
    Greet(&request);
    AddSegment(kWide, 3, {1, 2}, &request);
    return request;
  }
};

constexpr char kPull[] = "/hotbed.v1.Data/Pull";
constexpr char kPush[] = "/hotbed.v1.Data/Push";

TEST_F(BadInputTest, RandomBytesEndTheStreamAndOnlyIt) {
  std::mt19937_64 random(7);
  for (const char* method : {kPull, kPush}) {
    for (int round = 0; round < 40; ++round) {
      std::string message(1 + random() % 300, '\0');
      for (char& c : message) c = static_cast<char>(random());
      const grpc::Status status = SendRaw(method, {message});
      EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT) << status.error_message();
      EXPECT_FALSE(status.error_message().empty());
    }
  }
  std::vector<std::string> replies;
  EXPECT_TRUE(SendRaw(kPull, {GoodPull().SerializeAsString()}, &replies).ok());
  EXPECT_EQ(replies.size(), 1u);
}

TEST_F(BadInputTest, EveryTruncationIsRefusedOneWayOrTheOther) {
  const std::string whole = GoodPull().SerializeAsString();
  for (size_t length = 0; length < whole.size(); ++length) {
    std::vector<std::string> replies;
    const grpc::Status status = SendRaw(kPull, {whole.substr(0, length)}, &replies);
    if (status.ok()) {  // cut between fields: a message, but one without its ids
      ASSERT_EQ(replies.size(), 1u) << length;
      v1::PullReply reply;
      ASSERT_TRUE(reply.ParseFromString(replies[0]));
      EXPECT_EQ(reply.header().code(), v1::INVALID_ARGUMENT) << length;
    } else {
      EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT) << length;
    }
  }
}

TEST_F(BadInputTest, MessagesBeforeAnUnparsableOneAreAnswered) {
  std::vector<std::string> replies;
  const std::string good = GoodPull().SerializeAsString();
  const grpc::Status status = SendRaw(kPull, {good, good, "\xff\xff\xff"}, &replies);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(replies.size(), 2u);
}

TEST_F(BadInputTest, TheFirstMessageMustGreet) {
  v1::PullRequest request = GoodPull();
  request.mutable_header()->clear_hello();
  EXPECT_EQ(SendRaw(kPull, {request.SerializeAsString()}).error_code(),
            grpc::StatusCode::INVALID_ARGUMENT);
  request.mutable_header()->mutable_hello()->set_wire_version(kWireVersion + 1);
  const grpc::Status version = SendRaw(kPull, {request.SerializeAsString()});
  EXPECT_EQ(version.error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  EXPECT_NE(version.error_message().find("wire_version"), std::string::npos);
  Greet(&request);
  request.mutable_header()->mutable_hello()->set_cluster_id("cluster-b");
  const grpc::Status cluster = SendRaw(kPull, {request.SerializeAsString()});
  EXPECT_EQ(cluster.error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  EXPECT_NE(cluster.error_message().find("cluster-a"), std::string::npos);
  EXPECT_NE(cluster.error_message().find("cluster-b"), std::string::npos);
}

TEST_F(BadInputTest, WrongCountsAndEmptyBatches) {
  grpc::ClientContext context;
  auto call = stub_->Pull(&context);
  v1::PullRequest empty;
  Greet(&empty);
  v1::PullRequest short_ids = GoodPull();
  short_ids.mutable_ids()->resize(15);
  v1::PullRequest column = GoodPull();
  column.mutable_header()->mutable_groups(0)->add_epochs(3);
  v1::PullRequest row_type = GoodPull();
  row_type.mutable_header()->set_row_type(static_cast<v1::RowType>(9));
  v1::PullReply reply;
  for (const v1::PullRequest& request : {empty, short_ids, column, row_type}) {
    ASSERT_TRUE(call->Write(request));
    ASSERT_TRUE(call->Read(&reply));
    EXPECT_EQ(reply.header().code(), v1::INVALID_ARGUMENT);
    EXPECT_FALSE(reply.header().detail().empty());
    EXPECT_EQ(reply.header().segments(), AskedOf(request.header()).size());
  }
  ASSERT_TRUE(call->Write(GoodPull()));
  ASSERT_TRUE(call->Read(&reply));
  EXPECT_EQ(reply.header().code(), v1::OK);
  EXPECT_EQ(reply.rows(), ExpectedRows({1, 2}, 8));
}

TEST_F(BadInputTest, TenMillionIdsAreRefusedAndTheStreamLives) {
  grpc::ClientContext context;
  auto call = stub_->Pull(&context);
  v1::PullRequest huge;
  Greet(&huge);
  huge.mutable_header()->set_request(1);
  AddSegment(kWide, 3, std::vector<uint64_t>(10'000'000, 5), &huge);
  ASSERT_TRUE(call->Write(huge));
  v1::PullReply reply;
  ASSERT_TRUE(call->Read(&reply));
  EXPECT_EQ(reply.header().request(), 1u);
  EXPECT_EQ(reply.header().code(), v1::INVALID_ARGUMENT);
  EXPECT_NE(reply.header().detail().find("16777216"), std::string::npos) << reply.header().detail();
  ASSERT_TRUE(call->Write(GoodPull()));
  ASSERT_TRUE(call->Read(&reply));
  EXPECT_EQ(reply.header().code(), v1::OK);
}

TEST_F(BadInputTest, AnswersBeyondEitherSidesLimitAreRefused) {
  grpc::ClientContext context;
  auto call = stub_->Pull(&context);
  v1::PullRequest request;
  Greet(&request);
  request.mutable_header()->mutable_hello()->set_message_bytes_max(10'000);
  AddSegment(kWide, 3, std::vector<uint64_t>(1000, 5), &request);  // 32,000 bytes of rows
  ASSERT_TRUE(call->Write(request));
  v1::PullReply reply;
  ASSERT_TRUE(call->Read(&reply));
  EXPECT_EQ(reply.header().code(), v1::INVALID_ARGUMENT);
  EXPECT_NE(reply.header().detail().find("10000"), std::string::npos) << reply.header().detail();
  request.mutable_header()->clear_hello();  // the limit stays for the stream
  ASSERT_TRUE(call->Write(request));
  ASSERT_TRUE(call->Read(&reply));
  EXPECT_EQ(reply.header().code(), v1::INVALID_ARGUMENT);
}

TEST_F(BadInputTest, TooManySegmentsAreRefusedForGood) {
  DataServerOptions options;
  options.limits.segments_max = 2;
  StartServer(options);
  grpc::ClientContext contexts[2];
  auto pull = stub_->Pull(&contexts[0]);
  auto push = stub_->Push(&contexts[1]);
  v1::PullRequest ids;
  v1::PushRequest rows;
  Greet(&ids);
  Greet(&rows);
  for (uint64_t i = 0; i < 3; ++i) {
    AddSegment(kNarrow, 4, {i}, &ids);
    AddSegment(kNarrow, 4, {i}, std::string(12, 'g'), &rows);
  }
  v1::PullReply pulled;
  v1::PushReply pushed;
  ASSERT_TRUE(pull->Write(ids));
  ASSERT_TRUE(push->Write(rows));
  ASSERT_TRUE(pull->Read(&pulled));
  ASSERT_TRUE(push->Read(&pushed));
  for (const v1::ReplyHeader& header : {pulled.header(), pushed.header()}) {
    EXPECT_EQ(header.code(), v1::INVALID_ARGUMENT);
    EXPECT_NE(header.detail().find("3 segments, the limit is 2"), std::string::npos)
        << header.detail();
  }
}

TEST_F(BadInputTest, OversizePushIsRefusedAndTheStreamLives) {
  DataServerOptions options;
  options.limits.message_bytes_max = 100'000;
  StartServer(options);
  grpc::ClientContext context;
  auto call = stub_->Push(&context);
  v1::PushRequest big;
  Greet(&big);
  big.mutable_header()->set_request(9);
  AddSegment(kWide, 3, std::vector<uint64_t>(4000, 5), std::string(4000 * 32, 'g'), &big);
  ASSERT_TRUE(call->Write(big));
  v1::PushReply reply;
  ASSERT_TRUE(call->Read(&reply));
  EXPECT_EQ(reply.header().request(), 9u);
  EXPECT_EQ(reply.header().code(), v1::INVALID_ARGUMENT) << "final, not to be tried again";
  ASSERT_EQ(reply.header().segments(), 1u);
  EXPECT_EQ(reply.header().code(), v1::INVALID_ARGUMENT);
  EXPECT_EQ(reply.header().retry_after_ms(), 0u);
  EXPECT_NE(reply.header().detail().find("100000"), std::string::npos) << reply.header().detail();
  EXPECT_NE(reply.header().detail().find(std::to_string(big.ByteSizeLong())), std::string::npos)
      << reply.header().detail();
  v1::PushRequest good;
  AddSegment(kWide, 3, {5}, std::string(32, 'g'), &good);
  ASSERT_TRUE(call->Write(good));
  ASSERT_TRUE(call->Read(&reply));
  EXPECT_EQ(reply.header().code(), v1::OK);
  EXPECT_EQ(host_->pushes().size(), 1u);
}

}  // namespace bad_input_test
}  // namespace hotbed
