// Stories of a server's data directory and a copy of it: one of the two acts, and the other is
// refused before it does.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/coordinator/core_rig.h"

namespace hotbed {
namespace copied_directory_story_test {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// A data directory as its starts leave it.
struct Directory {
  ServerId server = 0;
  uint64_t start = 0;
  uint64_t run = 0;
  std::vector<uint64_t> runs_before;
};

class CopiedDirectoryStory : public testing::Test {
 protected:
  CopiedDirectoryStory() { rig_.Pump(); }

  void NextStart(Directory* directory) {
    if (directory->run != 0) directory->runs_before.push_back(directory->run);
    directory->run = ++runs_;
    directory->start += 1;
  }
  absl::Status Register(Directory* directory, const std::string& address) {
    v1::RegisterServerRequest request;
    request.set_server(directory->server);
    if (directory->server != 0) request.set_cluster_id("cluster 1");
    request.set_name("s1");
    request.set_address(address);
    request.set_start(directory->start);
    request.set_run(directory->run);
    for (const uint64_t run : directory->runs_before) request.add_runs_before(run);
    const auto reply = rig_.Call<v1::RegisterServerReply>(request);
    if (!reply.ok()) return reply.status();
    directory->server = reply->server();
    directory->runs_before.clear();
    incarnation_ = reply->incarnation();
    return absl::OkStatus();
  }
  bool Beat() { return rig_.Heartbeat(1, incarnation_)->lease_held(); }
  std::vector<std::string> Refusals() {
    std::vector<std::string> texts;
    const v1::ListEventsReply reply = rig_.core->Events({});
    for (const v1::ClusterEvent& event : reply.events()) {
      if (event.kind() == "server_refused") texts.push_back(event.text());
    }
    return texts;
  }
  // The data port of the process that registered last refuses connections.
  void AnswerProbes(ProbeAnswer answer) {
    for (const ProbeRequest& probe : std::exchange(rig_.probes, {})) {
      rig_.Step(ProbedEvent{probe.server, probe.incarnation, answer});
      rig_.Pump();
    }
  }

  CoreRig rig_;
  uint64_t runs_ = 100;
  Incarnation incarnation_ = 0;
};

TEST_F(CopiedDirectoryStory, ACopyBesideALivingOriginalIsRefusedWithBothAddresses) {
  Directory original;
  NextStart(&original);
  ASSERT_TRUE(Register(&original, "a:1").ok());
  Directory copy = original;
  NextStart(&copy);
  EXPECT_EQ(Register(&copy, "b:1").code(), absl::StatusCode::kUnavailable) << "it may be a restart";
  EXPECT_THAT(Refusals(), IsEmpty());
  for (int i = 0; i < 3; ++i) {
    AnswerProbes(ProbeAnswer::kAnswers);
    rig_.Tick(500);
    EXPECT_TRUE(Beat()) << "the original goes on";
  }
  const absl::Status refused = Register(&copy, "b:1");
  EXPECT_EQ(refused.code(), absl::StatusCode::kAlreadyExists) << refused;
  EXPECT_THAT(std::string(refused.message()), AllOf(HasSubstr("a:1"), HasSubstr("b:1")));
  EXPECT_THAT(Refusals(), ElementsAre(AllOf(HasSubstr("a:1"), HasSubstr("b:1"))));
  EXPECT_TRUE(Beat());
  // Nor later, once the original has started again.
  NextStart(&original);
  ASSERT_TRUE(Register(&original, "a:1").ok()) << "the same address: nobody else listens there";
  rig_.Tick(60'000);
  NextStart(&copy);
  EXPECT_EQ(Register(&copy, "b:1").code(), absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(Refusals().size(), 2u);
}

TEST_F(CopiedDirectoryStory, CopiesThatAskInTurnsAreAllRefused) {
  Directory original;
  NextStart(&original);
  ASSERT_TRUE(Register(&original, "a:1").ok());
  std::vector<Directory> copies(2 * kAskersMax, original);
  for (Directory& copy : copies) NextStart(&copy);
  for (int i = 0; i < 3; ++i) {
    for (size_t c = 0; c < kAskersMax; ++c) {
      const absl::Status answer = Register(&copies[c], absl::StrCat("b:", c + 1));
      EXPECT_EQ(answer.code(),
                i < 2 ? absl::StatusCode::kUnavailable : absl::StatusCode::kAlreadyExists)
          << answer;
    }
    AnswerProbes(ProbeAnswer::kAnswers);
    rig_.Tick(500);
    EXPECT_TRUE(Beat());
  }
  // Those that were refused end; further ones are heard then.
  for (int i = 0; i < 40; ++i) {
    for (size_t c = kAskersMax; c < copies.size(); ++c) {
      const absl::Status answer = Register(&copies[c], absl::StrCat("b:", c + 1));
      if (i == 0) {
        EXPECT_EQ(answer.code(), absl::StatusCode::kUnavailable) << answer;
      } else if (i == 39) {
        EXPECT_EQ(answer.code(), absl::StatusCode::kAlreadyExists) << answer;
      }
    }
    AnswerProbes(ProbeAnswer::kAnswers);
    rig_.Tick(500);
    EXPECT_TRUE(Beat());
  }
}

TEST_F(CopiedDirectoryStory, AServerThatWasKilledComesBackAtAnotherPort) {
  Directory directory;
  NextStart(&directory);
  ASSERT_TRUE(Register(&directory, "a:1").ok());
  EXPECT_TRUE(Beat());
  NextStart(&directory);
  EXPECT_EQ(Register(&directory, "a:2").code(), absl::StatusCode::kUnavailable);
  AnswerProbes(ProbeAnswer::kRefused);  // its port was looked at
  EXPECT_TRUE(Register(&directory, "a:2").ok());
  // Without a word from the port its lease decides.
  NextStart(&directory);
  EXPECT_EQ(Register(&directory, "a:3").code(), absl::StatusCode::kUnavailable);
  for (int i = 0; i < 8; ++i) {
    rig_.Tick(500);
    rig_.Pump();
  }
  EXPECT_TRUE(Register(&directory, "a:3").ok());
  EXPECT_THAT(Refusals(), IsEmpty());
}

TEST_F(CopiedDirectoryStory, StartsThatDidNotRegisterAndAnswersThatGotLostAreNoCopies) {
  Directory directory;
  NextStart(&directory);
  ASSERT_TRUE(Register(&directory, "a:1").ok());
  for (int i = 0; i < 5; ++i) NextStart(&directory);
  const Directory before = directory;
  ASSERT_TRUE(Register(&directory, "a:1").ok());
  // The answer to it was lost: the directory does not know that it has registered.
  directory = before;
  NextStart(&directory);
  EXPECT_TRUE(Register(&directory, "a:1").ok());
  EXPECT_THAT(Refusals(), IsEmpty());
}

TEST_F(CopiedDirectoryStory, AProcessThatLostItsLeaseRegistersAgain) {
  Directory directory;
  NextStart(&directory);
  ASSERT_TRUE(Register(&directory, "a:1").ok());
  EXPECT_TRUE(Register(&directory, "a:1").ok());
  rig_.Tick(60'000);
  rig_.Pump();
  EXPECT_TRUE(Register(&directory, "b:1").ok());
  EXPECT_THAT(Refusals(), IsEmpty());
}

// The original was cut off for longer than its lease, and a copy took its place.
TEST_F(CopiedDirectoryStory, TheOriginalIsRefusedAfterACopyTookItsPlace) {
  Directory original;
  NextStart(&original);
  ASSERT_TRUE(Register(&original, "a:1").ok());
  Directory copy = original;
  rig_.Tick(60'000);
  rig_.Pump();
  NextStart(&copy);
  ASSERT_TRUE(Register(&copy, "b:1").ok());
  EXPECT_EQ(Register(&original, "a:1").code(), absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(Refusals().size(), 1u);
}

TEST_F(CopiedDirectoryStory, ACoordinatorThatStartsAgainKnowsWhoRegisteredLast) {
  Directory original;
  NextStart(&original);
  ASSERT_TRUE(Register(&original, "a:1").ok());
  Directory copy = original;
  NextStart(&original);
  ASSERT_TRUE(Register(&original, "a:1").ok());
  rig_.Start();
  rig_.Pump();
  NextStart(&copy);
  EXPECT_EQ(Register(&copy, "b:1").code(), absl::StatusCode::kAlreadyExists);
}

}  // namespace copied_directory_story_test
}  // namespace hotbed
