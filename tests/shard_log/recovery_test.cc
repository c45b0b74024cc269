#include "server/shard_log/recovery.h"

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "gmock/gmock.h"
#include "tests/shard_log/log_fixture.h"

namespace hotbed {
namespace recovery_test {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// Three records of shard A, B, A in one segment; `starts_` are their offsets and the end.
class RecoveryTest : public LogTest {
 protected:
  RecoveryTest() {
    auto log = Open();
    starts_ = {kSegmentHeaderBytes};
    const std::pair<ShardId, Lsn> records[] = {{kShardA, 1}, {kShardB, 1}, {kShardA, 2}};
    for (const auto& [shard, lsn] : records) {
      EXPECT_TRUE(AppendCommit(log.get(), shard, lsn).ok());
      starts_.push_back(log->GetUsage().bytes);
    }
    whole_ = Contents(1);
    EXPECT_EQ(whole_.size(), starts_.back());
  }

  std::string whole_;
  std::vector<uint64_t> starts_;
};

TEST_F(RecoveryTest, ATornTailIsCutAtEveryByte) {
  for (uint64_t end = starts_[2]; end < starts_[3]; ++end) {
    SetContents(1, whole_.substr(0, end));
    auto log = Open();
    EXPECT_TRUE(log->damage().empty());
    EXPECT_THAT(Replayed(log.get()), ElementsAre(NameOf(kShardA, 1), NameOf(kShardB, 1)));
    const ShardLog::Usage usage = log->GetUsage();
    EXPECT_EQ(usage.torn_bytes, end - starts_[2]);
    EXPECT_EQ(usage.torn_message.empty(), end == starts_[2]);
    EXPECT_EQ(Contents(1).size(), starts_[2]);
    // The log continues where it was cut.
    EXPECT_TRUE(AppendCommit(log.get(), kShardA, 2).ok());
    log = nullptr;
    EXPECT_EQ(Contents(1).substr(kSegmentHeaderBytes), whole_.substr(kSegmentHeaderBytes));
  }
}

// Truncation leaves no record of its own: a later one of a higher epoch stands in the place of what
// was there from its LSN on.
TEST_F(RecoveryTest, ARecordOfAHigherEpochReplacesTheTail) {
  {
    auto log = Open();
    ASSERT_TRUE(AppendCommit(log.get(), kShardA, 3).ok());
    auto in_place_of_2 = MakeRecord(kShardA, 2, 0, 0);
    in_place_of_2->header.epoch = 4;
    ASSERT_TRUE(AppendCommit(log.get(), in_place_of_2.get()).ok());
    ASSERT_TRUE(AppendCommit(log.get(), kShardB, 2).ok());
    // The same again, as a resend may bring it: nothing is replaced.
    auto again = MakeRecord(kShardA, 2, 0, 0);
    again->header.epoch = 4;
    ASSERT_TRUE(AppendCommit(log.get(), again.get()).ok());
  }
  auto log = Open();
  std::vector<std::string> epochs;
  std::vector<LogPosition> places;
  ASSERT_TRUE(log->Replay([&](const RecordView& record) {
                   const RecordHeader& h = record.header;
                   epochs.push_back(absl::StrCat(h.shard.table, "@", h.lsn, " e", h.epoch));
                   places.push_back(record.at);
                   return absl::OkStatus();
                 })
                  .ok());
  EXPECT_THAT(epochs, ElementsAre("1@1 e3", "2@1 e3", "1@2 e4", "2@2 e3", "1@2 e4"));
  EXPECT_TRUE(std::is_sorted(places.begin(), places.end()));
}

TEST_F(RecoveryTest, EndIsWhereTheNextRecordStands) {
  auto log = Open();
  const LogPosition end = log->End().value();
  EXPECT_EQ(end, (LogPosition{1, starts_[3]}));
  ASSERT_TRUE(AppendCommit(log.get(), kShardB, 2).ok());
  EXPECT_LT(end, log->End().value());
  log = Open();
  LogPosition last;
  ASSERT_TRUE(log->Replay([&](const RecordView& record) {
                   last = record.at;
                   return absl::OkStatus();
                 })
                  .ok());
  EXPECT_EQ(last, end);
}

// A record that another server encoded is written unchanged, except for the synced bytes in its
// header.
TEST_F(RecoveryTest, AWholeRecordIsWrittenAsItCame) {
  auto log = Open();
  auto made = MakeRecord(kShardB, 2, 5, 3);
  std::string bytes(RecordBytes(made->header), 'x');
  EncodeRecord(made->header, made->ids.data(), made->rows.data(), bytes.data());
  TestRecord whole;
  whole.header = made->header;
  whole.append.encoded = {reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()};
  ASSERT_TRUE(AppendCommit(log.get(), &whole).ok());
  const std::string file = Contents(1);
  EXPECT_EQ(file.substr(starts_[3] + kRecordHeaderBytes), bytes.substr(kRecordHeaderBytes));
  ASSERT_TRUE(AppendCommit(log.get(), kShardB, 3).ok());
  log = Open();
  EXPECT_TRUE(log->damage().empty());
  EXPECT_EQ(Replayed(log.get()).size(), 5u);
}

// Raft's figure 8: an uncommitted entry gives way to one of an epoch before, and that to a new one.
TEST_F(RecoveryTest, TheLaterRecordCountsAlsoIfItsEpochIsLower) {
  static constexpr ShardId kShard{9, 0};
  const std::vector<std::pair<Lsn, Epoch>> written = {{7, 1}, {8, 1}, {8, 2}, {9, 2},  {8, 1},
                                                      {9, 1}, {9, 3}, {8, 1}, {10, 3}, {6, 4}};
  const auto survivors = [this] {
    std::vector<std::string> seen;
    auto log = Open();
    EXPECT_TRUE(log->Replay([&](const RecordView& record) {
                     if (!(record.header.shard == kShard)) return absl::OkStatus();
                     seen.push_back(absl::StrCat(record.header.lsn, " e", record.header.epoch));
                     return absl::OkStatus();
                   })
                    .ok());
    return seen;
  };
  std::map<Lsn, Epoch> twin;  // writing an LSN removes all later ones
  for (const auto& [lsn, epoch] : written) {
    auto log = Open();
    auto record = MakeRecord(kShard, lsn, 0, 0);
    record->header.epoch = epoch;
    ASSERT_TRUE(AppendCommit(log.get(), record.get()).ok());
    log.reset();
    const auto there = twin.find(lsn);
    if (there == twin.end() || there->second != epoch) {
      twin.erase(twin.lower_bound(lsn), twin.end());
      twin[lsn] = epoch;
    }
    std::vector<std::string> expected;
    for (const auto& [at, of] : twin) expected.push_back(absl::StrCat(at, " e", of));
    std::vector<std::string> seen = survivors();
    // A record that stands there twice is visited twice: its reader skips it.
    std::vector<std::string> distinct;
    for (std::string& text : seen) {
      if (std::find(distinct.begin(), distinct.end(), text) == distinct.end()) {
        distinct.push_back(std::move(text));
      }
    }
    EXPECT_EQ(distinct, expected) << "after " << lsn << " e" << epoch;
  }
}

TEST_F(RecoveryTest, ASegmentThatWasNeverBornIsReplaced) {
  for (uint64_t end = 0; end < kSegmentHeaderBytes; ++end) {
    SetContents(2, whole_.substr(0, end));
    auto log = Open();
    EXPECT_TRUE(log->damage().empty());
    EXPECT_EQ(Replayed(log.get()).size(), 3);
    EXPECT_FALSE(files_.Exists(SegmentPath(2)));
  }
}

TEST_F(RecoveryTest, AFlippedByteInsideIsDamageAndNeverDroppedInSilence) {
  for (uint64_t at = starts_[1]; at < starts_[2]; ++at) {
    SetContents(1, whole_);
    files_.FlipBit(SegmentPath(1), at, at % 8);
    auto log = Open();
    ASSERT_EQ(log->damage().size(), 1) << "byte " << at;
    const ShardLog::Damage& damage = log->damage()[0];
    EXPECT_THAT(damage.message, HasSubstr(SegmentName(1)));
    EXPECT_THAT(damage.message, HasSubstr(absl::StrCat("offset ", starts_[1])));
    const bool in_payload = at >= starts_[1] + kRecordHeaderBytes;
    EXPECT_EQ(damage.all_shards, !in_payload) << "byte " << at;
    if (in_payload) {
      EXPECT_THAT(damage.shards, ElementsAre(kShardB));
      EXPECT_THAT(damage.message, HasSubstr(kShardB.ToString()));
    }
    EXPECT_EQ(log->GetUsage().torn_bytes, 0);
    EXPECT_THAT(Replayed(log.get()), ElementsAre(NameOf(kShardA, 1), NameOf(kShardA, 2)));
    // The damaged file is kept as it is, and takes no more appends.
    EXPECT_TRUE(AppendCommit(log.get(), kShardA, 3).ok());
    EXPECT_EQ(Contents(1).size(), whole_.size());
    log = nullptr;
    ASSERT_TRUE(files_.Delete(SegmentPath(2)).ok());
  }
}

TEST_F(RecoveryTest, AFlippedByteInTheLastRecordIsDamageWhereNoPowerWasLost) {
  for (uint64_t at = starts_[2]; at < starts_[3]; ++at) {
    SetContents(1, whole_);
    files_.FlipBit(SegmentPath(1), at, at % 8);
    auto log = Open();
    // Also where the length now runs beyond the file, as that of a record that was cut does.
    EXPECT_EQ(log->damage().size(), 1) << "byte " << at;
    EXPECT_EQ(log->GetUsage().torn_bytes, 0) << "byte " << at;
    log = nullptr;
    if (files_.Exists(SegmentPath(2))) {
      ASSERT_TRUE(files_.Delete(SegmentPath(2)).ok());
    }
  }
}

TEST_F(RecoveryTest, EveryFlippedBitOfTheLastLengthIsDamage) {
  for (uint64_t bit = 0; bit < 32; ++bit) {
    SetContents(1, whole_);
    files_.FlipBit(SegmentPath(1), starts_[2] + bit / 8, bit % 8);
    auto log = Open();
    EXPECT_EQ(log->damage().size(), 1) << "bit " << bit;
    EXPECT_EQ(log->GetUsage().torn_bytes, 0) << "bit " << bit;
    log = nullptr;
    ASSERT_TRUE(files_.Delete(SegmentPath(2)).ok());
  }
}

TEST_F(RecoveryTest, AfterAPowerLossAGarbledEndIsTorn) {
  options_.rebooted = true;
  for (uint64_t at = starts_[1]; at < starts_[2]; ++at) {
    SetContents(1, whole_);
    files_.FlipBit(SegmentPath(1), at, 3);
    auto log = Open();
    EXPECT_TRUE(log->damage().empty());
    EXPECT_EQ(log->GetUsage().torn_bytes, starts_[3] - starts_[1]);
    EXPECT_THAT(Replayed(log.get()), ElementsAre(NameOf(kShardA, 1)));
  }
}

TEST_F(RecoveryTest, AfterAPowerLossWhatWasSyncedMustStillBeWhole) {
  SetContents(1, whole_);
  {
    auto log = Open();
    ASSERT_TRUE(log->Sync().ok());
    ASSERT_TRUE(AppendCommit(log.get(), kShardB, 2).ok());
    ASSERT_TRUE(log->Sync().ok());
    ASSERT_TRUE(AppendCommit(log.get(), kShardB, 3).ok());  // says that all before it was synced
  }
  options_.rebooted = true;
  files_.FlipBit(SegmentPath(1), starts_[1] + kRecordHeaderBytes, 0);
  auto log = Open();
  ASSERT_EQ(log->damage().size(), 1);
  EXPECT_THAT(log->damage()[0].shards, ElementsAre(kShardB));
  EXPECT_EQ(log->GetUsage().torn_bytes, 0);
}

TEST_F(RecoveryTest, AfterAPowerLossSegmentsBehindTheCutAreDropped) {
  options_.segment_bytes = starts_[1] + 8;
  {
    auto log = Open();
    for (Lsn lsn = 3; lsn <= 6; ++lsn) ASSERT_TRUE(AppendCommit(log.get(), kShardA, lsn).ok());
  }
  ASSERT_TRUE(files_.Exists(SegmentPath(5)));
  options_.rebooted = true;
  files_.FlipBit(SegmentPath(3), kSegmentHeaderBytes + kRecordHeaderBytes, 0);
  auto log = Open();
  EXPECT_TRUE(log->damage().empty());
  EXPECT_THAT(Replayed(log.get()), ElementsAre(NameOf(kShardA, 1), NameOf(kShardB, 1),
                                               NameOf(kShardA, 2), NameOf(kShardA, 3)));
  ASSERT_TRUE(AppendCommit(log.get(), kShardA, 4).ok());
  ASSERT_TRUE(AppendCommit(log.get(), kShardA, 5).ok());
  log = nullptr;
  options_.rebooted = false;
  log = Open();
  EXPECT_TRUE(log->damage().empty()) << "the numbers of the dropped segments are used again";
  EXPECT_EQ(Replayed(log.get()).size(), 6);
}

TEST_F(RecoveryTest, OlderSegmentsMustBeWhole) {
  SetContents(2, EncodeSegmentHeader({.sequence = 2, .unsynced_from = 2}));
  for (uint64_t end : {starts_[3] - 1, starts_[2] + 1, uint64_t{10}}) {
    SetContents(1, whole_.substr(0, end));
    auto log = Open();
    ASSERT_EQ(log->damage().size(), 1);
    EXPECT_TRUE(log->damage()[0].all_shards);
    EXPECT_THAT(log->damage()[0].message, HasSubstr(SegmentName(1)));
    EXPECT_EQ(Contents(1).size(), end) << "never repaired";
  }
}

TEST_F(RecoveryTest, AMissingSegmentIsDamage) {
  SetContents(4, EncodeSegmentHeader({.sequence = 4, .unsynced_from = 4}));
  auto log = Open();
  ASSERT_EQ(log->damage().size(), 1);
  EXPECT_TRUE(log->damage()[0].all_shards);
  EXPECT_THAT(log->damage()[0].message, HasSubstr(SegmentName(2)));
  EXPECT_THAT(log->damage()[0].message, HasSubstr(SegmentName(3)));
}

TEST_F(RecoveryTest, AnotherFormatVersionIsRefusedWithBothNumbers) {
  std::string newer = whole_;
  newer[8] = 9;
  SetContents(1, newer);
  const auto log = ShardLog::Open(options_, &files_, &clock_);
  EXPECT_EQ(log.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(log.status().message()), HasSubstr("version 9"));
  EXPECT_THAT(std::string(log.status().message()), HasSubstr("versions 4 to 6"));
  EXPECT_THAT(std::string(log.status().message()), HasSubstr("it is damaged"));
  EXPECT_EQ(Contents(1), newer);
}

TEST_F(RecoveryTest, ADamagedSegmentHeaderIsDamage) {
  for (const uint64_t at : {0, 13, 17, 30, 50, 60}) {
    SetContents(1, whole_);
    files_.FlipBit(SegmentPath(1), at, 1);
    auto log = Open();
    ASSERT_EQ(log->damage().size(), 1);
    EXPECT_TRUE(log->damage()[0].all_shards);
    EXPECT_THAT(Replayed(log.get()), IsEmpty());
    log = nullptr;
    ASSERT_TRUE(files_.Delete(SegmentPath(2)).ok());
  }
}

TEST_F(RecoveryTest, OtherFilesInTheDirectoryAreLeftAlone) {
  ASSERT_TRUE(files_.WriteAtomically(absl::StrCat(kLogDir, "/notes.txt"), "x").ok());
  ASSERT_TRUE(files_.WriteAtomically(absl::StrCat(kLogDir, "/1.log"), "x").ok());
  EXPECT_EQ(Replayed(Open().get()).size(), 3);
}

}  // namespace recovery_test
}  // namespace hotbed
