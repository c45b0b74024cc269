// Segments that are written over older ones: no record of an older segment is ever read as one of
// now, and none of now is missed.
#include "server/shard_log/log_spares.h"

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/metrics.h"
#include "common/random.h"
#include "gmock/gmock.h"
#include "tests/common/test_seed.h"
#include "tests/shard_log/log_fixture.h"

namespace hotbed {
namespace log_spares_test {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr uint64_t kRecord = 128 + 8 * 8 + 8 * 8 * 4;
constexpr uint64_t kSegmentBytes = 64 + 4 * kRecord;
constexpr Lsn kNeeded = 6;  // as many records at the end of the log are needed

Lsn LsnOf(absl::string_view name) {
  Lsn lsn = 0;
  EXPECT_TRUE(absl::SimpleAtoi(name.substr(name.rfind(' ') + 1), &lsn));
  return lsn;
}

class SparesTest : public LogTest {
 protected:
  SparesTest() : marks_(*Marks::Open("/MARKS", &files_, /*make=*/true)) {
    options_.marks = marks_.get();
    options_.segment_bytes = kSegmentBytes;
    options_.run = 1;
  }

  void Append(ShardLog* log, Lsn lsn) {
    ASSERT_TRUE(AppendCommit(log, kShardA, lsn, 8, 8).ok());
    if (lsn > kNeeded) log->SetLeastNeeded(kShardA, lsn - kNeeded + 1);
  }
  // One write of `count` records.
  void AppendGroup(ShardLog* log, Lsn first, Lsn count) {
    std::vector<std::unique_ptr<TestRecord>> records;
    for (Lsn lsn = first; lsn < first + count; ++lsn) {
      records.push_back(MakeRecord(kShardA, lsn, 8, 8));
      hotbed::Append(log, records.back().get());
    }
    log->Commit();
    for (const auto& record : records) ASSERT_TRUE(record->result.ok()) << record->result;
  }
  // A log whose newest segment is a reused one with two records; its last LSN.
  Lsn Fill(ShardLog* log) {
    Lsn lsn = 0;
    while (lsn < 30) Append(log, ++lsn);
    EXPECT_EQ(log->GetUsage().bytes % kSegmentBytes, 64 + 2 * kRecord);
    EXPECT_TRUE(Reused());
    return lsn;
  }
  // The segments of this process that began in such a file.
  static uint64_t Begun(absl::string_view file) {
    for (const MetricSample& sample : CollectMetrics()) {
      if (sample.name == "hotbed_server_log_segments_total" && sample.labels[0].second == file) {
        return static_cast<uint64_t>(sample.value);
      }
    }
    ADD_FAILURE() << "no counter of segments " << file;
    return 0;
  }
  size_t Spares() {
    const std::vector<std::string> names = *files_.List(kLogDir);
    return std::count_if(names.begin(), names.end(),
                         [](const std::string& name) { return absl::EndsWith(name, ".spare"); });
  }
  // As before the first start.
  void Reset() {
    ASSERT_TRUE(files_.MakeDir(kLogDir).ok());
    const std::vector<std::string> names = *files_.List(kLogDir);
    for (const std::string& name : names) {
      ASSERT_TRUE(files_.Delete(absl::StrCat(kLogDir, "/", name)).ok());
    }
    ASSERT_TRUE(files_.Delete("/MARKS").ok());
    marks_ = *Marks::Open("/MARKS", &files_, /*make=*/true);
    options_.marks = marks_.get();
    options_.rebooted = false;
  }
  // kill -9 and the next start; the records that it finds.
  std::vector<std::string> Restart(std::unique_ptr<ShardLog>* log) {
    files_.Kill();
    log->reset();
    marks_ = *Marks::Open("/MARKS", &files_, /*make=*/false);
    options_.marks = marks_.get();
    *log = Open();
    return *log == nullptr ? std::vector<std::string>() : Replayed(log->get());
  }

  std::unique_ptr<Marks> marks_;
};

TEST_F(SparesTest, ALogGoesOnInTheFilesOfItsOldSegments) {
  auto log = Open();
  const uint64_t reused = Begun("reused");
  const uint64_t no_spare = Begun("none");
  Lsn lsn = Fill(log.get());
  EXPECT_EQ(Spares(), 1u);
  EXPECT_EQ(Begun("none") - no_spare, 2u) << "until six records and the one before are two files";
  EXPECT_EQ(Begun("reused") - reused, 5u);
  EXPECT_EQ(log->GetUsage().bytes_spare, kSegmentBytes + 2 * kRecord)
      << "the spare, and the rest of the newest segment's file";
  const std::vector<std::string> found = Restart(&log);
  EXPECT_THAT(log->damage(), IsEmpty());
  EXPECT_EQ(log->GetUsage().torn_message, "");
  EXPECT_EQ(found.back(), NameOf(kShardA, lsn));
  EXPECT_EQ(found.size(), 6u);
  EXPECT_EQ(Spares(), 0u);
  // Its end is the end of its file again.
  EXPECT_EQ(files_.ReadAll(Newest())->size(), 64 + 2 * kRecord);
  for (int i = 0; i < 20; ++i) Append(log.get(), ++lsn);
  EXPECT_EQ(Spares(), 1u);
  log = nullptr;
  EXPECT_EQ(Spares(), 0u) << "a clean stop keeps none";
}

TEST_F(SparesTest, WithoutMarksSegmentsAreDeleted) {
  options_.marks = nullptr;
  auto log = Open();
  for (Lsn lsn = 1; lsn <= 30; ++lsn) Append(log.get(), lsn);
  EXPECT_EQ(Spares(), 0u);
  EXPECT_FALSE(Reused());
}

// A reused segment that has room left when the next one begins: its file ends with bytes of an
// older segment.
TEST_F(SparesTest, ASegmentEndsWhereTheNextOneSays) {
  for (const bool power_loss : {false, true}) {
    SCOPED_TRACE(power_loss);
    Reset();
    auto log = Open();
    Lsn lsn = Fill(log.get());
    const std::string ended = Newest();
    for (const uint32_t ids : {8, 3, 30}) {
      ASSERT_TRUE(AppendCommit(log.get(), kShardA, ++lsn, ids, 8).ok());
    }
    ASSERT_NE(Newest(), ended);
    ASSERT_EQ(files_.ReadAll(ended)->size(), kSegmentBytes) << "nothing is cut on the way";
    options_.rebooted = power_loss;
    const bool synced = log->Sync().ok() && marks_->Sync().ok();
    ASSERT_TRUE(synced);
    std::vector<std::string> found = Restart(&log);
    EXPECT_THAT(log->damage(), IsEmpty());
    EXPECT_EQ(log->GetUsage().torn_message, "");
    EXPECT_EQ(found.back(), NameOf(kShardA, lsn));
    ASSERT_TRUE(AppendCommit(log.get(), kShardA, ++lsn, 30, 8).ok());
  }
}

TEST_F(SparesTest, ASegmentThatEndsEarlyGivesTheRestOfItsFileBack) {
  auto log = Open();
  const Lsn lsn = Fill(log.get());
  const std::string ended = Newest();
  ASSERT_TRUE(AppendCommit(log.get(), kShardA, lsn + 1, 30, 8).ok());
  EXPECT_EQ(files_.ReadAll(ended)->size(), 64 + 2 * kRecord);
}

// kill -9 between the creation of a new file and its header.
TEST_F(SparesTest, AFileThatWasNeverBornLeavesTheSegmentBeforeItTheNewest) {
  for (const uint64_t bytes : {0, 1, 63}) {
    SCOPED_TRACE(bytes);
    Reset();
    auto log = Open();
    Lsn lsn = Fill(log.get());
    const std::string newest = Newest();
    const uint64_t next = *ParseSegmentName(newest.substr(newest.rfind('/') + 1)) + 1;
    SetContents(next, std::string(bytes, 'x'));
    for (int start = 0; start < 3; ++start) {
      const std::vector<std::string> found = Restart(&log);
      ASSERT_THAT(log->damage(), IsEmpty());
      EXPECT_EQ(found.back(), NameOf(kShardA, lsn));
      for (int i = 0; i < 3; ++i) Append(log.get(), ++lsn);
    }
  }
}

// The header of the next segment names an end that has a record behind it: it is not the header of
// the segment that followed.
TEST_F(SparesTest, AnEndThatIsNotTheEndIsDamage) {
  auto log = Open();
  const Lsn lsn = Fill(log.get());
  const std::string newest = Newest();
  const uint64_t sequence = *ParseSegmentName(newest.substr(newest.rfind('/') + 1));
  const std::string first = Contents(sequence).substr(64, kRecord);
  SegmentHeader header;
  header.sequence = sequence + 1;
  header.unsynced_from = sequence + 1;
  header.previous_bytes = 64 + kRecord;
  header.previous_crc = RecordHeaderCrc(first.data());
  SetContents(sequence + 1, EncodeSegmentHeader(header));
  marks_->Set(Marks::kLogWritten, {sequence + 1, kSegmentHeaderBytes, 0});
  const std::vector<std::string> found = Restart(&log);
  EXPECT_FALSE(log->damage().empty());
  EXPECT_EQ(found.back(), NameOf(kShardA, lsn));
}

// A log that has become short needs short segments.
TEST_F(SparesTest, ALongSpareIsNotWrittenOverWhereShortSegmentsAreNeeded) {
  ASSERT_TRUE(files_.MakeDir(kLogDir).ok());
  LogSpares spares(kLogDir, /*bytes_min=*/100, &files_);
  SetContents(1, std::string(1000, 'a'));
  SetContents(2, std::string(3000, 'b'));
  spares.KeepOrDelete({SegmentPath(1), SegmentPath(2)});
  ASSERT_EQ(Spares(), 2u);
  LogSpares::Reused made = spares.Reuse({.sequence = 3}, /*sync=*/false, SegmentPath(3), 2000);
  EXPECT_EQ(made.origin, SegmentOrigin::kReused);
  EXPECT_EQ(made.bytes, 1000u);
  EXPECT_EQ(Spares(), 1u);
  made = spares.Reuse({.sequence = 4}, /*sync=*/false, SegmentPath(4), 2000);
  EXPECT_EQ(made.origin, SegmentOrigin::kTooLong);
  EXPECT_EQ(made.bytes, 0u);
  EXPECT_EQ(Spares(), 1u) << "no append waits for a deletion";
  EXPECT_EQ(spares.bytes(), 3000u);
  spares.DeleteGivenUp();
  EXPECT_EQ(Spares(), 0u) << "it would never fit";
  EXPECT_EQ(spares.bytes(), 0u);
  made = spares.Reuse({.sequence = 5}, /*sync=*/false, SegmentPath(5), 2000);
  EXPECT_EQ(made.origin, SegmentOrigin::kNone);
}

// Behind the records of a segment that a refused shard needs, others are emptied.
TEST_F(SparesTest, AnEmptiedSegmentStillSaysWhereTheOneBeforeEnds) {
  auto log = Open();
  Lsn lsn = Fill(log.get());
  ASSERT_TRUE(AppendCommit(log.get(), kShardB, 1, 8, 8).ok());
  ASSERT_TRUE(AppendCommit(log.get(), kShardB, 2, 3, 8).ok());
  const std::string ended = Newest();
  log->SetAside(kShardB, true);
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(AppendCommit(log.get(), kShardA, ++lsn, 30, 8).ok());
  ASSERT_EQ(files_.ReadAll(ended)->size(), kSegmentBytes);
  log->SetLeastNeeded(kShardA, lsn);
  const uint64_t sequence = *ParseSegmentName(ended.substr(ended.rfind('/') + 1));
  ASSERT_FALSE(files_.Exists(SegmentPath(sequence - 1)));
  ASSERT_EQ(Contents(sequence + 1).size(), kSegmentHeaderBytes);
  const std::vector<std::string> found = Restart(&log);
  EXPECT_THAT(log->damage(), IsEmpty());
  EXPECT_EQ(found.back(), NameOf(kShardA, lsn));
}

TEST_F(SparesTest, AHeaderOfAnOlderSegmentHasNoRecordsOfNow) {
  auto log = Open();
  Lsn lsn = Fill(log.get());
  // The rename of the spare was durable and its new header was not: the newest file is an older
  // segment as a whole.
  const std::vector<std::string> names = *files_.List(kLogDir);
  const std::string older = *files_.ReadAll(absl::StrCat(kLogDir, "/", names.front()));
  const std::string newest = Newest();
  marks_->Set(Marks::kLogSynced, {});
  ASSERT_TRUE(files_.WriteAtomically(newest, older).ok());
  options_.rebooted = true;
  const std::vector<std::string> found = Restart(&log);
  EXPECT_THAT(log->damage(), IsEmpty());
  EXPECT_EQ(found.back(), NameOf(kShardA, lsn - 2));
  EXPECT_THAT(log->GetUsage().torn_message, HasSubstr("with 0 bytes of records"));
}

// Writes of a power loss that reached the disk in another order: of two records, the later one.
TEST_F(SparesTest, ARecordBehindOldBytesIsALossAfterAPowerLossAndElseDamage) {
  for (const bool power_loss : {false, true}) {
    SCOPED_TRACE(power_loss);
    Reset();
    auto log = Open();
    const Lsn lsn = Fill(log.get());
    const std::string path = Newest();
    const std::string before = *files_.ReadAll(path);
    const std::string marks = *files_.ReadAll("/MARKS");
    Append(log.get(), lsn + 1);
    Append(log.get(), lsn + 2);
    const std::string after = *files_.ReadAll(path);
    const uint64_t lost = 64 + 2 * kRecord;
    ASSERT_TRUE(files_.WriteAtomically("/MARKS", marks).ok());
    ASSERT_TRUE(
        files_
            .WriteAtomically(path, absl::StrCat(after.substr(0, lost), before.substr(lost, kRecord),
                                                after.substr(lost + kRecord)))
            .ok());
    options_.rebooted = power_loss;
    const std::vector<std::string> found = Restart(&log);
    if (power_loss) {
      EXPECT_THAT(log->damage(), IsEmpty());
      EXPECT_EQ(found.back(), NameOf(kShardA, lsn));
      EXPECT_EQ(log->GetUsage().torn_bytes, 2 * kRecord);
    } else {
      ASSERT_EQ(log->damage().size(), 1u);
      EXPECT_THAT(log->damage()[0].message, HasSubstr(absl::StrCat("damaged at offset ", lost)));
    }
  }
}

// As in a copy of the folder that was made while the segment was renamed: nobody needs it.
TEST_F(SparesTest, SegmentsBelowTheOldestMarkedAreDeletedUnread) {
  auto log = Open();
  const Lsn lsn = Fill(log.get());
  const std::string left = SegmentPath(2);
  ASSERT_FALSE(files_.Exists(left));
  ASSERT_TRUE(files_.WriteAtomically(left, "bytes of any kind").ok());
  const std::vector<std::string> found = Restart(&log);
  EXPECT_THAT(log->damage(), IsEmpty());
  EXPECT_EQ(found.back(), NameOf(kShardA, lsn));
  EXPECT_FALSE(files_.Exists(left));
}

TEST_F(SparesTest, AStartDeletesSparesAndNothingElse) {
  ASSERT_TRUE(files_.MakeDir(kLogDir).ok());
  const std::string spare = absl::StrCat(SegmentPath(7), ".spare");
  const std::string foreign = absl::StrCat(kLogDir, "/a.spare");
  const std::string folder = absl::StrCat(SegmentPath(8), ".spare");
  ASSERT_TRUE(files_.WriteAtomically(spare, "x").ok());
  ASSERT_TRUE(files_.WriteAtomically(foreign, "x").ok());
  ASSERT_TRUE(files_.MakeDir(folder).ok());
  ASSERT_TRUE(files_.WriteAtomically(folder + "/file", "x").ok());
  auto log = Open();
  ASSERT_NE(log, nullptr);
  EXPECT_FALSE(files_.Exists(spare));
  EXPECT_TRUE(files_.Exists(foreign));
  EXPECT_TRUE(files_.Exists(folder));
}

TEST_F(SparesTest, ASpareThatIsNotInMemoryIsNotWrittenOver) {
  auto log = Open();
  Lsn lsn = 0;
  while (lsn < 40) ASSERT_TRUE(AppendCommit(log.get(), kShardA, ++lsn, 8, 8).ok());
  log->SetLeastNeeded(kShardA, lsn);
  const size_t spares = Spares();
  ASSERT_GT(spares, 3u);
  files_.SetInMemory(false);
  const uint64_t evicted = Begun("evicted");
  const std::string newest = Newest();
  while (Newest() == newest) Append(log.get(), ++lsn);
  EXPECT_FALSE(Reused());
  EXPECT_EQ(Begun("evicted"), evicted + 1);
  EXPECT_EQ(Spares(), spares) << "no append waits for a deletion";
  log->GiveBackSpares(/*disk_is_full=*/true);
  EXPECT_EQ(Spares(), 0u);
}

TEST_F(SparesTest, ASpareThatHasGoneIsCountedAsRefused) {
  auto log = Open();
  Lsn lsn = Fill(log.get());
  const std::vector<std::string> names = *files_.List(kLogDir);
  for (const std::string& name : names) {
    if (!absl::EndsWith(name, ".spare")) continue;
    ASSERT_TRUE(files_.Delete(absl::StrCat(kLogDir, "/", name)).ok());
  }
  const uint64_t refused = Begun("refused");
  const std::string newest = Newest();
  while (Newest() == newest) Append(log.get(), ++lsn);
  EXPECT_FALSE(Reused());
  EXPECT_EQ(Begun("refused"), refused + 1);
}

TEST_F(SparesTest, SparesAreGivenBackWhereTheDiskIsShortOrAnotherPartCannotWrite) {
  for (const int64_t interval : {-1, 0}) {
    options_.sync_interval_ms = interval;
    Reset();
    auto log = Open();
    Lsn lsn = Fill(log.get());
    log->GiveBackSpares(/*disk_is_full=*/false);
    EXPECT_EQ(Spares(), 1u);
    files_.SetFreeBytes(kSegmentBytes - 1);
    log->GiveBackSpares(/*disk_is_full=*/false);
    EXPECT_EQ(Spares(), 0u);
    files_.SetFreeBytes(UINT64_MAX);
    while (Spares() == 0) Append(log.get(), ++lsn);
    log->GiveBackSpares(/*disk_is_full=*/true);
    EXPECT_EQ(Spares(), 0u);
  }
}

TEST_F(SparesTest, ADiskThatIsShortOfSpaceGetsSparesBack) {
  auto log = Open();
  const Lsn lsn = Fill(log.get());
  ASSERT_EQ(Spares(), 1u);
  files_.SetFreeBytes(10);
  // Two records fit the file that is reused; then a new segment takes the spare, and then no more.
  Lsn next = lsn;
  while (AppendCommit(log.get(), kShardA, next + 1, 8, 8).ok()) ++next;
  EXPECT_EQ(next, lsn + 6);
  log->SetLeastNeeded(kShardA, next + 1);
  EXPECT_LE(Spares(), 1u) << "spares take less than what is free";
  EXPECT_FALSE(log->TryResume().ok());
  EXPECT_EQ(Spares(), 0u);
  EXPECT_EQ(Restart(&log).back(), NameOf(kShardA, next));
}

// A write of a record, or of a group of two, that a kill cut at any byte, over the records of an
// older segment, which lie at the same offsets.
TEST_F(SparesTest, AWriteCutAtAnyByteEndsTheLogBeforeIt) {
  for (const Lsn count : {Lsn{1}, Lsn{2}}) {
    SCOPED_TRACE(count);
    Reset();
    auto log = Open();
    const Lsn lsn = Fill(log.get());
    const std::string path = Newest();
    const std::string before = *files_.ReadAll(path);
    const std::string marks = *files_.ReadAll("/MARKS");
    AppendGroup(log.get(), lsn + 1, count);
    const std::string after = *files_.ReadAll(path);
    ASSERT_EQ(before.size(), after.size());
    const uint64_t begin = 64 + 2 * kRecord;
    const uint64_t end = log->GetUsage().bytes % kSegmentBytes;
    for (uint64_t cut = begin; cut <= end; cut += cut < begin + 140 ? 1 : 9) {
      SCOPED_TRACE(cut);
      ASSERT_TRUE(files_.WriteAtomically("/MARKS", marks).ok());
      ASSERT_TRUE(files_.WriteAtomically(path, after.substr(0, cut) + before.substr(cut)).ok());
      const std::vector<std::string> found = Restart(&log);
      ASSERT_THAT(log->damage(), IsEmpty());
      const bool whole = after.substr(0, cut) + before.substr(cut) == after;
      EXPECT_EQ(found.back(), NameOf(kShardA, whole ? lsn + count : lsn));
    }
  }
}

TEST_F(SparesTest, DamageInAGroupBeforeTheMarkIsDamage) {
  Reset();
  auto first = Open();
  const Lsn lsn = Fill(first.get());
  const uint64_t begin = 64 + 2 * kRecord;
  AppendGroup(first.get(), lsn + 1, 2);
  const uint64_t end = first->GetUsage().bytes % kSegmentBytes;
  first = nullptr;
  for (uint64_t byte = begin; byte < end; byte += 29) {
    SCOPED_TRACE(byte);
    Reset();
    auto log = Open();
    (void)Fill(log.get());
    AppendGroup(log.get(), lsn + 1, 2);
    files_.FlipBit(Newest(), byte, 3);
    (void)Restart(&log);
    ASSERT_FALSE(log->damage().empty());
    EXPECT_THAT(log->damage()[0].message, HasSubstr("damaged at offset"));
  }
}

TEST_F(SparesTest, DamageBeforeTheMarkIsDamage) {
  for (const uint64_t byte : std::vector<uint64_t>{84, 264, 84 + kRecord, 364 + kRecord}) {
    SCOPED_TRACE(byte);
    Reset();
    auto log = Open();
    Fill(log.get());
    files_.FlipBit(Newest(), byte, 3);
    (void)Restart(&log);
    ASSERT_FALSE(log->damage().empty());
    EXPECT_THAT(log->damage()[0].message, HasSubstr("damaged at offset"));
  }
}

// Records of now and then, kills in any operation, power losses and disks that fail.
TEST_F(SparesTest, AfterAnyEndTheLogHasWhatItMust) {
  const TestSeed seed(20261128);
  uint64_t reused = 0;
  for (uint64_t round = 0; round < 50; ++round) {
    SCOPED_TRACE(round);
    Random random(seed.value() + round);
    FaultFileSystem files(seed.value() + round);
    ShardLogOptions options = options_;
    options.sync_interval_ms = random.OneIn(3) ? 0 : -1;
    auto marks = *Marks::Open("/MARKS", &files, /*make=*/true);
    Lsn last = 0;      // acknowledged
    bool cut = false;  // the process died in the next append, which may be there as a whole
    Lsn synced = 0;    // of them
    Lsn needed = 1;
    for (int start = 0; start < 8; ++start) {
      options.marks = marks.get();
      options.run = random.Next();
      auto log = ShardLog::Open(options, &files, &clock_);
      // The disk garbled the version in a header: the log does not guess.
      if (absl::IsFailedPrecondition(log.status()) && options.rebooted) break;
      ASSERT_TRUE(log.ok()) << log.status();
      ASSERT_THAT((*log)->damage(), IsEmpty());
      const std::vector<std::string> found = Replayed(log->get());
      // No hole, none twice, and the end that it must have.
      const Lsn first = found.empty() ? 1 : LsnOf(found.front());
      for (size_t i = 0; i < found.size(); ++i) {
        ASSERT_EQ(found[i], NameOf(kShardA, first + i));
      }
      const Lsn end = first + found.size() - 1;
      ASSERT_LE(first, needed);
      ASSERT_LE(end, last + (cut ? 1 : 0));
      ASSERT_GE(end, options.rebooted ? synced : last);
      last = synced = end;
      cut = false;
      if (random.OneIn(2)) files.DieAfter(1 + static_cast<int>(random.Uniform(60)));
      for (uint64_t count = random.Uniform(24); count > 0 && !files.dead(); --count) {
        if (random.OneIn(30)) files.FailAppends(1);
        if (!AppendCommit(log->get(), kShardA, last + 1, 1 + random.Uniform(12), 8).ok()) {
          cut = files.dead();
          if (!cut) (void)(*log)->TryResume();
          continue;
        }
        ++last;
        if (random.OneIn(5) && (*log)->Sync().ok()) {
          synced = last;
          if (last > kNeeded) needed = last - kNeeded;
          (*log)->SetLeastNeeded(kShardA, needed);
        }
        EXPECT_TRUE(random.OneIn(2) || marks->Sync().ok() || files.dead());
        if (options.sync_interval_ms == 0) synced = last;
      }
      const std::vector<std::string> names = *files.List(kLogDir);
      for (const std::string& name : names) {
        const std::string bytes = *files.ReadAll(absl::StrCat(kLogDir, "/", name));
        if (const auto header = DecodeSegmentHeader(bytes); header.ok()) reused += header->reused;
      }
      options.rebooted = random.OneIn(2);
      if (options.rebooted) {
        files.Crash();
      } else {
        files.Kill();
      }
      log->reset();
      marks = *Marks::Open("/MARKS", &files, /*make=*/false);
    }
  }
  EXPECT_GT(reused, 100u);
}

}  // namespace log_spares_test
}  // namespace hotbed
