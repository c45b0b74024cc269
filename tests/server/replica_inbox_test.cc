#include "server/peers/replica_inbox.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "absl/strings/str_cat.h"
#include "tests/server/replica_recorder.h"

namespace hotbed {
namespace replica_inbox_test {

using ::testing::ElementsAre;

std::vector<ReplicaMessage> Messages(std::initializer_list<uint64_t> chunks) {
  std::vector<ReplicaMessage> messages;
  for (const uint64_t chunk : chunks) messages.emplace_back().chunk = chunk;
  return messages;
}

TEST(ReplicaInboxTest, TheNewestStreamOfAServerCounts) {
  ReplicaRecorder recorder;
  ReplicaInbox inbox(&recorder);
  inbox.SetPeers({{3, 7}});
  const Member peer = {3, 7};
  const uint64_t first = *inbox.Open(peer);
  auto messages = Messages({1, 2});
  EXPECT_TRUE(inbox.Deliver(peer, first, &messages));
  EXPECT_TRUE(messages.empty());

  const uint64_t second = *inbox.Open(peer);
  EXPECT_THAT(recorder.lost(), ElementsAre(peer));  // replies may be lost with the first stream
  messages = Messages({3});
  EXPECT_FALSE(inbox.Deliver(peer, first, &messages));
  messages = Messages({4});
  EXPECT_TRUE(inbox.Deliver(peer, second, &messages));
  EXPECT_THAT(recorder.chunks(), ElementsAre(1, 2, 4));

  inbox.Close(peer, first);  // late: the stream was replaced
  EXPECT_THAT(recorder.lost(), ElementsAre(peer));
  inbox.Close(peer, second);
  EXPECT_THAT(recorder.lost(), ElementsAre(peer, peer));
}

TEST(ReplicaInboxTest, AnOlderProcessIsRefusedAndANewerTakesOver) {
  ReplicaRecorder recorder;
  ReplicaInbox inbox(&recorder);
  inbox.SetPeers({{3, 8}, {4, 1}});
  ASSERT_TRUE(inbox.Open({3, 7}).ok());
  const auto older = inbox.Open({3, 6});
  EXPECT_TRUE(absl::IsFailedPrecondition(older.status())) << older.status();
  EXPECT_NE(std::string(older.status().message()).find("incarnation 6"), std::string::npos);
  ASSERT_TRUE(inbox.Open({3, 8}).ok());
  EXPECT_THAT(recorder.lost(), ElementsAre(Member{3, 7}));
  EXPECT_TRUE(inbox.Open({4, 1}).ok());  // another server is independent
}

TEST(ReplicaInboxTest, TheLastOfWhatTheLogGetsIsMarked) {
  using Kind = ReplicaMessage::Kind;
  ReplicaRecorder recorder;
  ReplicaInbox inbox(&recorder);
  inbox.SetPeers({{3, 7}});
  std::vector<bool> more;
  recorder.set_answer([&](const Member&, const ReplicaMessage& m) { more.push_back(m.more); });
  std::vector<ReplicaMessage> messages;
  for (const Kind kind : {Kind::kAppend, Kind::kSnapshotRows, Kind::kAppendReply, Kind::kAppend,
                          Kind::kSnapshotRows}) {
    messages.emplace_back().kind = kind;
  }
  ASSERT_TRUE(inbox.Deliver({3, 7}, *inbox.Open({3, 7}), &messages));
  EXPECT_THAT(more, ElementsAre(true, false, true, false, false));
}

TEST(ReplicaInboxTest, AProcessThatNoMapNamesIsRefusedAndNotRemembered) {
  ReplicaRecorder recorder;
  ReplicaInbox inbox(&recorder);
  EXPECT_TRUE(absl::IsUnavailable(inbox.Open({3, 7}).status())) << "no map yet";
  inbox.SetPeers({{3, 7}});
  for (const Member forged : {Member{3, ~uint64_t{0}}, Member{3, 8}, Member{4, 1}}) {
    const auto refused = inbox.Open(forged);
    EXPECT_TRUE(absl::IsUnavailable(refused.status())) << refused.status();
    EXPECT_NE(
        std::string(refused.status().message())
            .find(absl::StrCat("server ", forged.server, " incarnation ", forged.incarnation)),
        std::string::npos);
  }
  EXPECT_TRUE(inbox.Open({3, 7}).ok()) << "the true process is not overtaken by a forged number";
  EXPECT_TRUE(recorder.lost().empty());
  inbox.SetPeers({{3, 8}});
  EXPECT_TRUE(inbox.Open({3, 8}).ok());
}

TEST(ReplicaInboxTest, CallsForOnePeerAreOneAtATime) {
  ReplicaRecorder recorder;
  ReplicaInbox inbox(&recorder);
  inbox.SetPeers({{3, 7}});
  std::atomic<int> inside{0};
  std::atomic<int> most{0};
  const auto enter = [&] {
    most = std::max(most.load(), ++inside);
    std::this_thread::yield();
    --inside;
  };
  recorder.set_answer([&](const Member&, const ReplicaMessage&) { enter(); });
  recorder.set_again([&](const Member&) { enter(); });
  const Member peer = {3, 7};
  const uint64_t stream = *inbox.Open(peer);
  std::thread other([&] {
    for (int i = 0; i < 500; ++i) inbox.Lost(peer, [] {});
  });
  for (int i = 0; i < 500; ++i) {
    auto messages = Messages({1});
    inbox.Deliver(peer, stream, &messages);
  }
  other.join();
  EXPECT_EQ(most.load(), 1);
  EXPECT_EQ(recorder.heard_count(), 500u);
  EXPECT_EQ(recorder.lost().size(), 500u);
}

}  // namespace replica_inbox_test
}  // namespace hotbed
