#include "client/net/stream_backlog.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <utility>
#include <vector>

namespace hotbed {
namespace stream_backlog_test {

using testing::ElementsAre;
using Next = StreamBacklog::Next;

class Waiter final : public PendingRequest {
 public:
  void Done(const absl::Status&, const ServerReply*) override {}
  bool Abandoned() const override { return abandoned; }
  bool abandoned = false;
};

OutgoingMessage MessageOf(uint64_t reply_bytes, uint64_t key = 1) {
  OutgoingMessage message;
  message.header = "h";
  message.reply_bytes = reply_bytes;
  message.segments = 1;
  message.join_key = key;
  return message;
}

v1::Hello HelloOf(uint64_t messages, uint64_t bytes, uint64_t message_bytes) {
  v1::Hello hello;
  hello.set_messages_in_flight_max(messages);
  hello.set_bytes_in_flight_max(bytes);
  hello.set_message_bytes_max(message_bytes);
  return hello;
}

class StreamBacklogTest : public testing::Test {
 protected:
  std::shared_ptr<Waiter> Add(uint64_t bytes, uint64_t key = 1) {
    auto waiter = std::make_shared<Waiter>();
    backlog_.Add(MessageOf(bytes, key), waiter);
    return waiter;
  }
  // Takes the next message, which must be free to be written. Returns its number of segments.
  uint32_t Write() {
    EXPECT_EQ(backlog_.Decide(), Next::kWrite);
    OutgoingMessage message;
    last_ = backlog_.Take(&message);
    EXPECT_EQ(message.header.size(), message.segments);
    return message.segments;
  }

  StreamBacklog backlog_{StreamBacklog::kJoinedBytesMax};
  uint64_t last_ = 0;
};

TEST_F(StreamBacklogTest, JoinsNothingBeforeTheHello) {
  EXPECT_EQ(backlog_.Decide(), Next::kNothing);
  EXPECT_TRUE(backlog_.idle());
  for (int i = 0; i < 3; ++i) Add(100);
  EXPECT_EQ(Write(), 1);
  EXPECT_EQ(Write(), 1);
  backlog_.TakeHello(HelloOf(32, 1 << 20, 1 << 20));
  Add(100);
  EXPECT_EQ(backlog_.Answered(1).size(), 1);
  EXPECT_EQ(Write(), 2);
}

TEST_F(StreamBacklogTest, KeepsTheWindowButLetsOneMessageAlwaysTravel) {
  backlog_.TakeHello(HelloOf(2, 1000, 0));
  Add(5000, 0);
  Add(400, 0);
  EXPECT_EQ(Write(), 1);
  EXPECT_EQ(backlog_.Decide(), Next::kNothing) << "the bytes of the window";
  EXPECT_EQ(backlog_.Answered(last_).size(), 1);
  EXPECT_EQ(Write(), 1);
  Add(400, 0);
  Add(100, 0);
  EXPECT_EQ(Write(), 1);
  EXPECT_EQ(backlog_.Decide(), Next::kNothing) << "the messages of the window";
}

TEST_F(StreamBacklogTest, HoldsBackWhileTheServerIsBusyUntilTheHoldEnds) {
  backlog_.TakeHello(HelloOf(32, 1 << 20, 1 << 20));
  Add(10, 0);
  Add(10, 0);
  EXPECT_EQ(Write(), 1);
  EXPECT_EQ(Write(), 1);
  Add(10);
  EXPECT_EQ(backlog_.Decide(), Next::kHold);
  backlog_.BeginHold();
  Add(10);
  EXPECT_TRUE(backlog_.EndHold());
  EXPECT_EQ(Write(), 2);
  Add(10);
  EXPECT_EQ(backlog_.Decide(), Next::kHold) << "a hold counts for one message";
  backlog_.BeginHold();
  backlog_.Answered(1);
  backlog_.Answered(2);
  EXPECT_EQ(Write(), 1);
  Add(10);
  EXPECT_FALSE(backlog_.EndHold()) << "the message that was held back is written";
}

TEST_F(StreamBacklogTest, AFullMessageIsNotHeldBack) {
  backlog_.TakeHello(HelloOf(32, 1 << 20, 4096));
  for (int i = 0; i < 2; ++i) Add(10, 0);
  for (int i = 0; i < 2; ++i) EXPECT_EQ(Write(), 1);
  for (int i = 0; i < 3; ++i) Add(1500);
  EXPECT_EQ(Write(), 2) << "4096 bytes less the frame";
}

TEST_F(StreamBacklogTest, DropsOnlyFromTheHead) {
  const auto first = Add(10);
  const auto second = Add(10);
  const auto third = Add(10);
  first->abandoned = third->abandoned = true;
  StreamBacklog::RequestList dropped;
  backlog_.DropAbandoned(&dropped);
  EXPECT_THAT(dropped, ElementsAre(first));
  EXPECT_EQ(Write(), 1);
  backlog_.DropAbandoned(&dropped);
  EXPECT_THAT(dropped, ElementsAre(first, third));
  EXPECT_TRUE(backlog_.empty());
}

TEST_F(StreamBacklogTest, ALostStreamGivesBackEveryRequestInOrder) {
  backlog_.TakeHello(HelloOf(32, 1 << 20, 1 << 20));
  std::vector<std::shared_ptr<PendingRequest>> sent;
  for (int i = 0; i < 20; ++i) sent.push_back(Add(10, 0));
  for (int i = 0; i < 20; ++i) EXPECT_EQ(Write(), 1);
  const auto waiting = Add(10);
  EXPECT_EQ(backlog_.Answered(3).size(), 1);
  EXPECT_TRUE(backlog_.Answered(3).empty()) << "answered twice";
  sent.erase(sent.begin() + 2);
  StreamBacklog::RequestList lost, unsent;
  backlog_.TakeAll(&lost, &unsent);
  EXPECT_EQ(lost, sent);
  EXPECT_THAT(unsent, ElementsAre(waiting));
  EXPECT_EQ(backlog_.Decide(), Next::kNothing);
}

TEST(OutgoingMessageTest, AdjacentBytesAreOnePiece) {
  const BufferRef buffer = BufferRef::Allocate(100);
  OutgoingMessage::Bulk bulk;
  bulk.Append(buffer, buffer.data(), 10);
  bulk.Append(buffer, buffer.data() + 10, 5);
  bulk.Append(buffer, buffer.data() + 20, 1);
  ASSERT_EQ(bulk.pieces.size(), 2);
  EXPECT_EQ(bulk.pieces[0].size, 15);
  EXPECT_EQ(bulk.pieces[1].data, buffer.data() + 20);
}

}  // namespace stream_backlog_test
}  // namespace hotbed
