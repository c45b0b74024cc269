// Requests joined to one message, over a real stream to a scripted server: each request's part of
// the reply, a refused neighbour, limits, the window, the loss of the stream, and its rest.
#include "client/net/server_stream.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "client/net/grpc_transport.h"
#include "proto/data.grpc.pb.h"
#include "tests/proto/segment_twin.h"

namespace hotbed {
namespace server_stream_test {

using testing::ElementsAre;
using testing::IsEmpty;

constexpr uint64_t kRefusedEpoch = 99;
constexpr uint64_t kBreakEpoch = 100;

// Answers each id with three times the id, 8 bytes; refuses segments of kRefusedEpoch; ends the
// stream at a segment of kBreakEpoch. Answers one message after another, each when the test
// releases it.
class ScriptedServer final : public v1::Data::Service {
 public:
  using PullReplies = grpc::ServerReaderWriter<v1::PullReply, v1::PullRequest>;

  ScriptedServer() {
    hello.set_messages_in_flight_max(1);
    hello.set_message_bytes_max(1 << 20);
    // Lookups come as streams; in the generated service they are unary.
    using Handler =
        grpc::internal::BidiStreamingHandler<v1::Data::Service, v1::PullRequest, v1::PullReply>;
    MarkMethodStreamed(
        kLookup, new Handler(
                     [](v1::Data::Service* service, grpc::ServerContext*, PullReplies* stream) {
                       return static_cast<ScriptedServer*>(service)->Lookups(stream);
                     },
                     this));
    grpc::ServerBuilder builder;
    int port = 0;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
    builder.RegisterService(this);
    server_ = builder.BuildAndStart();
    address = absl::StrCat("127.0.0.1:", port);
  }
  ~ScriptedServer() override {
    Release(1000);
    server_->Shutdown(std::chrono::system_clock::now());
  }

  grpc::Status Pull(grpc::ServerContext*, PullReplies* stream) override { return Answers(stream); }

  grpc::Status Push(grpc::ServerContext*,
                    grpc::ServerReaderWriter<v1::PushReply, v1::PushRequest>* stream) override {
    v1::PushRequest request;
    while (stream->Read(&request)) {
      v1::PushReply reply;
      reply.mutable_header()->set_request(request.header().request());
      v1::SegmentReply answer;
      answer.set_last_seq(request.header().session());
      AddAnswer(answer, 0, 1, 0, reply.mutable_header());
      stream->Write(reply);
    }
    return grpc::Status::OK;
  }

  void Release(int messages) {
    absl::MutexLock lock(&mu_);
    released_ += messages;
  }
  std::vector<v1::PullRequest> AwaitMessages(size_t count) {
    absl::MutexLock lock(&mu_);
    const auto there = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) { return seen_.size() >= count; };
    mu_.Await(absl::Condition(&there));
    return seen_;
  }

  void AwaitLookupsEnded(int streams) {
    absl::MutexLock lock(&mu_);
    const auto ended = [&]()
                           ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) { return lookups_ended_ >= streams; };
    mu_.Await(absl::Condition(&ended));
  }

  std::string address;
  // Set before the first request.
  v1::Hello hello;
  v1::Code refuse_whole = v1::OK;  // every message but the first
  bool forget_last_segment = false;

 private:
  static constexpr int kLookup = 2;  // its number in the service of proto/data.proto

  grpc::Status Lookups(PullReplies* stream) {
    const grpc::Status status = Answers(stream);
    absl::MutexLock lock(&mu_);
    ++lookups_ended_;
    return status;
  }
  grpc::Status Answers(PullReplies* stream) {
    v1::PullRequest request;
    for (bool first = true; stream->Read(&request); first = false) {
      Await(request);
      v1::PullReply reply;
      if (!Answer(request, &reply)) return {grpc::StatusCode::UNAVAILABLE, "broken by the test"};
      if (first) *reply.mutable_header()->mutable_hello() = hello;
      stream->Write(reply);
    }
    return grpc::Status::OK;
  }

  void Await(const v1::PullRequest& request) {
    absl::MutexLock lock(&mu_);
    seen_.push_back(request);
    const auto let_go = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) { return released_ > 0; };
    mu_.Await(absl::Condition(&let_go));
    --released_;
  }
  bool Answer(const v1::PullRequest& request, v1::PullReply* reply) {
    reply->mutable_header()->set_request(request.header().request());
    if (refuse_whole != v1::OK && request.header().request() > 1) {
      reply->mutable_header()->set_code(refuse_whole);
      return true;
    }
    const char* ids = request.ids().data();
    bool refused = false;
    for (const PullAsk& segment : AskedOf(request.header())) {
      if (segment.epoch == kBreakEpoch) return false;
      v1::SegmentReply answer;
      answer.set_epoch(segment.epoch);
      for (uint32_t i = 0; i < segment.id_count; ++i, ids += 8) {
        if (segment.epoch == kRefusedEpoch) continue;
        uint64_t id;
        std::memcpy(&id, ids, 8);
        id *= 3;
        reply->mutable_rows()->append(reinterpret_cast<const char*>(&id), 8);
      }
      if (segment.epoch == kRefusedEpoch) answer.set_code(v1::OUT_OF_RANGE);
      refused |= segment.epoch == kRefusedEpoch;
      AddAnswer(answer, 0, segment.epoch, 0, reply->mutable_header());
      reply->mutable_header()->add_row_bytes(answer.code() == v1::OK ? 8 * segment.id_count : 0);
    }
    v1::ReplyHeader* const header = reply->mutable_header();
    if (!refused) header->clear_row_bytes();
    if (forget_last_segment) {
      header->set_segments(header->segments() - 1);
      header->mutable_lsns()->RemoveLast();
    }
    return true;
  }

  std::unique_ptr<grpc::Server> server_;
  absl::Mutex mu_;
  int released_ ABSL_GUARDED_BY(mu_) = 0;
  int lookups_ended_ ABSL_GUARDED_BY(mu_) = 0;
  std::vector<v1::PullRequest> seen_ ABSL_GUARDED_BY(mu_);
};

class Ask final : public PendingRequest {
 public:
  void Done(const absl::Status& transport, const ServerReply* reply) override {
    status = transport;
    if (reply != nullptr) Take(*reply);
    done.Notify();
  }
  void NotSent(const absl::Status& why) override {
    sent = false;
    Done(why, nullptr);
  }
  bool Abandoned() const override { return abandoned; }

  absl::Notification done;
  absl::Status status;
  bool sent = true;
  std::atomic<bool> abandoned{false};
  v1::Code whole = v1::OK;
  std::vector<int> codes;           // of each segment
  std::vector<uint64_t> rows;       // of all
  std::vector<uint64_t> seqs;       // of each segment
  std::vector<uint64_t> row_bytes;  // of each segment, if it is served

 private:
  void Take(const ServerReply& reply) {
    const v1::ReplyHeader& header = reply.view->header;
    whole = header.code();
    if (!reply.whole) row_bytes.clear();
    FragmentReader reader(reply.fragments, reply.view->rows);
    reader.Skip(reply.row_bytes_before);
    for (uint32_t i = 0; i < reply.segment_count; ++i) {
      const v1::SegmentReply segment = AnswerOf(header, reply.segment_first + i);
      codes.push_back(segment.code());
      seqs.push_back(segment.last_seq());
      if (segment.code() != v1::OK || i >= row_bytes.size()) continue;
      for (uint64_t bytes = 0; bytes < row_bytes[i]; bytes += 8) {
        reader.CopyTo(&rows.emplace_back(), 8);
      }
    }
  }
};

class ServerStreamTest : public testing::Test {
 protected:
  struct Shape {
    uint64_t key = 1;
    uint32_t deadline_ms = 50;
    uint64_t reply_bytes = 100;
    uint64_t epoch = 1;  // of its last segment
  };
  static Shape OfEpoch(uint64_t epoch) {
    Shape shape;
    shape.epoch = epoch;
    return shape;
  }
  // One segment per list of ids.
  std::shared_ptr<Ask> Send(const std::vector<std::vector<uint64_t>>& segments, Shape shape) {
    OutgoingMessage message;
    v1::PullHeader header;
    header.set_row_type(v1::ROW_FP32);
    std::vector<uint64_t> all;
    for (const auto& ids : segments) {
      AddSegment({.epoch = 1, .id_count = static_cast<uint32_t>(ids.size())}, &header);
      all.insert(all.end(), ids.begin(), ids.end());
    }
    header.mutable_groups()->rbegin()->set_epochs(0, shape.epoch);
    const BufferRef buffer = BufferRef::Allocate(8 * all.size());
    std::memcpy(buffer.data(), all.data(), 8 * all.size());
    message.header = header.SerializeAsString();
    message.segments = static_cast<uint32_t>(segments.size());
    message.bulk.push_back({v1::PullRequest::kIdsFieldNumber, {}});
    message.bulk.back().pieces.push_back({buffer, buffer.data(), 8 * all.size()});
    message.row_bytes = 8 * all.size();
    message.join_key = shape.key;
    message.deadline_ms = shape.deadline_ms;
    message.reply_bytes = shape.reply_bytes;
    auto ask = std::make_shared<Ask>();
    for (const auto& ids : segments) ask->row_bytes.push_back(8 * ids.size());
    transport_->Send(server_.address, lane_, std::move(message), ask);
    return ask;
  }
  std::shared_ptr<Ask> Send(const std::vector<std::vector<uint64_t>>& segments) {
    return Send(segments, Shape());
  }
  // Waits for the server's hello, then fills the window with a request until the test releases it.
  void Fill() {
    const auto first = Send({{1}});
    server_.Release(1);
    first->done.WaitForNotification();
    held_ = Send({{2}});
    server_.AwaitMessages(2);
  }
  static void AwaitAll(const std::vector<std::shared_ptr<Ask>>& asks) {
    for (const auto& ask : asks) ask->done.WaitForNotification();
  }

  void LosesTheStream();

  ScriptedServer server_;
  Lane lane_ = Lane::kPull;
  std::unique_ptr<Transport> transport_ = NewGrpcTransport({}, {});
  std::shared_ptr<Ask> held_;
};

TEST_F(ServerStreamTest, WhatWaitedTravelsTogetherAndEachGetsItsOwnPart) {
  Fill();
  const auto a = Send({{10}, {11, 12}});
  const auto b = Send({{20, 21, 22}}, {.deadline_ms = 90});
  const auto c = Send({{30}, {}, {31}}, {.deadline_ms = 70});
  EXPECT_FALSE(held_->done.HasBeenNotified());
  EXPECT_EQ(server_.AwaitMessages(2).size(), 2) << "the window is one message";
  server_.Release(2);
  AwaitAll({a, b, c});
  EXPECT_THAT(held_->rows, ElementsAre(6));
  EXPECT_THAT(a->rows, ElementsAre(30, 33, 36));
  EXPECT_THAT(b->rows, ElementsAre(60, 63, 66));
  EXPECT_THAT(c->rows, ElementsAre(90, 93));
  EXPECT_EQ(a->codes.size(), 2);
  EXPECT_EQ(b->codes.size(), 1);
  EXPECT_EQ(c->codes.size(), 3);
  const auto seen = server_.AwaitMessages(3);
  ASSERT_EQ(seen.size(), 3);
  EXPECT_EQ(AskedOf(seen[2].header()).size(), 6u);
  EXPECT_EQ(seen[2].header().deadline_ms(), 90) << "the latest of the three";
  EXPECT_EQ(transport_->Stats().messages, 3);
}

TEST_F(ServerStreamTest, ARefusedNeighbourTakesNoOtherWithIt) {
  Fill();
  const auto a = Send({{10}});
  const auto refused = Send({{20}, {21, 22}}, OfEpoch(kRefusedEpoch));
  const auto c = Send({{30, 31}});
  server_.Release(2);
  AwaitAll({a, refused, c});
  EXPECT_EQ(server_.AwaitMessages(3).size(), 3);
  EXPECT_THAT(a->rows, ElementsAre(30));
  EXPECT_THAT(refused->codes, ElementsAre(v1::OK, v1::OUT_OF_RANGE));
  EXPECT_THAT(refused->rows, ElementsAre(60));
  EXPECT_THAT(c->codes, ElementsAre(v1::OK));
  EXPECT_THAT(c->rows, ElementsAre(90, 93));
}

TEST_F(ServerStreamTest, AMessageRefusedAsAWholeIsToldToAll) {
  server_.refuse_whole = v1::RESOURCE_EXHAUSTED;
  Fill();
  const auto a = Send({{10}});
  const auto b = Send({{20}});
  server_.Release(2);
  AwaitAll({a, b});
  for (const auto& ask : {a, b}) {
    EXPECT_TRUE(ask->status.ok());
    EXPECT_EQ(ask->whole, v1::RESOURCE_EXHAUSTED);
    EXPECT_THAT(ask->codes, IsEmpty());
  }
}

TEST_F(ServerStreamTest, AnAnswerThatIsTooShortShowsInTheCount) {
  Fill();
  server_.forget_last_segment = true;
  const auto a = Send({{10}});
  const auto b = Send({{20}, {21}});
  server_.Release(2);
  AwaitAll({held_, a, b});
  EXPECT_THAT(held_->codes, IsEmpty());
  EXPECT_EQ(a->codes.size(), 1);
  EXPECT_EQ(b->codes.size(), 1) << "of two";
}

TEST_F(ServerStreamTest, JoinsByTheServersLimitAndOnlyOnceItIsKnown) {
  server_.hello.set_message_bytes_max(4096);
  server_.hello.set_messages_in_flight_max(1);
  // 4096 bytes less the frame have room for two of these.
  Shape shape;
  shape.reply_bytes = 1500;
  std::vector<std::shared_ptr<Ask>> early, late;
  for (uint64_t i = 0; i < 3; ++i) early.push_back(Send({{i}}, shape));
  // All three are in flight before the server's hello arrives.
  while (transport_->Stats().messages < 3) absl::SleepFor(absl::Milliseconds(1));
  server_.Release(3);
  AwaitAll(early);
  for (const auto& message : server_.AwaitMessages(3)) {
    EXPECT_EQ(AskedOf(message.header()).size(), 1u);
  }
  EXPECT_EQ(transport_->MessageBytesMax(), 4096);
  for (uint64_t i = 0; i < 6; ++i) late.push_back(Send({{i}}, shape));
  server_.Release(6);
  AwaitAll(late);
  const auto seen = server_.AwaitMessages(6);
  ASSERT_GE(seen.size(), 6);
  for (const auto& message : seen) EXPECT_LE(AskedOf(message.header()).size(), 2u);
  for (uint64_t i = 0; i < 6; ++i) EXPECT_THAT(late[i]->rows, ElementsAre(3 * i));
}

TEST_F(ServerStreamTest, OtherKeysAndAbandonedOnesAreNotJoined) {
  Fill();
  const auto a = Send({{10}});
  const auto given_up = Send({{15}});
  given_up->abandoned = true;
  const auto b = Send({{20}}, {.key = 2});
  const auto alone = Send({{30}}, {.key = 0});
  const auto also_alone = Send({{40}}, {.key = 0});
  server_.Release(10);
  AwaitAll({a, given_up, b, alone, also_alone});
  EXPECT_FALSE(given_up->sent);
  EXPECT_TRUE(absl::IsCancelled(given_up->status));
  const auto seen = server_.AwaitMessages(6);
  ASSERT_EQ(seen.size(), 6);
  for (const auto& message : seen) EXPECT_EQ(AskedOf(message.header()).size(), 1u);
}

void ServerStreamTest::LosesTheStream() {
  Fill();
  const auto a = Send({{10}});
  const auto b = Send({{20}}, OfEpoch(kBreakEpoch));
  server_.Release(1);
  server_.AwaitMessages(3);  // both, as one message
  const auto c = Send({{30}});
  const auto d = Send({{40}});
  server_.Release(1);
  AwaitAll({a, b, c, d});
  for (const auto& ask : {a, b, c, d}) {
    EXPECT_TRUE(absl::IsUnavailable(ask->status)) << ask->status;
    EXPECT_THAT(std::string(ask->status.message()), testing::HasSubstr("broken by the test"));
    EXPECT_EQ(ask->sent, ask == a || ask == b);
  }
  EXPECT_EQ(transport_->Stats().reconnects, 1);
  server_.Release(1);
  const auto again = Send({{50}});
  again->done.WaitForNotification();
  EXPECT_THAT(again->rows, ElementsAre(150)) << "the next request opens a new stream";
}

TEST_F(ServerStreamTest, ALostStreamTellsWhatWasWrittenFromWhatWasNot) { LosesTheStream(); }

TEST_F(ServerStreamTest, SoDoesALostStreamOfLookups) {
  lane_ = Lane::kLookup;
  LosesTheStream();
}

TEST_F(ServerStreamTest, AnIdleLookupStreamRestsAndTheNextLookupOpensAnother) {
  lane_ = Lane::kLookup;
  server_.Release(2);
  for (int i = 1; i <= 2; ++i) {
    const auto ask = Send({{10}});
    ask->done.WaitForNotification();
    ASSERT_TRUE(ask->status.ok()) << ask->status;
    EXPECT_THAT(ask->rows, ElementsAre(30));
    server_.AwaitLookupsEnded(i);
  }
  EXPECT_EQ(transport_->Stats().reconnects, 0) << "a rest is no loss";
}

TEST_F(ServerStreamTest, ALookupStreamThatWaitsForAnAnswerDoesNotRest) {
  lane_ = Lane::kLookup;
  const auto slow = Send({{10}});
  server_.AwaitMessages(1);
  // A stream that rested now would be cancelled, since its server does not end it.
  absl::SleepFor(absl::FromChrono(4 * ServerStream::kRestAfter));
  server_.Release(1);
  slow->done.WaitForNotification();
  EXPECT_TRUE(slow->status.ok()) << slow->status;
}

TEST_F(ServerStreamTest, APushKeepsItsSessionWhateverADeadlineSays) {
  // A pull's deadline and a push's session have the same field number.
  v1::PushHeader header;
  header.set_session(0x1234567890);
  AddSegment(PushAsk{.epoch = 1}, &header);
  OutgoingMessage message;
  message.header = header.SerializeAsString();
  message.segments = 1;
  message.deadline_ms = 50;
  auto ask = std::make_shared<Ask>();
  transport_->Send(server_.address, Lane::kPush, std::move(message), ask);
  ask->done.WaitForNotification();
  ASSERT_TRUE(ask->status.ok()) << ask->status;
  EXPECT_THAT(ask->seqs, ElementsAre(0x1234567890));
}

}  // namespace server_stream_test
}  // namespace hotbed
