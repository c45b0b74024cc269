#include "server/host/transfer/snapshot_intake.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/common/number_of.h"

namespace hotbed {
namespace snapshot_intake_test {

using ::testing::ElementsAre;
using Kind = ReplicaMessage::Kind;

constexpr Member kSender{2, 7};

// Says what was asked of it.
class FakeSite : public SnapshotIntake::Site {
 public:
  bool Wants(ShardId shard, const Member&, Epoch epoch) const override {
    return shard.index != 99 && epoch == 5;
  }
  absl::Status Begin(ShardId shard, const Member&, Epoch, Lsn lsn) override {
    return Note(absl::StrCat("begin ", shard.index, " at ", lsn));
  }
  absl::Status Write(ShardId shard, absl::string_view block) override {
    if (block == "bad") return absl::DataLossError("damaged");
    return Note(absl::StrCat("write ", shard.index, " ", block));
  }
  absl::Status Finish(ShardId shard, absl::string_view meta) override {
    return Note(absl::StrCat("finish ", shard.index, " ", meta));
  }
  void Abandon(ShardId shard) override { (void)Note(absl::StrCat("abandon ", shard.index)); }
  void Reply(ReplicaMessage message) override {
    (void)Note(absl::StrCat(message.ok ? "ok " : "no ", message.shard.index, " ", message.chunk));
  }
  // All until now, and forgets them.
  std::vector<std::string> Take() { return std::exchange(notes_, {}); }

 private:
  absl::Status Note(std::string what) {
    notes_.push_back(std::move(what));
    return absl::OkStatus();
  }
  std::vector<std::string> notes_;
};

class SnapshotIntakeTest : public testing::Test {
 protected:
  void Send(Kind kind, uint32_t shard, uint64_t chunk = 0, const std::string& body = "",
            uint64_t transfer = 1, Epoch epoch = 5) {
    ReplicaMessage message;
    message.kind = kind;
    message.shard = {1, shard};
    message.epoch = epoch;
    message.transfer = transfer;
    message.chunk = chunk;
    message.lsn = 40;
    auto owner = std::make_shared<std::string>(body);
    message.body = {owner, {reinterpret_cast<const uint8_t*>(owner->data()), owner->size()}};
    intake_.OnMessage(kSender, message);
  }
  ManualClock clock_;
  FakeSite site_;
  SnapshotIntake intake_{&site_, &clock_};
};

TEST_F(SnapshotIntakeTest, BlockAfterBlockThenTheMeta) {
  Send(Kind::kSnapshotBegin, 3);
  Send(Kind::kSnapshotRows, 3, 0, "a");
  Send(Kind::kSnapshotRows, 3, 1, "b");
  Send(Kind::kSnapshotRows, 3, 1, "b");  // twice
  Send(Kind::kSnapshotEnd, 3, 2, "m");
  EXPECT_THAT(site_.Take(), ElementsAre("begin 3 at 40", "ok 3 0", "write 3 a", "ok 3 1",
                                        "write 3 b", "ok 3 2", "ok 3 2", "finish 3 m", "ok 3 3"));
  EXPECT_EQ(NumberOf(intake_, "snapshots_received"), 1u);
  // It is over: a late block is told so.
  Send(Kind::kSnapshotRows, 3, 2, "c");
  EXPECT_THAT(site_.Take(), ElementsAre("no 3 0"));
}

TEST_F(SnapshotIntakeTest, NobodyIsTakenUnasked) {
  Send(Kind::kSnapshotBegin, 99);
  Send(Kind::kSnapshotBegin, 3, 0, "", 1, /*epoch=*/4);
  Send(Kind::kSnapshotRows, 3, 0, "a");
  EXPECT_THAT(site_.Take(), ElementsAre("no 99 0", "no 3 0", "no 3 0"));
}

TEST_F(SnapshotIntakeTest, AGapOrABadBlockEndsTheTransfer) {
  Send(Kind::kSnapshotBegin, 3);
  Send(Kind::kSnapshotRows, 3, 0, "bad");
  EXPECT_THAT(site_.Take(),
              ElementsAre("begin 3 at 40", "ok 3 0", "no 3 0", "abandon 3", "no 3 0"));
  Send(Kind::kSnapshotBegin, 4);
  Send(Kind::kSnapshotEnd, 4, 1, "m");
  EXPECT_THAT(site_.Take(),
              ElementsAre("begin 4 at 40", "ok 4 0", "no 4 0", "abandon 4", "no 4 0"));
}

TEST_F(SnapshotIntakeTest, TwoAtATimeTheOthersWait) {
  for (uint32_t shard : {1, 2, 3, 4}) Send(Kind::kSnapshotBegin, shard);
  EXPECT_THAT(site_.Take(), ElementsAre("begin 1 at 40", "ok 1 0", "begin 2 at 40", "ok 2 0"));
  Send(Kind::kSnapshotEnd, 2, 0, "m");
  EXPECT_THAT(site_.Take(), ElementsAre("finish 2 m", "ok 2 1", "begin 3 at 40", "ok 3 0"));
  // The connection is lost: transfers in flight are taken back, and waiting senders are answered.
  intake_.OnPeerLost(kSender);
  EXPECT_THAT(site_.Take(), ElementsAre("abandon 3", "no 3 0", "abandon 1", "no 1 0", "no 4 0"));
}

TEST_F(SnapshotIntakeTest, ASilentSenderIsGivenUp) {
  Send(Kind::kSnapshotBegin, 1);
  EXPECT_EQ(site_.Take().size(), 2u);
  intake_.Check();
  clock_.Advance(kTransferSilentNsMax + 1);
  intake_.Check();
  EXPECT_THAT(site_.Take(), ElementsAre("abandon 1", "no 1 0"));
}

TEST_F(SnapshotIntakeTest, AnAppendSaysThatTheTransferIsOff) {
  Send(Kind::kSnapshotBegin, 1);
  Send(Kind::kAppend, 2);
  Send(Kind::kAppend, 1);
  EXPECT_THAT(site_.Take(), ElementsAre("begin 1 at 40", "ok 1 0", "abandon 1", "no 1 0"));
}

}  // namespace snapshot_intake_test
}  // namespace hotbed
