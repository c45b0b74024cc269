// Recovery: rows that were spilled after the record being replayed already hold it.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/tiers/store_fixture.h"

namespace hotbed {
namespace replay_guard_test {

constexpr Lsn kRecords = 60;

// A log of records, and what its rows look like after any of them.
class ReplayGuardTest : public StoreFixture, public ::testing::WithParamInterface<int> {
 protected:
  struct Record {
    std::vector<uint64_t> ids;
    std::vector<std::vector<float>> gradients;
  };

  void SetUp() override {
    spec_.rows = 40;
    spec_.optimizer.kind = OptimizerKind::kAdagrad;  // applying a record twice shows
    const int rows = std::abs(GetParam());
    if (rows > 0) options_.hot_bytes = RowCost() * static_cast<uint64_t>(rows);
    if (GetParam() < 0) UseDevice(/*buckets=*/1);
    Random random(SeedFromEnvironment(20260301));
    log_.resize(kRecords + 1);
    for (Lsn lsn = 1; lsn <= kRecords; ++lsn) {
      const uint64_t first = random.Uniform(spec_.rows);
      for (uint64_t i = 0; i < 6; ++i) {
        log_[lsn].ids.push_back((first + i * 7) % spec_.rows);
        std::vector<float> gradient(spec_.dim);
        for (float& g : gradient) g = static_cast<float>(random.Double() - 0.5);
        log_[lsn].gradients.push_back(std::move(gradient));
      }
    }
  }
  void Apply(Lsn first, Lsn last) {
    for (Lsn lsn = first; lsn <= last; ++lsn) {
      const Record& record = log_[lsn];
      ASSERT_TRUE(ApplyNow(record.ids, record.gradients, lsn).ok()) << "LSN " << lsn;
      store_->SetAppliedLsn(lsn);
    }
  }
  // Rows in memory are gone; those that were handed over are on disk.
  void Crash() {
    ASSERT_TRUE(host_->Flush().ok());
    CloseStore();
    host_ = nullptr;
    OpenStore();
  }
  void Replay(Lsn first, Lsn last) {
    store_->BeginReplay();
    Apply(first, last);
    store_->EndReplay();
  }
  // A snapshot's rows as its receiver gets them; the log continues above `lsn`.
  void WarmAll(Lsn lsn, uint64_t block_bytes) {
    store_->SetAppliedLsn(lsn);
    store_->BeginReplay();
    auto reader = host_->ReadShard(SpillShard(spec_, range_, {spec_.id, 3}), /*above=*/0);
    ASSERT_TRUE(reader.ok()) << reader.status();
    for (bool more = true; more;) {
      const auto block = (*reader)->Next(block_bytes);
      ASSERT_TRUE(block.ok()) << block.status();
      if (block->empty()) {
        store_->WarmedAll();
        break;
      }
      const auto warmed = store_->Warm(*block);
      ASSERT_TRUE(warmed.ok()) << warmed.status();
      more = *warmed;
    }
  }
  void CheckRowsAt(Lsn lsn) {
    RowTwin twin(spec_, range_);
    for (Lsn l = 1; l <= lsn; ++l) {
      for (size_t i = 0; i < log_[l].ids.size(); ++i) {
        twin.Update(log_[l].ids[i], log_[l].gradients[i], {0.1f, 1.0f, 1.0f});
      }
    }
    std::vector<uint64_t> ids;
    for (uint64_t id = 0; id < spec_.rows; ++id) ids.push_back(id);
    std::vector<float> rows;
    std::vector<uint8_t> flags;
    ASSERT_TRUE(PullNow(ids, &rows, &flags).ok());
    for (uint64_t id : ids) {
      const std::vector<float> row(rows.begin() + id * spec_.dim,
                                   rows.begin() + (id + 1) * spec_.dim);
      ASSERT_EQ(row, twin.Read(id).weights) << "id " << id;
      ASSERT_EQ(flags[id], twin.Exists(id)) << "id " << id;
    }
  }

  std::vector<Record> log_;
};

TEST_P(ReplayGuardTest, SweptRowsTakeNoRecordTwice) {
  OpenStore();
  Apply(1, 30);
  ASSERT_TRUE(WriteBackNow(30, "at 30").ok());
  Apply(31, kRecords);
  Crash();  // the rows of 31 and later: lost, but for those that a small tier wrote back
  EXPECT_EQ(store_->meta(), "at 30");
  EXPECT_GE(store_->highest_lsn(), 30u);
  Replay(1, kRecords);
  CheckRowsAt(kRecords);
}

// A start from the log alone: every row of it is ahead of the first records.
TEST_P(ReplayGuardTest, CrashDuringReplay) {
  OpenStore();
  Apply(1, kRecords);
  ASSERT_TRUE(WriteBackNow(kRecords, "").ok());
  for (Lsn until : {Lsn{5}, Lsn{41}, Lsn{23}}) {
    Crash();
    store_->BeginReplay();
    Apply(1, until);  // rows ahead come in clean, go out again, and come in again
    ASSERT_EQ(store_->Stats().rows_dirty, 0u) << "every record is on disk already";
  }
  Crash();
  Replay(1, kRecords);
  CheckRowsAt(kRecords);
}

// A read between the records must not make a row resident without its guard.
TEST_P(ReplayGuardTest, ReadsDuringReplay) {
  OpenStore();
  Apply(1, kRecords);
  ASSERT_TRUE(WriteBackNow(kRecords, "").ok());
  Crash();
  store_->BeginReplay();
  for (Lsn lsn = 1; lsn <= kRecords; ++lsn) {
    CheckRowsAt(kRecords);
    Apply(lsn, lsn);
  }
  store_->EndReplay();
  CheckRowsAt(kRecords);
}

// Rows that were brought in at once are guarded as those that come with their first use.
TEST_P(ReplayGuardTest, WarmRowsTakeNoRecordTwice) {
  OpenStore();
  Apply(1, 56);
  ASSERT_TRUE(WriteBackNow(56, "at 56").ok());
  Apply(57, kRecords);
  ASSERT_TRUE(WriteBackNow(kRecords, "").ok());  // these are ahead of a log that begins above 56
  Crash();
  WarmAll(56, 500);
  const StoreStats warm = store_->Stats();
  EXPECT_EQ(warm.rows_dirty, 0u);
  EXPECT_EQ(warm.evictions, 0u) << "it makes no room";
  const uint64_t room = GetParam() == 0 ? spec_.rows : static_cast<uint64_t>(GetParam());
  EXPECT_GE(warm.rows_resident, room == 12 ? 1 : room == spec_.rows ? room : 0);
  EXPECT_LE(warm.rows_resident, room);
  Apply(57, kRecords);
  store_->EndReplay();
  CheckRowsAt(kRecords);
  if (room == spec_.rows) {
    EXPECT_EQ(store_->Stats().misses, 0u) << "nothing had to be read";
  }
}

// The log of a learner continues beyond all LSNs that its rows carry.
TEST_P(ReplayGuardTest, WarmRowsTakeWhatIsNew) {
  OpenStore();
  Apply(1, 30);
  ASSERT_TRUE(WriteBackNow(30, "at 30").ok());
  Apply(31, 40);
  ASSERT_TRUE(WriteBackNow(40, "").ok());
  Crash();
  WarmAll(30, 1 << 20);
  Apply(31, kRecords);
  store_->EndReplay();
  CheckRowsAt(kRecords);
}

TEST_P(ReplayGuardTest, ADamagedBlockWarmsNothing) {
  OpenStore();
  Apply(1, 30);
  ASSERT_TRUE(WriteBackNow(30, "at 30").ok());
  Crash();
  auto reader = host_->ReadShard(SpillShard(spec_, range_, {spec_.id, 3}), /*above=*/0);
  ASSERT_TRUE(reader.ok()) << reader.status();
  auto block = (*reader)->Next(1 << 20);
  ASSERT_TRUE(block.ok()) << block.status();
  block->back() ^= 1;
  EXPECT_EQ(store_->Warm(*block).status().code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(store_->Stats().rows_resident, 0u);
}

// A power loss took the end of the log but not the rows. A log that continues above highest_lsn()
// reuses no LSN that a row on disk already carries.
TEST_P(ReplayGuardTest, HighestLsnSurvivesWritesOfReplay) {
  const std::vector<std::vector<float>> gradient(1, std::vector<float>(spec_.dim, 0.5f));
  OpenStore();
  ASSERT_TRUE(ApplyNow({1}, gradient, 40).ok());
  ASSERT_TRUE(WriteBackNow(40, "").ok());
  Crash();
  ASSERT_EQ(store_->highest_lsn(), 40u);
  store_->BeginReplay();
  ASSERT_TRUE(ApplyNow({2}, gradient, 12).ok());
  ASSERT_TRUE(WriteBackNow(12, "").ok());
  Crash();
  EXPECT_EQ(store_->highest_lsn(), 40u);
}

// Rows of the host's hot tier, 0: all; below 0: with a device above it.
INSTANTIATE_TEST_SUITE_P(BudgetRows, ReplayGuardTest, ::testing::Values(1, 3, 12, 0, -1, -3, -12));

}  // namespace replay_guard_test
}  // namespace hotbed
