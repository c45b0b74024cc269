// Segments that are written over older ones: no record of an older segment is ever read as one of
// now, and none of now is missed.
#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
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
  // A log whose newest segment is a reused one with two records; its last LSN.
  Lsn Fill(ShardLog* log) {
    Lsn lsn = 0;
    while (lsn < 30) Append(log, ++lsn);
    EXPECT_EQ(log->GetUsage().bytes % kSegmentBytes, 64 + 2 * kRecord);
    EXPECT_TRUE(Reused());
    return lsn;
  }
  std::string Newest() {
    std::string newest;
    const std::vector<std::string> names = *files_.List(kLogDir);
    for (const std::string& name : names) {
      if (ParseSegmentName(name).has_value()) newest = absl::StrCat(kLogDir, "/", name);
    }
    return newest;
  }
  bool Reused() { return DecodeSegmentHeader(*files_.ReadAll(Newest()))->reused; }
  size_t Spares() {
    const std::vector<std::string> names = *files_.List(kLogDir);
    return std::count_if(names.begin(), names.end(),
                         [](const std::string& name) { return absl::EndsWith(name, ".spare"); });
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
  Lsn lsn = Fill(log.get());
  EXPECT_EQ(Spares(), 1u);
  EXPECT_EQ(log->GetUsage().bytes_spare, kSegmentBytes);
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

// A write that a kill cut at any byte, over the records of an older segment, which lie at the same
// offsets.
TEST_F(SparesTest, AWriteCutAtAnyByteEndsTheLogBeforeIt) {
  auto log = Open();
  const Lsn lsn = Fill(log.get());
  const std::string path = Newest();
  const std::string before = *files_.ReadAll(path);
  const std::string marks = *files_.ReadAll("/MARKS");
  Append(log.get(), lsn + 1);
  const std::string after = *files_.ReadAll(path);
  ASSERT_EQ(before.size(), after.size());
  const uint64_t begin = 64 + 2 * kRecord;
  for (uint64_t cut = begin; cut <= begin + kRecord; cut += cut < begin + 140 ? 1 : 9) {
    SCOPED_TRACE(cut);
    ASSERT_TRUE(files_.WriteAtomically("/MARKS", marks).ok());
    ASSERT_TRUE(files_.WriteAtomically(path, after.substr(0, cut) + before.substr(cut)).ok());
    const std::vector<std::string> found = Restart(&log);
    ASSERT_THAT(log->damage(), IsEmpty());
    const bool whole = after.substr(0, cut) + before.substr(cut) == after;
    EXPECT_EQ(found.back(), NameOf(kShardA, whole ? lsn + 1 : lsn));
  }
}

TEST_F(SparesTest, DamageBeforeTheMarkIsDamage) {
  for (const uint64_t byte : std::vector<uint64_t>{84, 264, 84 + kRecord, 364 + kRecord}) {
    SCOPED_TRACE(byte);
    ASSERT_TRUE(files_.MakeDir(kLogDir).ok());
    const std::vector<std::string> names = *files_.List(kLogDir);
    for (const std::string& name : names) {
      ASSERT_TRUE(files_.Delete(absl::StrCat(kLogDir, "/", name)).ok());
    }
    ASSERT_TRUE(files_.Delete("/MARKS").ok());
    marks_ = *Marks::Open("/MARKS", &files_, /*make=*/true);
    options_.marks = marks_.get();
    auto log = Open();
    Fill(log.get());
    files_.FlipBit(Newest(), byte, 3);
    (void)Restart(&log);
    ASSERT_FALSE(log->damage().empty());
    EXPECT_THAT(log->damage()[0].message, HasSubstr("damaged at offset"));
  }
}

// Records of now and then, kills, power losses and disks that fail.
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
    Lsn last = 0;    // acknowledged
    Lsn synced = 0;  // of them
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
      ASSERT_LE(end, last);
      ASSERT_GE(end, options.rebooted ? synced : last);
      last = synced = end;
      for (uint64_t count = random.Uniform(24); count > 0; --count) {
        if (random.OneIn(30)) files.FailAppends(1);
        if (!AppendCommit(log->get(), kShardA, last + 1, 1 + random.Uniform(12), 8).ok()) {
          (void)(*log)->TryResume();
          continue;
        }
        ++last;
        if (random.OneIn(5) && (*log)->Sync().ok()) {
          synced = last;
          if (last > kNeeded) needed = last - kNeeded;
          (*log)->SetLeastNeeded(kShardA, needed);
        }
        EXPECT_TRUE(random.OneIn(2) || marks->Sync().ok());
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
