#include "server/shard_log/log_writer.h"

#include <atomic>
#include <thread>

#include "absl/strings/match.h"
#include "gmock/gmock.h"
#include "tests/shard_log/log_fixture.h"

namespace hotbed {
namespace log_writer_test {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Runs each test with a log that begins new files, and with one that is written over old segments.
class WriterTest : public LogTest, public ::testing::WithParamInterface<bool> {
 protected:
  WriterTest() {
    if (GetParam()) options_.segment_bytes = 16 << 10;  // each Open fills several
  }

  std::unique_ptr<ShardLog> Open() {
    if (!GetParam()) return LogTest::Open();
    marks_ = *Marks::Open("/MARKS", &files_, /*make=*/!files_.Exists("/MARKS"));
    options_.marks = marks_.get();
    ++options_.run;
    std::unique_ptr<ShardLog> log = LogTest::Open();
    if (old_lsn_ == 0) WriteOverOldSegments(log.get());  // later the records of the test keep all
    return log;
  }
  // kill -9 and the next start.
  void Restart(std::unique_ptr<ShardLog>* log) {
    files_.Kill();
    log->reset();
    *log = Open();
  }
  static std::vector<std::string> Replayed(ShardLog* log) {
    std::vector<std::string> names = hotbed::Replayed(log);
    std::erase_if(names, [](const std::string& name) {
      return absl::StartsWith(name, kOldShard.ToString() + " ");
    });
    return names;
  }

 private:
  static constexpr ShardId kOldShard{99, 0};

  // Afterwards the newest segment is written over an older one, and there are spares for the next.
  void WriteOverOldSegments(ShardLog* log) {
    const uint64_t segments = log->GetUsage().segments;
    while (log->GetUsage().segments < segments + 6) AppendOld(log);
    log->SetLeastNeeded(kOldShard, old_lsn_ + 1);
    while (!Reused()) AppendOld(log);
    log->ForgetShard(kOldShard);
  }
  void AppendOld(ShardLog* log) {
    ASSERT_TRUE(AppendCommit(log, kOldShard, ++old_lsn_, 8, 8).ok());
  }

  std::unique_ptr<Marks> marks_;
  Lsn old_lsn_ = 0;
};
INSTANTIATE_TEST_SUITE_P(Files, WriterTest, ::testing::Bool(),
                         [](const auto& of) { return of.param ? "Old" : "New"; });

TEST_P(WriterTest, RecordsComeBackInOrder) {
  std::vector<std::string> want;
  {
    auto log = Open();
    Lsn lsn = 0;
    for (const RowType type : {RowType::kFp32, RowType::kFp16, RowType::kBf16, RowType::kInt8}) {
      for (const uint32_t ids : {0u, 1u, 2u, 33u}) {
        const auto record = MakeRecord(kShardA, ++lsn, ids, 7, type);
        ASSERT_TRUE(AppendCommit(log.get(), record.get()).ok());
        want.push_back(NameOf(kShardA, lsn));
      }
    }
    ASSERT_TRUE(AppendCommit(log.get(), kShardB, 1).ok());
    want.push_back(NameOf(kShardB, 1));
  }
  auto log = Open();
  EXPECT_EQ(Replayed(log.get()), want);
  EXPECT_TRUE(log->damage().empty());
  EXPECT_EQ(log->GetUsage().torn_bytes, 0);
  ASSERT_TRUE(AppendCommit(log.get(), kShardB, 2).ok());
  Restart(&log);
  want.push_back(NameOf(kShardB, 2));
  EXPECT_EQ(Replayed(log.get()), want);
}

TEST_P(WriterTest, ScatteredRowsReadAsContiguousOnes) {
  auto log = Open();
  const auto record = MakeRecord(kShardA, 1, 40, 6);
  std::vector<std::vector<uint8_t>> scattered;
  for (size_t i = 0; i < record->rows.size(); ++i) {
    scattered.emplace_back(record->rows[i], record->rows[i] + 24);
  }
  for (size_t i = 10; i < 30; ++i) record->rows[i] = scattered[i].data();
  ASSERT_TRUE(AppendCommit(log.get(), record.get()).ok());
  EXPECT_THAT(Replayed(log.get()), ElementsAre(NameOf(kShardA, 1)));
}

TEST_P(WriterTest, OneWriteTakesEverythingQueued) {
  auto log = Open();
  const ShardLog::Usage before = log->GetUsage();
  std::vector<std::unique_ptr<TestRecord>> records;
  for (Lsn lsn = 1; lsn <= 20; ++lsn) {
    records.push_back(MakeRecord(kShardA, lsn, 4, 4));
    Append(log.get(), records.back().get());
    EXPECT_EQ(records.back()->completions, 0);
  }
  log->Commit();
  for (const auto& record : records) {
    EXPECT_EQ(record->completions, 1);
    EXPECT_TRUE(record->result.ok());
  }
  EXPECT_EQ(log->GetUsage().appends, before.appends + 20);
  EXPECT_EQ(log->GetUsage().writes, before.writes + 1);
}

TEST_P(WriterTest, ThreadsShareWritesAndKeepEachShardsOrder) {
  options_.segment_bytes = 16 << 10;
  constexpr uint32_t kThreads = 4;
  constexpr Lsn kEach = 300;
  auto log = Open();
  const uint64_t writes = log->GetUsage().writes;
  // Completions come on any of the threads: a record stays where it is until all are done.
  std::vector<std::vector<std::unique_ptr<TestRecord>>> records(kThreads);
  std::vector<std::thread> threads;
  std::atomic<uint64_t> completed{0};
  for (uint32_t t = 0; t < kThreads; ++t) {
    for (Lsn lsn = 1; lsn <= kEach; ++lsn) {
      records[t].push_back(MakeRecord(ShardId{10 + t, 0}, lsn, lsn % 5, 4));
    }
    threads.emplace_back([&, t] {
      for (auto& record : records[t]) {
        record->append.header = record->header;
        record->append.ids = record->ids.data();
        record->append.gradients = record->rows.data();
        record->append.done = [&, r = record.get()](absl::Status status) {
          r->result = std::move(status);
          ++completed;
        };
        log->Append(&record->append);
        log->Commit();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  ASSERT_EQ(completed, kThreads * kEach);
  EXPECT_LE(log->GetUsage().writes - writes, kThreads * kEach + log->GetUsage().segments);
  const std::vector<std::string> found = Replayed(log.get());
  for (uint32_t t = 0; t < kThreads; ++t) {
    std::vector<std::string> want;
    std::vector<std::string> have;
    for (Lsn lsn = 1; lsn <= kEach; ++lsn) {
      want.push_back(NameOf(ShardId{10 + t, 0}, lsn));
      EXPECT_TRUE(records[t][lsn - 1]->result.ok());
    }
    for (const std::string& name : found) {
      if (name.rfind(ShardId{10 + t, 0}.ToString() + " ", 0) == 0) have.push_back(name);
    }
    EXPECT_EQ(have, want);
  }
}

// A record whose completion is counted and whose memory dies with it, as in the shard.
struct OwnedAppend {
  std::unique_ptr<TestRecord> record;
  LogAppend append;
};

TEST_P(WriterTest, CompletionsRunInOrderAndMayFreeTheirAppend) {
  auto log = Open();
  std::vector<Lsn> order;
  for (Lsn lsn = 1; lsn <= 5; ++lsn) {
    auto* owned = new OwnedAppend{MakeRecord(kShardA, lsn, 2, 2), {}};
    owned->append.header = owned->record->header;
    owned->append.ids = owned->record->ids.data();
    owned->append.gradients = owned->record->rows.data();
    owned->append.done = [&order, owned, lsn](absl::Status status) {
      EXPECT_TRUE(status.ok());
      order.push_back(lsn);
      delete owned;
    };
    log->Append(&owned->append);
  }
  log->Commit();
  EXPECT_THAT(order, ElementsAre(1, 2, 3, 4, 5));
}

TEST_P(WriterTest, ACompletionMayAppendAndCommit) {
  auto log = Open();
  const auto first = MakeRecord(kShardA, 1, 2, 2);
  const auto second = MakeRecord(kShardA, 2, 2, 2);
  Append(log.get(), first.get());
  first->append.done = [&](absl::Status) {
    Append(log.get(), second.get());
    log->Commit();
    EXPECT_EQ(second->completions, 0);  // this thread is the writer: it continues when we return
  };
  log->Commit();
  EXPECT_TRUE(second->result.ok()) << second->result;
}

TEST_P(WriterTest, SegmentsRollAndAreReadAsOneLog) {
  options_.segment_bytes = 2048;
  std::vector<std::string> want;
  {
    auto log = Open();
    for (Lsn lsn = 1; lsn <= 50; ++lsn) {
      ASSERT_TRUE(AppendCommit(log.get(), kShardA, lsn, 8, 8).ok());
      want.push_back(NameOf(kShardA, lsn));
    }
    EXPECT_GT(log->GetUsage().segments, 5);
  }
  EXPECT_EQ(Replayed(Open().get()), want);
}

TEST_F(LogTest, ARecordLargerThanASegmentHasOneOfItsOwn) {
  options_.segment_bytes = 512;
  auto log = Open();
  ASSERT_TRUE(AppendCommit(log.get(), kShardA, 1, 100, 8).ok());
  ASSERT_TRUE(AppendCommit(log.get(), kShardA, 2, 1, 1).ok());
  EXPECT_EQ(log->GetUsage().segments, 2);
  EXPECT_THAT(Replayed(log.get()), ElementsAre(NameOf(kShardA, 1), NameOf(kShardA, 2)));
}

// Whole segments are cut, so that a few rows must not keep the space of a long one.
TEST_F(LogTest, SegmentsAreShortWhileTheLogIs) {
  auto log = Open();
  for (Lsn lsn = 1; lsn <= 20; ++lsn) {  // 4 MiB each
    ASSERT_TRUE(AppendCommit(log.get(), kShardA, lsn, 1 << 10, 1 << 10).ok());
  }
  const ShardLog::Usage full = log->GetUsage();
  EXPECT_GT(full.bytes, 80u << 20);
  EXPECT_GE(full.segments, 5);
  log->SetLeastNeeded(kShardA, 21);
  EXPECT_LT(log->GetUsage().bytes, 20u << 20) << "all but the newest";
}

TEST_F(LogTest, DiskFullFailsWithoutATraceAndResumes) {
  auto log = Open();
  ASSERT_TRUE(AppendCommit(log.get(), kShardA, 1).ok());
  ASSERT_TRUE(AppendCommit(log.get(), kShardB, 1).ok());
  GroupTable table;
  for (const Lsn lsn : {Lsn{2}, Lsn{3}}) table.Add(MakeRecord(kShardA, lsn, 3, 5)->header, 0);
  table.Seal({});
  // Each byte at which the disk may fill up, inside a group of two records.
  for (uint64_t space = 0; space < table.length(); space += 8) {
    files_.SetFreeBytes(space);
    const auto second = MakeRecord(kShardA, 2, 3, 5);
    const auto third = MakeRecord(kShardA, 3, 3, 5);
    Append(log.get(), second.get());
    Append(log.get(), third.get());
    log->Commit();
    EXPECT_EQ(second->result.code(), absl::StatusCode::kResourceExhausted) << second->result;
    EXPECT_EQ(third->result.code(), absl::StatusCode::kResourceExhausted);
    EXPECT_TRUE(log->GetUsage().read_only);
    EXPECT_THAT(log->GetUsage().error, HasSubstr("read-only"));
    EXPECT_EQ(AppendCommit(log.get(), kShardB, 2).code(), absl::StatusCode::kResourceExhausted);
    EXPECT_EQ(log->TryResume().code(), absl::StatusCode::kResourceExhausted);
    EXPECT_THAT(Replayed(log.get()), ElementsAre(NameOf(kShardA, 1), NameOf(kShardB, 1)));
    files_.SetFreeBytes(UINT64_MAX);
    ASSERT_TRUE(log->TryResume().ok());
    EXPECT_FALSE(log->GetUsage().read_only);
  }
  ASSERT_TRUE(AppendCommit(log.get(), kShardA, 2).ok());
  ASSERT_TRUE(AppendCommit(log.get(), kShardB, 2).ok());
  log = Open();
  EXPECT_THAT(Replayed(log.get()), ElementsAre(NameOf(kShardA, 1), NameOf(kShardB, 1),
                                               NameOf(kShardA, 2), NameOf(kShardB, 2)));
  EXPECT_TRUE(log->damage().empty());
  EXPECT_EQ(log->GetUsage().torn_bytes, 0);
}

TEST_P(WriterTest, ARefusedLsnMustComeAgainBeforeThoseBehindIt) {
  auto log = Open();
  ASSERT_TRUE(AppendCommit(log.get(), kShardA, 1).ok());
  files_.FailAppends(1);
  EXPECT_FALSE(AppendCommit(log.get(), kShardA, 2).ok());
  ASSERT_TRUE(log->TryResume().ok());
  const absl::Status behind = AppendCommit(log.get(), kShardA, 3);
  EXPECT_EQ(behind.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(behind.message()), HasSubstr("LSN 2"));
  EXPECT_TRUE(AppendCommit(log.get(), kShardB, 9).ok()) << "other shards go on";
  EXPECT_TRUE(AppendCommit(log.get(), kShardA, 2).ok());
  EXPECT_TRUE(AppendCommit(log.get(), kShardA, 3).ok());
}

TEST_F(LogTest, AFailedSegmentRollLeavesTheOldSegmentInUse) {
  options_.segment_bytes = 1024;
  auto log = Open();
  Lsn lsn = 1;
  while (log->GetUsage().segments == 1) {
    const uint64_t bytes = RecordBytes(MakeRecord(kShardA, lsn, 3, 5)->header);
    const bool rolls = log->GetUsage().bytes + bytes > options_.segment_bytes;
    if (!rolls) {
      ASSERT_TRUE(AppendCommit(log.get(), kShardA, lsn++).ok());
      continue;
    }
    files_.SetFreeBytes(10);
    EXPECT_FALSE(AppendCommit(log.get(), kShardA, lsn).ok());
    EXPECT_FALSE(files_.Exists(SegmentPath(2)));
    files_.SetFreeBytes(UINT64_MAX);
    ASSERT_TRUE(log->TryResume().ok());
    ASSERT_TRUE(AppendCommit(log.get(), kShardA, lsn).ok());
  }
  log = Open();
  EXPECT_EQ(Replayed(log.get()).size(), lsn);
  EXPECT_TRUE(log->damage().empty());
}

TEST_P(WriterTest, AFailedSyncPoisons) {
  options_.sync_interval_ms = 0;
  auto log = Open();
  ASSERT_TRUE(AppendCommit(log.get(), kShardA, 1).ok());
  files_.FailSyncs(1);
  EXPECT_EQ(AppendCommit(log.get(), kShardA, 2).code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(AppendCommit(log.get(), kShardA, 2).code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(log->TryResume().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(log->Sync().code(), absl::StatusCode::kDataLoss);
  EXPECT_TRUE(log->GetUsage().read_only);
  Restart(&log);
  EXPECT_THAT(Replayed(log.get()), ElementsAre(NameOf(kShardA, 1)));
}

TEST_P(WriterTest, AFailedBackgroundSyncPoisons) {
  auto log = Open();
  ASSERT_TRUE(AppendCommit(log.get(), kShardA, 1).ok());
  files_.FailSyncs(1);
  EXPECT_EQ(log->Sync().code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(AppendCommit(log.get(), kShardA, 2).code(), absl::StatusCode::kDataLoss);
}

TEST_P(WriterTest, TheQueueIsBounded) {
  options_.queue_bytes_max = 1000;
  auto log = Open();
  std::vector<std::unique_ptr<TestRecord>> records;
  for (Lsn lsn = 1; lsn <= 10; ++lsn) {
    records.push_back(MakeRecord(kShardA, lsn, 3, 5));
    Append(log.get(), records.back().get());
  }
  log->Commit();
  size_t taken = 0;
  while (records[taken]->result.ok()) ++taken;
  EXPECT_GT(taken, 2);
  ASSERT_LT(taken, 10);
  EXPECT_EQ(records[taken]->result.code(), absl::StatusCode::kResourceExhausted);
  for (size_t i = taken; i < 10; ++i)
    EXPECT_FALSE(records[i]->result.ok()) << "no hole behind a refusal";
  EXPECT_EQ(Replayed(log.get()).size(), taken);
  EXPECT_TRUE(AppendCommit(log.get(), kShardA, taken + 1).ok());
}

TEST_P(WriterTest, AnOversizedRecordIsRefusedAlone) {
  auto log = Open();
  const auto record = MakeRecord(kShardA, 1, 1, 1);
  record->header.id_count = 9 << 20;
  EXPECT_EQ(AppendCommit(log.get(), record.get()).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(AppendCommit(log.get(), kShardA, 1).ok());
}

TEST_P(WriterTest, SyncCoversEverySegmentWrittenSinceTheLast) {
  options_.segment_bytes = 1024;
  options_.rebooted = true;
  auto log = Open();
  for (Lsn lsn = 1; lsn <= 12; ++lsn) ASSERT_TRUE(AppendCommit(log.get(), kShardA, lsn, 8, 8).ok());
  EXPECT_GT(log->GetUsage().unsynced_bytes, 0);
  clock_.Advance(5);
  EXPECT_EQ(log->GetUsage().unsynced_age_ns, 5);
  ASSERT_TRUE(log->Sync().ok());
  EXPECT_EQ(log->GetUsage().unsynced_bytes, 0);
  log = nullptr;
  files_.Crash();
  log = Open();
  EXPECT_EQ(Replayed(log.get()).size(), 12);
}

TEST_P(WriterTest, ZeroIntervalSurvivesPowerLossWithEveryAcknowledgement) {
  options_.sync_interval_ms = 0;
  options_.segment_bytes = 1500;
  options_.rebooted = true;
  Lsn lsn = 0;
  for (int round = 0; round < 20; ++round) {
    auto log = Open();
    ASSERT_TRUE(log->damage().empty()) << log->damage()[0].message;
    ASSERT_EQ(Replayed(log.get()).size(), lsn);
    for (int i = 0; i < 3; ++i) ASSERT_TRUE(AppendCommit(log.get(), kShardA, ++lsn, 4, 4).ok());
    log = nullptr;
    files_.Crash();
  }
}

TEST_P(WriterTest, TheSyncThreadSyncsByItself) {
  options_.sync_interval_ms = 1;
  auto log = Open();
  ASSERT_TRUE(AppendCommit(log.get(), kShardA, 1).ok());
  for (int i = 0; i < 5000 && log->GetUsage().unsynced_bytes > 0; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  EXPECT_EQ(log->GetUsage().unsynced_bytes, 0);
  EXPECT_GE(log->GetUsage().syncs, 1);
}

}  // namespace log_writer_test
}  // namespace hotbed
