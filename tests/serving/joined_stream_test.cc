// Slices of a table whose rows are pushed, deleted and lost one slice after another, while a stream
// joins them: its reader has each row whole or not at all, and misses nothing.
#include "client/changes/joined_stream.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/clock.h"
#include "common/random.h"

namespace hotbed {
namespace joined_stream_test {

#ifdef HOTBED_PLANTED_EARLY_JOINS
constexpr bool kPlanted = true;
#else
constexpr bool kPlanted = false;
#endif

constexpr uint32_t kSlices = 3;
constexpr uint64_t kIds = 10;
constexpr uint64_t kRangeIds = 5;  // so there are two ranges
constexpr uint32_t kShards = 2 * kSlices;
constexpr uint64_t kNumber = 77;
constexpr size_t kPage = 3;  // ids of an answer

// One slice of a range of rows, a column each, with all that has changed.
struct Slice {
  struct Entry {
    uint64_t id = 0;
    std::optional<float> before;
  };
  std::map<uint64_t, float> rows;
  std::vector<Entry> log;  // its LSNs begin at 1
  uint64_t epoch = 1;
  std::map<uint64_t, uint64_t> begins;  // the last LSN before an epoch
  bool away = false;
  bool hangs = false;
  struct Deposed {
    std::map<uint64_t, float> rows;
    uint64_t epoch = 0;
    uint64_t lsn = 0;
  };
  std::optional<Deposed> deposed;  // is still asked for rows, and answers

  uint64_t lsn() const { return log.size(); }
  std::optional<float> Get(uint64_t id) const {
    const auto row = rows.find(id);
    return row == rows.end() ? std::nullopt : std::optional<float>(row->second);
  }
  void Set(uint64_t id, std::optional<float> value) {
    rows.erase(id);
    if (value.has_value()) rows[id] = *value;
  }
  void Change(uint64_t id, std::optional<float> value) {
    log.push_back({id, Get(id)});
    Set(id, value);
  }
  // The last entries never were.
  void Lose(uint64_t count) {
    for (; count > 0 && !log.empty(); --count) {
      Set(log.back().id, log.back().before);
      log.pop_back();
    }
    begins[++epoch] = lsn();
    deposed.reset();
  }
  // Another server becomes the primary. Those who joined do not know it yet.
  void TakeOver() {
    if (!deposed.has_value()) deposed = Deposed{rows, epoch, lsn()};
    begins[++epoch] = lsn();
  }
  // Whether the entry is there still, or one that goes on from it.
  bool GoesOnFrom(uint64_t of_epoch, uint64_t at_lsn) const {
    return std::all_of(begins.upper_bound(of_epoch), begins.end(),
                       [at_lsn](const auto& begin) { return begin.second >= at_lsn; });
  }
};
using Slices = std::array<Slice, kShards>;  // range by range

uint32_t ShardOf(uint64_t id, uint32_t slice) { return (id < kRangeIds ? 0 : kSlices) + slice; }

ChangedRange RangeOf(uint32_t shard) {
  const uint64_t first = shard < kSlices ? 0 : kRangeIds;
  const uint32_t slice = shard % kSlices;
  return {first, first + kRangeIds, slice, slice + 1};
}

// Tells ids as servers do: a list page by page, then what is logged. A new primary lists what has
// changed since, and its place stays what it was until the list has ended.
class Ids final : public IdStream {
 public:
  Ids(const Slices* slices, const ChangePositions& from, Random* random, size_t* told_ids)
      : slices_(*slices), random_(*random), told_ids_(*told_ids) {
    for (uint32_t i = 0; i < kShards; ++i) {
      for (const RangePosition& position : from) {
        if (!(position.range == RangeOf(i))) continue;
        EXPECT_EQ(position.table, kNumber);
        told_[i] = {
            true, {position.epoch, position.lsn}, {position.seen_epoch, position.seen_lsn}, {}, 0};
      }
    }
  }

  absl::StatusOr<std::optional<RowChanges>> Next(absl::Duration) override { return std::nullopt; }
  absl::StatusOr<std::optional<CopyChanges>> NextOfCopy(absl::Duration) override {
    if (random_.OneIn(3)) return std::nullopt;
    const uint32_t first = static_cast<uint32_t>(random_.Uniform(kShards));
    for (uint32_t i = 0; i < kShards; ++i) {
      std::optional<CopyChanges> changes = NextOf((first + i) % kShards);
      if (!changes.has_value()) continue;
      told_ids_ += changes->ids.size();
      return changes;
    }
    return std::nullopt;
  }
  ChangePositions Positions() const override {
    ChangePositions positions;
    for (uint32_t i = 0; i < kShards; ++i) {
      const Told& told = told_[i];
      if (!told.begun) continue;
      positions.push_back({kNumber, RangeOf(i), told.through.first,
                           told.listed() ? told.through.second : 0, told.seen.first,
                           told.seen.second});
    }
    return positions;
  }
  absl::Duration Age() const override {
    for (uint32_t i = 0; i < kShards; ++i) {
      if (!told_[i].begun || !told_[i].listed()) return absl::InfiniteDuration();
    }
    return absl::Milliseconds(1);
  }
  bool ended() const override { return false; }
  void NoteSeen(uint32_t shard, const v1::LogPlace& at) override {
    told_[shard].seen = std::max(told_[shard].seen, {at.epoch(), at.lsn()});
  }

 private:
  struct Told {
    bool begun = false;
    std::pair<uint64_t, uint64_t> through;  // epoch and LSN
    std::pair<uint64_t, uint64_t> seen;
    std::vector<uint64_t> list;  // ids that are to be told still
    uint64_t changed_to = 0;     // of a list of changes, its LSN
    bool listed() const { return list.empty(); }
  };

  std::optional<CopyChanges> NextOf(uint32_t i) {
    const Slice& slice = slices_[i];
    Told& told = told_[i];
    CopyChanges changes;
    changes.shard = i;
    changes.range = RangeOf(i);
    if (slice.away || slice.hangs) return std::nullopt;
    if (!told.begun) {
      if (unlisted_ > 0) {  // the server has much to do
        --unlisted_;
        return std::nullopt;
      }
      told = {true, {slice.epoch, slice.lsn()}, {slice.epoch, slice.lsn()}, {}, 0};
      for (const auto& [id, value] : slice.rows) told.list.push_back(id);
      if (told.list.empty()) return changes;
    }
    if (!told.list.empty()) {
      while (!told.list.empty() && changes.ids.size() < kPage) {
        changes.ids.push_back(told.list.back());
        told.list.pop_back();
      }
      return changes;
    }
    changes.again = !slice.GoesOnFrom(told.through.first, told.through.second) ||
                    !slice.GoesOnFrom(told.seen.first, told.seen.second);
    if (changes.again) return changes;
    const bool lists = told.through.first != slice.epoch;
    uint64_t lsn = lists ? std::max(told.changed_to, told.through.second) : told.through.second;
    if (lsn == slice.lsn()) {
      told.through = {slice.epoch, lsn};
      return std::nullopt;
    }
    for (size_t n = 0; n < kPage && lsn < slice.lsn(); ++n) {
      const uint64_t id = slice.log[lsn++].id;
      (slice.rows.contains(id) ? changes.ids : changes.deleted).push_back(id);
    }
    told.seen = {slice.epoch, slice.lsn()};
    told.changed_to = lsn;
    if (!lists) told.through.second = lsn;
    return changes;
  }

  const Slices& slices_;
  Random& random_;
  size_t& told_ids_;
  uint64_t unlisted_ = random_.Uniform(30);
  std::array<Told, kShards> told_;
};

// Every server of the table, and its coordinator.
struct Servers {
  Slices slices;
  bool coordinator_away = false;
  ManualClock clock;
  std::vector<size_t> reads;  // ids per join
  size_t told_ids = 0;
};

class Fake final : public SlicedTable {
 public:
  Fake(Servers* servers, Random* random) : servers_(*servers), random_(random) {}

  absl::StatusOr<std::vector<SliceShard>> Shards() override {
    if (servers_.coordinator_away) return absl::UnavailableError("the coordinator is away");
    LookAgain();
    std::vector<SliceShard> shards;
    for (uint32_t i = 0; i < kShards; ++i) shards.push_back({i, RangeOf(i)});
    return shards;
  }
  uint64_t number() const override { return kNumber; }
  absl::StatusOr<std::unique_ptr<IdStream>> FollowIds(const ChangePositions& from) override {
    return std::make_unique<Ids>(&servers_.slices, from, random_, &servers_.told_ids);
  }
  absl::StatusOr<std::vector<Found>> Read(absl::Span<const Wanted> wanted) override {
    std::vector<Found> found;
    bool hung = false;
    for (const Wanted& one : wanted) {
      const Slice& slice = servers_.slices[one.from.shard];
      hung |= slice.hangs;
      Found& rows = found.emplace_back();
      rows.answered = !slice.away && !slice.hangs;
      const auto& values = slice.deposed.has_value() ? slice.deposed->rows : slice.rows;
      rows.at.set_epoch(slice.deposed.has_value() ? slice.deposed->epoch : slice.epoch);
      rows.at.set_lsn(slice.deposed.has_value() ? slice.deposed->lsn : slice.lsn());
      for (const uint64_t id : one.ids) {
        const auto row = values.find(id);
        rows.found.push_back(row != values.end() ? 1 : 0);
        rows.rows.push_back(row != values.end() ? row->second : 0);
      }
      if (RangeOf(one.from.shard).column_first == 0 && !one.ids.empty()) {
        servers_.reads.push_back(one.ids.size());
      }
    }
    if (hung) servers_.clock.Advance(kSecondNs);
    return found;
  }
  void LookAgain() override {
    for (Slice& slice : servers_.slices) slice.deposed.reset();
  }

 private:
  Servers& servers_;
  Random* const random_;
};

using Row = std::vector<float>;

class Story {
 public:
  explicit Story(uint64_t seed, uint64_t rows = 0) : random_(seed) {
    servers_.clock.Advance(kSecondNs);
    for (uint64_t id = 0; id < rows; ++id) Push(id, static_cast<float>(++value_));
    Open({});
  }

  void Open(const ChangePositions& from) {
    stream_ =
        JoinSlices(std::make_unique<Fake>(&servers_, &random_), kSlices, from, &servers_.clock);
  }

  void Push(uint64_t id, float value) {
    for (uint32_t i = 0; i < kSlices; ++i) slices_[ShardOf(id, i)].Change(id, value);
  }

  // Takes one answer; false: there was none.
  bool Take() {
    servers_.clock.Advance(kSecondNs / 20);
    absl::StatusOr<std::optional<CopyChanges>> changes = stream_->NextOfCopy(absl::ZeroDuration());
    EXPECT_TRUE(changes.ok()) << changes.status();
    if (!changes.ok() || !changes->has_value()) return false;
    if ((*changes)->again) {
      std::erase_if(rows_, [&](const auto& row) {
        return row.first >= (*changes)->range.first && row.first < (*changes)->range.limit;
      });
    }
    for (size_t i = 0; i < (*changes)->ids.size(); ++i) {
      const float* const row = (*changes)->rows.data() + i * kSlices;
      rows_[(*changes)->ids[i]] = Row(row, row + kSlices);
    }
    for (const uint64_t id : (*changes)->deleted) rows_.erase(id);
    return true;
  }

  void TakeAll() {
    for (int idle = 0; idle < 400;) idle = Take() ? 0 : idle + 1;
  }

  std::map<uint64_t, Row> WholeRows() const {
    std::map<uint64_t, Row> whole;
    for (uint64_t id = 0; id < kIds; ++id) {
      Row row;
      for (uint32_t i = 0; i < kSlices; ++i) {
        const std::optional<float> value = slices_[ShardOf(id, i)].Get(id);
        if (value.has_value()) row.push_back(*value);
      }
      if (row.size() == kSlices) whole[id] = row;
    }
    return whole;
  }

  // A trainer's push or delete comes to the slices one after another; to some never, if it dies.
  void Step() {
    const uint64_t what = random_.Uniform(40);
    if (what < 12) {
      const uint64_t id = random_.Uniform(kIds);
      const float value = random_.OneIn(3) ? 0 : static_cast<float>(++value_);  // 0: a delete
      const bool dies = random_.OneIn(3);
      for (uint32_t i = 0; i < kSlices; ++i) {
        if (dies && random_.OneIn(2)) break;
        coming_[ShardOf(id, i)].emplace_back(id, value);
      }
    } else if (what < 24) {
      Arrive(static_cast<uint32_t>(random_.Uniform(kShards)));
    } else if (what == 24 && random_.OneIn(4)) {
      slices_[random_.Uniform(kShards)].Lose(1 + random_.Uniform(3));
    } else if (what == 26 && random_.OneIn(2)) {
      slices_[random_.Uniform(kShards)].TakeOver();
    } else if (what == 25 && random_.OneIn(4)) {
      Open(stream_->Positions());  // the rows stay: they lie on a disk
      if (stream_->Positions().empty()) rows_.clear();
    } else {
      Take();
    }
  }
  void Arrive(uint32_t i) {
    if (coming_[i].empty()) return;
    const auto [id, value] = coming_[i].front();
    coming_[i].erase(coming_[i].begin());
    slices_[i].Change(id, value == 0 ? std::nullopt : std::optional<float>(value));
  }
  void ArriveAll() {
    for (uint32_t i = 0; i < kShards; ++i) {
      while (!coming_[i].empty()) Arrive(i);
    }
  }

  Random random_;
  Servers servers_;
  Slices& slices_ = servers_.slices;
  std::array<std::vector<std::pair<uint64_t, float>>, kShards> coming_;
  int value_ = 0;
  std::unique_ptr<CopyStream> stream_;
  std::map<uint64_t, Row> rows_;
};

TEST(JoinedStream, AReaderMissesNothingWhateverComesBetween) {
  int differ = 0;
  for (uint64_t seed = 1; seed <= 3000; ++seed) {
    Story story(seed, /*rows=*/seed % kIds);
    for (int step = 0; step < 300; ++step) story.Step();
    story.ArriveAll();
    story.TakeAll();
    const bool same = story.rows_ == story.WholeRows();
    differ += same ? 0 : 1;
    if (!kPlanted) {
      ASSERT_TRUE(same) << "seed " << seed;
    }
  }
  EXPECT_EQ(differ > 0, kPlanted);
}

// These tests need streams that are not random.
class JoinedStreamTest : public ::testing::Test {
 protected:
  void Push(uint64_t id, float value) { story_.Push(id, value); }

  Story story_{1};
};

TEST_F(JoinedStreamTest, AnIdThatChangesInSeveralSlicesIsJoinedOnce) {
  for (uint64_t id = 0; id < kPage; ++id) Push(id, 1);
  story_.TakeAll();
  EXPECT_EQ(story_.rows_.size(), kPage);
  // The slices are away until all of them have changed.
  for (Slice& slice : story_.slices_) slice.away = true;
  for (int i = 0; i < 5; ++i) Push(2, 7);
  for (Slice& slice : story_.slices_) slice.away = false;
  story_.servers_.reads.clear();
  story_.TakeAll();
  EXPECT_EQ(story_.rows_[2], Row(kSlices, 7));
  for (const size_t ids : story_.servers_.reads) EXPECT_EQ(ids, 1u);
  EXPECT_LE(story_.servers_.reads.size(), 6u);  // of 15 changes, told by pages of 3 per slice
}

TEST_F(JoinedStreamTest, ARowThatASliceLacksIsAbsentUntilItComes) {
  Push(1, 1);
  story_.TakeAll();
  story_.slices_[0].Change(5, 2);
  story_.slices_[2].Change(5, 2);
  story_.slices_[1].Change(1, std::nullopt);
  story_.TakeAll();
  EXPECT_TRUE(story_.rows_.empty());
  story_.slices_[1].Change(5, 3);
  story_.TakeAll();
  EXPECT_EQ(story_.rows_[5], (Row{2, 3, 2}));
  EXPECT_EQ(story_.rows_.size(), 1u);
}

TEST_F(JoinedStreamTest, WhileASliceIsAwayTheRowsGrowOldAndThenComeAll) {
  Push(1, 1);
  story_.TakeAll();
  const ChangePositions before = story_.stream_->Positions();
  EXPECT_LT(story_.stream_->Age(), absl::Seconds(10));
  Push(1, 2);
  story_.slices_[2].away = true;
  for (int i = 0; i < 3; ++i) story_.Take();
  EXPECT_EQ(story_.rows_[1], Row(kSlices, 1));
  for (size_t i = 0; i < kSlices; ++i) {
    EXPECT_EQ(story_.stream_->Positions()[i].lsn, before[i].lsn);  // not told yet
  }
  story_.servers_.clock.Advance(10 * kSecondNs);
  for (int i = 0; i < 5; ++i) story_.Take();
  EXPECT_GE(story_.stream_->Age(), absl::Seconds(10));
  story_.slices_[2].away = false;
  story_.TakeAll();
  EXPECT_EQ(story_.rows_[1], Row(kSlices, 2));
  EXPECT_EQ(story_.stream_->Positions()[0].lsn, 2u);
  EXPECT_LT(story_.stream_->Age(), absl::Seconds(5));
}

TEST_F(JoinedStreamTest, ADeposedPrimaryGivesNoRows) {
  for (uint64_t id = 0; id < kPage; ++id) Push(id, 1);
  story_.TakeAll();
  Slice& slice = story_.slices_[1];
  slice.TakeOver();
  // Many pages, so that the list of changes has not ended when the first id is joined.
  for (uint64_t n = 0; n < 60; ++n) slice.Change(n == 0 ? 0 : 1, 2);
  story_.TakeAll();
  EXPECT_EQ(story_.rows_[0], (Row{1, 2, 1}));
  EXPECT_EQ(story_.rows_[1], (Row{1, 2, 1}));
  EXPECT_LT(story_.stream_->Age(), absl::Seconds(5));
}

TEST_F(JoinedStreamTest, ASliceThatHangsHoldsUpNoOtherRange) {
  for (uint64_t id = 0; id < kIds; ++id) Push(id, 1);
  story_.TakeAll();
  Push(1, 2);
  story_.slices_[ShardOf(1, 2)].hangs = true;
  for (float value = 3; value < 13; ++value) {
    Push(kRangeIds, value);
    const int64_t until_ns = story_.servers_.clock.NowNs() + 6 * kSecondNs;
    while (story_.servers_.clock.NowNs() < until_ns) story_.Take();
    ASSERT_EQ(story_.rows_[kRangeIds], Row(kSlices, value));
  }
  EXPECT_EQ(story_.rows_[1], Row(kSlices, 1));
  EXPECT_GE(story_.stream_->Age(), absl::Seconds(50));
  story_.slices_[ShardOf(1, 2)].hangs = false;
  story_.TakeAll();
  EXPECT_EQ(story_.rows_, story_.WholeRows());
}

TEST_F(JoinedStreamTest, WhileTheCoordinatorIsAwayTheStreamGoesOn) {
  Push(1, 1);
  story_.TakeAll();
  Push(1, 2);
  story_.TakeAll();
  story_.slices_[0].Lose(1);
  story_.servers_.coordinator_away = true;
  for (int i = 0; i < 20; ++i) story_.Take();
  EXPECT_EQ(story_.rows_[1], Row(kSlices, 2));
  story_.servers_.coordinator_away = false;
  story_.TakeAll();
  EXPECT_EQ(story_.rows_[1], (Row{1, 2, 2}));
}

// A range of more ids than may be pending.
TEST_F(JoinedStreamTest, NoMoreIdsAreTakenThanMayBePending) {
  constexpr uint64_t kMany = 560'000;
  for (uint32_t i = 0; i < kSlices; ++i) {
    Slice& slice = story_.slices_[i];
    for (uint64_t id = 0; id < kMany; ++id) slice.rows.emplace_hint(slice.rows.end(), id, 1.0f);
    slice.log.push_back({0, 1.0f});
  }
  story_.Open({});
  story_.Take();
  story_.slices_[2].away = true;
  while (story_.servers_.told_ids < 520'000) story_.Take();
  for (int i = 0; i < 20'000; ++i) story_.Take();
  EXPECT_LT(story_.servers_.told_ids, kMany);
}

}  // namespace joined_stream_test
}  // namespace hotbed
