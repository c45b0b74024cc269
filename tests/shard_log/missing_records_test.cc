// Segments and whole records that are not there any more: a log that knows how far it reached never
// takes a shorter one for its own.
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "common/random.h"
#include "gmock/gmock.h"
#include "tests/shard_log/log_fixture.h"

namespace hotbed {
namespace missing_records_test {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

// Four segments of two records each, and two records in the fifth.
class MissingRecordsTest : public LogTest {
 protected:
  MissingRecordsTest() : marks_(*Marks::Open("/MARKS", &files_, /*make=*/true)) {
    options_.marks = marks_.get();
    options_.segment_bytes = 64 + 2 * kRecord;
    auto log = Open();
    for (Lsn lsn = 1; lsn <= kRecords; ++lsn) Append(log.get(), lsn);
    log = nullptr;
    for (uint64_t segment = 1; segment <= kSegments; ++segment) {
      whole_[segment] = Contents(segment);
    }
    EXPECT_EQ(whole_[kSegments].size(), 64 + 2 * kRecord);
  }

  // The next start.
  std::unique_ptr<ShardLog> Open() {
    options_.run += 1;
    return LogTest::Open();
  }
  void Append(ShardLog* log, Lsn lsn) { ASSERT_TRUE(AppendCommit(log, kShardA, lsn, 8, 8).ok()); }
  // The log opens, and says what is wrong with a text that has `what` and the segment's file name.
  void ExpectDamage(uint64_t segment, const std::string& what) {
    auto log = Open();
    ASSERT_NE(log, nullptr);
    ASSERT_FALSE(log->damage().empty()) << what;
    EXPECT_TRUE(log->damage()[0].all_shards);
    EXPECT_THAT(log->damage()[0].message, HasSubstr(what));
    EXPECT_THAT(log->damage()[0].message, HasSubstr(SegmentName(segment)));
    // New records do not hide it.
    Append(log.get(), kRecords + 1);
  }
  void ExpectWhole() {
    auto log = Open();
    ASSERT_NE(log, nullptr);
    EXPECT_THAT(log->damage(), IsEmpty());
    EXPECT_GE(Replayed(log.get()).size(), size_t{kRecords});
  }

  static constexpr uint64_t kRecord = 128 + 8 * 8 + 8 * 8 * 4;
  static constexpr Lsn kRecords = 10;
  static constexpr uint64_t kSegments = 5;
  std::unique_ptr<Marks> marks_;
  std::map<uint64_t, std::string> whole_;
};

// The marks may name the place where a group begins or ends, and never one inside of it.
TEST_F(MissingRecordsTest, GroupsAreWholeAtTheMarks) {
  options_.rebooted = true;
  options_.segment_bytes = 16 << 20;
  Lsn lsn = kRecords;
  for (int start = 0; start < 4; ++start) {
    SCOPED_TRACE(start);
    auto log = Open();
    ASSERT_THAT(log->damage(), IsEmpty());
    ASSERT_EQ(Replayed(log.get()).size(), size_t{lsn});
    if (start == 2) EXPECT_TRUE(log->Sync().ok());
    const auto first = MakeRecord(kShardA, ++lsn, 8, 8);
    const auto second = MakeRecord(kShardB, ++lsn, 8, 8);
    hotbed::Append(log.get(), first.get());
    hotbed::Append(log.get(), second.get());
    log->Commit();
    EXPECT_TRUE(second->result.ok());
    if (start == 1) EXPECT_TRUE(log->Sync().ok());
  }
  // The last group is gone whole, and was synced.
  auto log = Open();
  ASSERT_TRUE(log->Sync().ok());
  log = nullptr;
  const std::string whole = Contents(kSegments);
  SetContents(kSegments, whole_[kSegments]);
  log = Open();
  ASSERT_FALSE(log->damage().empty());
  EXPECT_THAT(log->damage()[0].message, HasSubstr("are missing at its end"));
}

TEST_F(MissingRecordsTest, EachMissingSegmentIsDamageUntilItIsBack) {
  for (uint64_t segment = 1; segment <= kSegments; ++segment) {
    SCOPED_TRACE(segment);
    ASSERT_TRUE(files_.Delete(SegmentPath(segment)).ok());
    for (int start = 0; start < 2; ++start) ExpectDamage(segment, "missing");
    SetContents(segment, whole_[segment]);
    ExpectWhole();
  }
}

TEST_F(MissingRecordsTest, EachSegmentCutAtARecordIsDamageUntilItIsBack) {
  for (uint64_t segment = 1; segment <= kSegments; ++segment) {
    for (const uint64_t bytes : {uint64_t{0}, uint64_t{64}, 64 + kRecord, 64 + kRecord + 8}) {
      SCOPED_TRACE(absl::StrCat(segment, " cut to ", bytes));
      SetContents(segment, whole_[segment].substr(0, bytes));
      for (int start = 0; start < 2; ++start) ExpectDamage(segment, "");
      SetContents(segment, whole_[segment]);
      ExpectWhole();
    }
  }
}

TEST_F(MissingRecordsTest, TheMessageTellsHowMuchIsMissing) {
  SetContents(kSegments, whole_[kSegments].substr(0, 64 + kRecord));
  ExpectDamage(kSegments, absl::StrCat("whole records, ", kRecord, " bytes"));
}

TEST_F(MissingRecordsTest, ASegmentOfAnotherLogIsDamage) {
  // Another log of the same records, but for the sessions that pushed them.
  const std::string own = whole_[kSegments];
  std::string other;
  {
    FaultFileSystem elsewhere(2);
    ShardLogOptions options = options_;
    options.marks = nullptr;
    auto log = *ShardLog::Open(options, &elsewhere, &clock_);
    for (Lsn lsn = 1; lsn <= kRecords; ++lsn) {
      const auto record = MakeRecord(kShardA, lsn, 8, 8);
      record->header.session += 1;
      ASSERT_TRUE(AppendCommit(log.get(), record.get()).ok());
    }
    for (const uint64_t segment : {kSegments, uint64_t{2}}) {
      SetContents(segment, *elsewhere.ReadAll(SegmentPath(segment)));
      ExpectDamage(segment, "is another one");
      SetContents(segment, whole_[segment]);
      ExpectWhole();
    }
  }
}

// The copy has everything that was written here, so no end is missing.
TEST_F(MissingRecordsTest, TheLogOfACopyThatWentOnIsRefusedUntilTheOwnOneIsBack) {
  options_.segment_bytes += kRecord;  // starts go on in the newest segment
  for (const bool in_newest : {false, true}) {
    for (const bool rebooted : {false, true}) {
      SCOPED_TRACE(absl::StrCat(in_newest, rebooted ? ", rebooted" : ""));
      FaultFileSystem elsewhere(2);
      ASSERT_TRUE(elsewhere.MakeDir(kLogDir).ok());
      for (const auto& [segment, bytes] : whole_) {
        ASSERT_TRUE(elsewhere.WriteAtomically(SegmentPath(segment), bytes).ok());
      }
      ShardLogOptions options = options_;
      options.marks = nullptr;
      options.run = 1000;
      if (!in_newest) options.segment_bytes -= kRecord;
      {
        auto log = *ShardLog::Open(options, &elsewhere, &clock_);
        for (Lsn lsn = 1; lsn <= 4; ++lsn) Append(log.get(), kRecords + lsn);
      }
      const std::vector<std::string> copied = *elsewhere.List(kLogDir);
      for (const std::string& name : copied) {
        const std::string path = absl::StrCat(kLogDir, "/", name);
        ASSERT_TRUE(files_.WriteAtomically(path, *elsewhere.ReadAll(path)).ok());
      }
      options_.rebooted = rebooted;
      for (int start = 0; start < 2; ++start) {
        const absl::Status refused = ShardLog::Open(options_, &files_, &clock_).status();
        EXPECT_EQ(refused.code(), absl::StatusCode::kDataLoss) << refused;
        EXPECT_THAT(std::string(refused.message()),
                    HasSubstr(SegmentPath(kSegments + (in_newest ? 0 : 1))));
        EXPECT_THAT(std::string(refused.message()), HasSubstr("copy of this directory"));
      }
      for (const std::string& name : copied) {
        if (*ParseSegmentName(name) > kSegments) {
          ASSERT_TRUE(files_.Delete(absl::StrCat(kLogDir, "/", name)).ok());
        }
      }
      SetContents(kSegments, whole_[kSegments]);
      options_.rebooted = false;
      ExpectWhole();
    }
  }
}

TEST_F(MissingRecordsTest, NoStartTakesItsOwnLogForThatOfACopy) {
  for (uint64_t seed = 1; seed <= 100; ++seed) {
    SCOPED_TRACE(seed);
    Random random(seed);
    FaultFileSystem files(seed);
    ShardLogOptions options = options_;
    options.sync_interval_ms = random.OneIn(4) ? 0 : -1;
    if (options.sync_interval_ms != 0) options.segment_bytes = 1 << 20;
    Lsn last = 0;
    auto marks = *Marks::Open("/MARKS", &files, /*make=*/true);
    for (uint64_t start = 1; start <= 12; ++start) {
      options.marks = marks.get();
      options.run = random.Next();
      auto log = ShardLog::Open(options, &files, &clock_);
      ASSERT_TRUE(log.ok()) << "start " << start << ": " << log.status();
      EXPECT_THAT((*log)->damage(), IsEmpty()) << "start " << start;
      last = Replayed(log->get()).size();
      for (uint64_t count = random.Uniform(5); count > 0; --count) {
        Append(log->get(), ++last);
        EXPECT_TRUE(random.OneIn(2) || (*log)->Sync().ok());
        EXPECT_TRUE(random.OneIn(2) || marks->Sync().ok());
      }
      options.rebooted = random.OneIn(2);
      if (!options.rebooted) continue;
      log->reset();
      files.Crash();
      marks = *Marks::Open("/MARKS", &files, /*make=*/false);
    }
  }
}

TEST_F(MissingRecordsTest, WithoutItsFolderOrAnySegmentItDoesNotOpen) {
  for (uint64_t segment = 1; segment <= kSegments; ++segment) {
    ASSERT_TRUE(files_.Delete(SegmentPath(segment)).ok());
  }
  for (const std::string& dir : {std::string(kLogDir), std::string("/elsewhere")}) {
    options_.dir = dir;
    const absl::Status refused = ShardLog::Open(options_, &files_, &clock_).status();
    EXPECT_EQ(refused.code(), absl::StatusCode::kDataLoss) << refused;
    EXPECT_THAT(std::string(refused.message()), HasSubstr(dir));
  }
}

TEST_F(MissingRecordsTest, DeletedSegmentsAreNotMissed) {
  {
    auto log = Open();
    log->SetLeastNeeded(kShardA, kRecords + 1);
    EXPECT_EQ(log->GetUsage().segments, 1u);
  }
  auto log = Open();
  EXPECT_THAT(log->damage(), IsEmpty());
  files_.Crash();
  options_.rebooted = true;
  marks_ = *Marks::Open("/MARKS", &files_, /*make=*/false);
  options_.marks = marks_.get();
  log = Open();
  EXPECT_THAT(log->damage(), IsEmpty()) << "nor after a power loss";
}

// Without a sync per append, a power loss takes what was not synced, and it is said how much.
TEST_F(MissingRecordsTest, WhatAPowerLossMayTakeIsReportedAndNoDamage) {
  uint64_t lost = 0;
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    FaultFileSystem files(seed);
    auto marks = *Marks::Open("/MARKS", &files, /*make=*/true);
    ShardLogOptions options = options_;
    options.marks = marks.get();
    {
      auto log = *ShardLog::Open(options, &files, &clock_);
      for (Lsn lsn = 1; lsn <= kRecords; ++lsn) {
        Append(log.get(), lsn);
        if (lsn == 5) {
          ASSERT_TRUE(log->Sync().ok());
        }
      }
      ASSERT_TRUE(marks->Sync().ok());
      files.Crash();
    }
    marks = *Marks::Open("/MARKS", &files, /*make=*/false);
    options.marks = marks.get();
    options.rebooted = true;
    auto log = *ShardLog::Open(options, &files, &clock_);
    EXPECT_THAT(log->damage(), IsEmpty()) << "seed " << seed;
    const size_t left = Replayed(log.get()).size();
    EXPECT_GE(left, 5u) << "seed " << seed;
    if (left == kRecords) continue;
    ++lost;
    EXPECT_NE(log->GetUsage().torn_message, "") << "seed " << seed;
  }
  EXPECT_GT(lost, 10u);
}

TEST_F(MissingRecordsTest, WithASyncPerAppendAPowerLossExplainsNothing) {
  options_.sync_interval_ms = 0;
  { ExpectWhole(); }
  {
    auto log = Open();
    Append(log.get(), kRecords + 1);
  }
  ASSERT_TRUE(marks_->Sync().ok());
  options_.rebooted = true;
  const std::string newest = Contents(kSegments + 1);
  SetContents(kSegments + 1, newest.substr(0, 64));
  ExpectDamage(kSegments + 1, "missing");
  SetContents(kSegments + 1, newest);
  ExpectWhole();
}

}  // namespace missing_records_test
}  // namespace hotbed
