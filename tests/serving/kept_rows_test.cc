// The disk of a copy beside changes that are noted and written later: whenever the process is
// killed, each row on disk is as of a place between the two that its positions name.
#include "serving/kept_rows.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <map>
#include <optional>

#include "absl/strings/str_cat.h"
#include "common/clock.h"
#include "common/random.h"
#include "serving/rows/row_coder.h"
#include "tests/common/test_seed.h"

namespace hotbed {
namespace kept_rows_test {

#ifdef HOTBED_PLANTED_LATE_POSITIONS
constexpr bool kIsPlanted = true;
#else
constexpr bool kIsPlanted = false;
#endif

constexpr uint64_t kIds = 64;
constexpr int64_t kDueNs = 11 * kSecondNs;

// A table of which each change has the next LSN of one log; 0 is a deleted row.
class Story {
 public:
  explicit Story(uint64_t seed) : random_(seed) { Cut(kIds); }
  void Open() {
    auto kept = KeptRows::Open(directory_, {}, sizeof(uint64_t), "c", {});
    ASSERT_TRUE(kept.ok()) << kept.status();
    kept_ = *std::move(kept);
    memory_ = std::make_shared<ServedRows>(RowCoder(RowFormatKind::kFp32, 2), &budget_);
    positions_ = kept_->Positions();
    ASSERT_TRUE(kept_->BeginStream().ok());
    if (positions_.empty()) {  // there is no row yet
      Cut(kIds);
      ASSERT_TRUE(kept_->EndAgain(positions_).ok());
    }
    ExpectWithinPositions();
    for (const auto& [id, value] : OnDisk()) PutInMemory(id, value);
  }
  void Kill() { kept_ = nullptr; }
  ~Story() {
    Kill();
    std::filesystem::remove_all(directory_);
  }

  // Rows of one range change, and memory takes them.
  void Change() {
    const size_t at = random_.Uniform(positions_.size());
    for (int i = 0; i < 5; ++i) {
      log_.push_back({random_.Uniform(kIds), random_.OneIn(4) ? 0 : log_.size() + 1});
    }
    ChangePositions after = positions_;
    const uint64_t from = std::exchange(after[at].lsn, log_.size());
    after[at].seen_lsn = log_.size();
    std::vector<uint64_t> changed, deleted;
    for (uint64_t id = after[at].range.first; id < after[at].range.limit; ++id) {
      if (LastChange(id, log_.size()) <= from) continue;
      (ValueAt(id, log_.size()) != 0 ? changed : deleted).push_back(id);
    }
    ASSERT_TRUE(kept_->Notes());
    kept_->Note(changed, deleted, after, memory_);
    for (const uint64_t id : changed) PutInMemory(id, ValueAt(id, log_.size()));
    for (const uint64_t id : deleted) memory_->Delete(id);
    kept_->Took(after);
    positions_ = after;
    memory_->Reclaim();
  }
  // A range of the table is cut in two.
  void CutOne() {
    const size_t at = random_.Uniform(positions_.size());
    RangePosition& whole = positions_[at];
    if (whole.range.limit - whole.range.first < 8) return;
    RangePosition part = whole;
    part.range.first = whole.range.limit = (whole.range.first + whole.range.limit) / 2;
    positions_.push_back(part);
  }
  void BeginToWrite() { ASSERT_TRUE(kept_->WriteIfDue(now_ns_ += kDueNs).ok()); }
  void WriteAll() {
    ASSERT_TRUE(kept_->WriteNoted().ok());
    ExpectWithinPositions();
    EXPECT_EQ(kept_->rows()->rows(), OnDisk().size());
  }

  KeptRows& kept() { return *kept_; }
  Random& random() { return random_; }
  uint64_t lsn() const { return log_.size(); }
  const std::string& violation() const { return violation_; }

 private:
  struct Entry {
    uint64_t id;
    uint64_t value;
  };
  void Cut(uint64_t ids) {
    positions_.assign(1, {.table = 1, .range = {0, ids, 0, 2}, .epoch = 1, .seen_epoch = 1});
  }
  uint64_t LastChange(uint64_t id, uint64_t lsn) const {
    while (lsn > 0 && log_[lsn - 1].id != id) --lsn;
    return lsn;
  }
  uint64_t ValueAt(uint64_t id, uint64_t lsn) const {
    const uint64_t last = LastChange(id, lsn);
    return last == 0 ? 0 : log_[last - 1].value;
  }
  void PutInMemory(uint64_t id, uint64_t value) {
    ASSERT_TRUE(memory_->PutRow(id, reinterpret_cast<const uint8_t*>(&value)).ok());
  }
  std::map<uint64_t, uint64_t> OnDisk() const {
    std::map<uint64_t, uint64_t> rows;
    EXPECT_TRUE(kept_->rows()
                    ->Scan([&](uint64_t id, const uint8_t* row) {
                      std::memcpy(&rows[id], row, sizeof(uint64_t));
                      return true;
                    })
                    .ok());
    return rows;
  }
  void ExpectWithinPositions() {
    const std::map<uint64_t, uint64_t> rows = OnDisk();
    for (const RangePosition& range : positions_) {
      for (uint64_t id = range.range.first; id < range.range.limit; ++id) {
        const auto found = rows.find(id);
        const uint64_t value = found == rows.end() ? 0 : found->second;
        bool was = false;
        for (uint64_t lsn = range.lsn; lsn <= range.seen_lsn; ++lsn)
          was |= ValueAt(id, lsn) == value;
        if (was) continue;
        violation_ =
            absl::StrCat("row ", id, " has value ", value, ", which it has at no entry of ",
                         range.lsn, " to ", range.seen_lsn);
      }
    }
  }

  const std::string directory_ = absl::StrCat(::testing::TempDir(), "/kept_rows_", getpid());
  Random random_;
  ServedMemory budget_{64 << 20};
  std::vector<Entry> log_;  // the first one has LSN 1
  ChangePositions positions_;
  std::shared_ptr<ServedRows> memory_;
  std::unique_ptr<KeptRows> kept_;
  int64_t now_ns_ = 0;
  std::string violation_;
};

TEST(KeptRowsTest, RowsOnDiskAreWithinTheirPositionsWheneverTheProcessIsKilled) {
  const TestSeed seed(1);
  Story story(seed.value());
  story.Open();
  for (int step = 0; step < 600 && story.violation().empty() && !HasFatalFailure(); ++step) {
    switch (story.random().Uniform(16)) {
      case 0:
        story.Kill();
        story.Open();
        break;
      case 1:
        story.WriteAll();
        break;
      case 2:
        story.CutOne();
        break;
      case 3:
      case 4:
        story.BeginToWrite();
        story.Change();
        break;
      default:
        story.Change();
    }
  }
  EXPECT_EQ(!story.violation().empty(), kIsPlanted) << story.violation();
}

TEST(KeptRowsTest, ChangesThatWereNotedAndNotWrittenAreToldAgainAfterAKill) {
  Story story(1);
  story.Open();
  for (int i = 0; i < 10; ++i) story.Change();
  EXPECT_EQ(story.kept().Positions()[0].lsn, story.lsn()) << "memory has them";
  EXPECT_EQ(story.kept().rows()->rows(), 0u);
  story.Kill();
  story.Open();
  EXPECT_EQ(story.kept().Positions()[0].lsn, 0u);
  story.Change();  // all since then
  story.WriteAll();
  EXPECT_EQ(story.violation(), "");
  story.Kill();
  story.Open();
  EXPECT_EQ(story.kept().Positions()[0].lsn, story.lsn());
}

TEST(KeptRowsTest, NotedRowsAreWrittenBeforeRowsComeAgain) {
  Story story(2);
  story.Open();
  for (int i = 0; i < 10; ++i) story.Change();
  const ChangePositions told = story.kept().Positions();
  ASSERT_TRUE(story.kept().BeginAgain({.first = 0, .limit = ~uint64_t{0}}, told).ok());
  EXPECT_FALSE(story.kept().Notes());
  EXPECT_TRUE(story.kept().Positions().empty()) << "all come again after a kill";
  ASSERT_TRUE(story.kept().EndAgain(told).ok());
  EXPECT_EQ(story.kept().rows()->rows(), 0u) << "those that have not come again are no more";
}

}  // namespace kept_rows_test
}  // namespace hotbed
