// One shard over rows that the test makes slow, full or damaged.
#include "server/shard/shard.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <deque>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "common/threads/thread_pool.h"
#include "server/host/table_checkpoints.h"
#include "tests/shard/fake_store.h"
#include "tests/shard/host_fixture.h"

namespace hotbed {
namespace shard_test {

constexpr uint32_t kDim = 4;

class ShardTest : public testing::Test {
 protected:
  ShardTest() : pool_("test", 1) { Open(TestTable(1, "t", 100, kDim, OptimizerKind::kSgd)); }
  ~ShardTest() override { shard_->ReleaseStore(); }

  void Open(const TableSpec& table) {
    if (shard_ != nullptr) shard_->ReleaseStore();
    Shard::Options options;
    options.table = table;
    options.id = {1, 0};
    options.range = {0, 100, 0, kDim};
    options.tiers = &tiers_;
    options.pool = &pool_;
    options.clock = Clock::Real();
    shard_ = std::make_shared<Shard>(std::move(options), 0);
  }

  FakeStore& store() { return *tiers_.store; }
  void Activate(Epoch epoch = 1) {
    shard_->FinishReplay();
    ShardRecord record;
    record.shard = {1, 0};
    record.range = {0, 100, 0, kDim};
    record.epoch = record.revision = epoch;
    record.primary = {1, 1};
    record.members = {record.primary};
    record.active = true;
    shard_->PromiseDurable(shard_->LearnRecord(record.primary, record));
    ASSERT_TRUE(shard_->active());
  }
  // One record of the log, for row 3; the result is set when it is done with.
  std::shared_ptr<bool> Replay(Lsn lsn) {
    const uint64_t id = 3;
    const std::vector<float> gradient(kDim, 1.0f);
    RecordView record;
    record.header.shard = {1, 0};
    record.header.epoch = 1;
    record.header.lsn = lsn;
    record.header.session = 7;
    record.header.incarnation = 1;
    record.header.seq = lsn;
    record.header.prev_seq = lsn - 1;
    record.header.id_count = 1;
    record.header.dim = kDim;
    record.ids = &id;
    record.gradients = reinterpret_cast<const uint8_t*>(gradient.data());
    auto done = std::make_shared<bool>(false);
    shard_->Replay(record, [done] { *done = true; });
    return done;
  }
  std::unique_ptr<TestPush> Push(uint64_t seq) {
    auto push = std::make_unique<TestPush>();
    push->session = 7;
    push->incarnation = 1;
    push->ids = {{3}};
    push->gradients = {std::vector<float>(kDim, 1.0f)};
    push->rows = {{reinterpret_cast<const uint8_t*>(push->gradients[0].data())}};
    PushSegment& segment = push->segments.emplace_back();
    segment.shard = shard_.get();
    segment.shard_id = {1, 0};
    segment.epoch = 1;
    segment.ids = push->ids[0].data();
    segment.count = 1;
    segment.gradients = push->rows[0].data();
    segment.seq = seq;
    segment.prev_seq = seq - 1;
    segment.open = seq == 1;
    push->pending = 1;
    shard_->Push(push.get(), &segment);
    return push;
  }

  ThreadPool pool_;
  FakeTiers tiers_;
  std::shared_ptr<Shard> shard_;
};

TEST_F(ShardTest, ReplayWaitsForRowsThatAreFullAndLosesNothing) {
  store().results = {absl::OkStatus(), absl::ResourceExhaustedError("the spill tier is full"),
                     absl::UnavailableError("an I/O error")};
  const auto first = Replay(1);
  const auto second = Replay(2);
  const auto third = Replay(3);
  EXPECT_TRUE(*first);
  EXPECT_FALSE(*second);
  EXPECT_FALSE(*third);
  EXPECT_FALSE(shard_->refused());
  EXPECT_THAT(shard_->error(), testing::HasSubstr("the spill tier is full"));
  shard_->RetryReplay();
  EXPECT_FALSE(*second) << "still not";
  EXPECT_THAT(shard_->error(), testing::HasSubstr("an I/O error"));
  shard_->RetryReplay();
  EXPECT_TRUE(*second);
  EXPECT_TRUE(*third);
  EXPECT_EQ(shard_->error(), "");
  EXPECT_EQ(store().applied, (std::vector<Lsn>{2, 3})) << "in order, each once";
  Activate();
  auto push = Push(4);
  push->done.WaitForNotification();
  EXPECT_EQ(push->segments[0].result.code, SegmentCode::kOk) << push->segments[0].result.detail;
  EXPECT_EQ(push->segments[0].result.lsn, 4u);
}

TEST_F(ShardTest, ReplayOfDamageRefusesForGood) {
  store().results = {absl::DataLossError("wrong checksum")};
  const auto first = Replay(1);
  const auto second = Replay(2);
  EXPECT_TRUE(*first);
  EXPECT_TRUE(*second);
  EXPECT_TRUE(shard_->refused());
  EXPECT_TRUE(store().applied.empty());
}

TEST_F(ShardTest, APullTellsTheLsnOfItsStart) {
  Activate();
  store().hold_pulls = true;
  TestPull pull;
  pull.ids = {{3}};
  pull.rows = {std::vector<uint8_t>(kDim * 4)};
  PullSegment& segment = pull.segments.emplace_back();
  segment.shard = shard_.get();
  segment.shard_id = {1, 0};
  segment.epoch = 1;
  segment.ids = pull.ids[0].data();
  segment.count = 1;
  segment.rows = pull.rows[0].data();
  pull.pending = 1;
  shard_->Pull(&pull, &segment);
  ASSERT_EQ(store().held_pulls.size(), 1u);
  auto push = Push(1);
  push->done.WaitForNotification();
  EXPECT_EQ(shard_->applied_lsn(), 1u);
  store().held_pulls[0](absl::OkStatus());
  pull.done.WaitForNotification();
  EXPECT_EQ(segment.result.code, SegmentCode::kOk);
  EXPECT_EQ(segment.result.lsn, 0u) << "its first rows were read before the push";
}

TEST_F(ShardTest, APushOnItsWayWhenDamageIsFoundIsNotToldAsFailed) {
  Activate();
  store().results = {absl::DataLossError("wrong checksum")};
  auto push = Push(1);
  push->done.WaitForNotification();
  // It is in the log: a repaired shard applies it.
  EXPECT_EQ(push->segments[0].result.code, SegmentCode::kUnavailable);
  EXPECT_THAT(push->segments[0].result.detail, testing::HasSubstr("is not known"));
  EXPECT_TRUE(shard_->refused());
  auto next = Push(2);
  next->done.WaitForNotification();
  EXPECT_EQ(next->segments[0].result.code, SegmentCode::kCorrupt);
}

// The rows of an update that waits for the disk are the sender's memory: it has it back only once
// they were read, though its answer is known before.
TEST_F(ShardTest, APushThatIsBeingAppliedKeepsItsSendersMemoryOverAStepDown) {
  Activate();
  store().hold_updates = true;
  auto push = Push(1);
  ASSERT_EQ(store().held_updates.size(), 1u);
  ShardRecord record;
  record.shard = {1, 0};
  record.range = {0, 100, 0, kDim};
  record.epoch = record.revision = 2;
  record.primary = {2, 1};
  record.members = {record.primary};
  shard_->LearnRecord({1, 1}, record);
  EXPECT_FALSE(shard_->active());
  EXPECT_FALSE(push->done.HasBeenNotified()) << "its rows are still to be read";
  store().held_updates[0]();
  push->done.WaitForNotification();
  EXPECT_EQ(push->segments[0].result.code, SegmentCode::kWrongEpoch);
  EXPECT_EQ(store().applied, (std::vector<Lsn>{1}));
}

TEST_F(ShardTest, ClosedWhileItsRowsAreFullItIsReleasedAllTheSame) {
  Activate();
  store().results = {absl::ResourceExhaustedError("the spill tier is full")};
  auto push = Push(1);
  EXPECT_FALSE(push->done.HasBeenNotified());
  shard_->Close();
  push->done.WaitForNotification();
  EXPECT_EQ(push->segments[0].result.code, SegmentCode::kUnavailable);
  EXPECT_TRUE(shard_->idle()) << "nobody tries the update again";
}

// The log may still have a commit that another primary replaced, at an LSN that the stored meta has
// passed since.
TEST_F(ShardTest, AReplacedCommitInTheLogLeavesTheStagedPushesOfTheMeta) {
  constexpr uint64_t kStep = 5;
  const uint64_t id = 3;
  const std::vector<float> gradient(kDim, 1.0f);
  const auto* const row = reinterpret_cast<const uint8_t*>(gradient.data());
  RecordHeader push;
  push.shard = {1, 0};
  push.epoch = push.lsn = push.incarnation = 1;
  push.session = 7;
  push.seq = kStep << kStepShift | 1;
  push.staged = true;
  push.id_count = 1;
  push.dim = kDim;
  StagedRows staged(nullptr);
  staged.Add(push, &id, &row);
  ShardMeta meta;
  meta.applied_lsn = 2;
  meta.applied_epoch = 2;
  meta.staged = {{1, 7, push.seq, staged.Serialize(1)}};
  tiers_.meta = meta.Serialize();
  TableSpec table = TestTable(1, "t", 100, kDim, OptimizerKind::kSgd);
  table.consistency = Consistency::kSync;
  Open(table);

  const uint64_t session = 7;
  RecordView replaced;
  replaced.header.shard = {1, 0};
  replaced.header.epoch = 1;
  replaced.header.lsn = 2;
  replaced.header.kind = RecordKind::kStepCommit;
  replaced.header.seq = kStep << kStepShift;
  replaced.header.id_count = 1;
  replaced.ids = &session;
  shard_->Replay(replaced, [] {});
  Activate(/*epoch=*/3);

  TestPush commit;
  PushSegment& segment = commit.segments.emplace_back();
  segment.shard = shard_.get();
  segment.shard_id = {1, 0};
  segment.epoch = 3;
  segment.commit_step = kStep;
  segment.ids = &session;
  segment.count = 1;
  commit.pending = 1;
  shard_->Push(&commit, &segment);
  commit.done.WaitForNotification();
  EXPECT_EQ(segment.result.code, SegmentCode::kOk) << segment.result.detail;
  EXPECT_EQ(store().applied, (std::vector<Lsn>{segment.result.lsn}));
}

// Kept as a checkpoint, its rows would be those of different moments.
TEST_F(ShardTest, AReplicaWhoseRowsAreAheadOfItsLogDoesNotStandStill) {
  store().highest = 2;
  Replay(1);
  EXPECT_TRUE(shard_->FinishReplay());
  EXPECT_FALSE(shard_->Pause(true));
  EXPECT_FALSE(shard_->Pause(false));
}

// A learner whose rows came with a transfer, and are ahead of its log. In an epoch before it was
// the primary, and the record of that epoch arrives late.
TEST_F(ShardTest, ARecordOfAnEarlierEpochDoesNotEndTheRowGuard) {
  store().highest = 2;
  Replay(1);
  EXPECT_TRUE(shard_->FinishReplay());
  const Member self{1, 1}, other{2, 1};
  ShardRecord record;
  record.shard = {1, 0};
  record.range = {0, 100, 0, kDim};
  record.epoch = record.revision = 5;
  record.primary = other;
  record.members = {other};
  record.learners = {self};
  record.active = true;
  shard_->PromiseDurable(shard_->LearnRecord(self, record));
  record.epoch = record.revision = 4;
  record.primary = self;
  record.members = {self};
  record.learners.clear();
  shard_->LearnRecord(self, record);
  EXPECT_EQ(shard_->applied_lsn(), 1u) << "LSN 2 is not in the log yet";
  EXPECT_FALSE(shard_->Pause(true)) << "its rows are still ahead of its log";
  EXPECT_FALSE(shard_->Pause(false));
}

// Else the checkpoint might have the state of the whole and later rows of its parts.
TEST_F(ShardTest, IsNotCutWhileACheckpointIsKept) {
  Activate();
  EXPECT_TRUE(shard_->Pause(true));
  EXPECT_FALSE(shard_->SettleForCut());
  EXPECT_TRUE(shard_->Pause(true)) << "the cut comes later";
  shard_->Pause(false);
  EXPECT_TRUE(shard_->SettleForCut());
  EXPECT_FALSE(shard_->Pause(true)) << "its parts may have the rows by now";
}

// The cut, or the merge, may wait for a shard that the checkpoint has paused already.
TEST_F(ShardTest, ACheckpointGivesWayToACutAtOnce) {
  Activate();
  EXPECT_TRUE(shard_->SettleForCut());
  TableCheckpoints checkpoints({.clock = Clock::Real()});
  const auto work = [] { return absl::InternalError("the shard does not stand still"); };
  EXPECT_TRUE(absl::IsUnavailable(checkpoints.WhilePaused({shard_}, work)));
}

TEST_F(ShardTest, PausedItTakesNoPushesAndSaysWhenItStandsStill) {
  Activate();
  store().results = {absl::ResourceExhaustedError("full")};
  auto waiting = Push(1);
  EXPECT_FALSE(shard_->Pause(true)) << "a push is on its way";
  auto refused = Push(2);
  refused->done.WaitForNotification();
  EXPECT_EQ(refused->segments[0].result.code, SegmentCode::kUnavailable);
  EXPECT_GT(refused->segments[0].result.retry_after_ms, 0u);
  shard_->Tick();
  waiting->done.WaitForNotification();
  EXPECT_TRUE(shard_->Pause(true));
  EXPECT_TRUE(shard_->Pause(false));
  auto again = Push(2);
  again->done.WaitForNotification();
  EXPECT_EQ(again->segments[0].result.code, SegmentCode::kOk);
}

}  // namespace shard_test
}  // namespace hotbed
