// A read of the spill tier that returns an older version of a row must never win.
//
// The schedules are run by hand. A pull of more than one part (256 rows) is cut open: the part that
// holds row kRow reads the disk first, and so carries version 1; its other part, and with it the
// pull's completion, comes only after row kRow has been moved. kRow's version 2 then lies in
// each of the places where a row can be: hot, waiting to be written, being written, written, back
// from the disk. The first part has read a stale version in all cases, and each test checks that
// by reading the row once more. Without WriteBack's memory of the reads in flight
// (BeginFetch/EndFetch), WrittenMeanwhile answers with version 1 and makes it resident.
#include <gtest/gtest.h>

#include <numeric>
#include <vector>

#include "tests/common/number_of.h"
#include "tests/tiers/store_fixture.h"

namespace hotbed {
namespace in_flight_test {

constexpr uint64_t kRow = 5;
constexpr uint32_t kPulled = 300;

class InFlightTest : public StoreFixture {
 protected:
  void SetUp() override {
    spec_.rows = 1000;
    options_.hot_bytes = RowCost() * 8;
    OpenStore();
    twin_ = std::make_unique<RowTwin>(spec_, range_);
    for (uint64_t id = 0; id < kPulled; id += 5) Update(id);
    Reopen(lsn_);  // nothing is resident
    version1_ = twin_->Read(kRow).weights;
    StartPull();
  }

  void Update(uint64_t id) {
    std::vector<std::vector<float>> gradient(
        1, std::vector<float>(spec_.dim, 0.25f + static_cast<float>(++lsn_)));
    ASSERT_TRUE(ApplyNow({id}, gradient, lsn_).ok());
    twin_->Update(id, gradient[0], {0.1f, 1.0f, 1.0f});
  }
  // An update whose own reads and writes run one by one, the pull's second part staying where it
  // is: at the head of the I/O queue.
  void UpdateAside(uint64_t id) {
    const std::vector<float> gradient(spec_.dim, 0.25f + static_cast<float>(++lsn_));
    const auto* row = reinterpret_cast<const uint8_t*>(gradient.data());
    RowUpdates updates;
    updates.ids = &id;
    updates.count = 1;
    updates.gradients = &row;
    updates.scalars = {0.1f, 1.0f, 1.0f};
    updates.lsn = lsn_;
    bool finished = store_->Apply(updates, [&finished](absl::Status status) {
      EXPECT_TRUE(status.ok()) << status;
      finished = true;
    });
    while (!finished) RunAside();
    twin_->Update(id, gradient, updates.scalars);
  }
  // One I/O task that is not the pull's second part, and what follows from it.
  void RunAside() {
    ASSERT_GT(io_.depth(), 1u);
    io_.RunAt(1);
    while (executor_.RunOne()) {
    }
  }
  void RunAllAside() {
    while (io_.depth() > 1) RunAside();
  }
  void EvictAside() {
    const uint64_t before = store_->Stats().evictions;
    for (uint64_t id = 500; id < 540; ++id) UpdateAside(id);
    ASSERT_GE(store_->Stats().evictions, before + 30) << "kRow went with the others";
  }

  void StartPull() {
    ids_.resize(kPulled);
    std::iota(ids_.begin(), ids_.end(), uint64_t{0});
    rows_.resize(kPulled * spec_.dim);
    RowReads reads;
    reads.ids = ids_.data();
    reads.count = kPulled;
    reads.rows = reinterpret_cast<uint8_t*>(rows_.data());
    ASSERT_FALSE(store_->Pull(reads, [this](absl::Status status) {
      EXPECT_TRUE(status.ok()) << status;
      pulled_ = true;
    }));
    ASSERT_EQ(io_.depth(), 2u) << "two parts";
    io_.RunAt(0);  // holds version 1 of kRow from here on
    ASSERT_FALSE(executor_.RunOne());
  }
  void FinishPullAndCheck() {
    ASSERT_FALSE(pulled_);
    ASSERT_NE(twin_->Read(kRow).weights, version1_);
    io_.RunAt(0);
    while (executor_.RunOne()) {
    }
    ASSERT_TRUE(pulled_);
    for (uint64_t id = 0; id < kPulled; ++id) {
      const std::vector<float> row(rows_.begin() + id * spec_.dim,
                                   rows_.begin() + (id + 1) * spec_.dim);
      ASSERT_EQ(row, twin_->Read(id).weights) << "id " << id << " as answered";
    }
    // The rows that the pull made resident must be right too, and those on disk.
    CheckRow();
    RunAll();
    CheckRow();
    Reopen(lsn_);
    CheckRow();
  }
  void CheckRow() {
    std::vector<float> row;
    std::vector<uint8_t> flags;
    ASSERT_TRUE(PullNow({kRow}, &row, &flags).ok());
    EXPECT_EQ(row, twin_->Read(kRow).weights);
  }

  std::unique_ptr<RowTwin> twin_;
  Lsn lsn_ = 0;
  std::vector<float> version1_;
  std::vector<uint64_t> ids_;
  std::vector<float> rows_;
  bool pulled_ = false;
};

TEST_F(InFlightTest, HotMeanwhile) {
  UpdateAside(kRow);
  FinishPullAndCheck();
}

TEST_F(InFlightTest, WaitingToBeWrittenMeanwhile) {
  before_write_back_ = absl::UnavailableError("not now");
  UpdateAside(kRow);
  EvictAside();
  RunAllAside();
  EXPECT_EQ(store_->Stats().writebacks, 0u);
  before_write_back_ = absl::OkStatus();
  FinishPullAndCheck();
}

TEST_F(InFlightTest, WrittenMeanwhile) {
  UpdateAside(kRow);
  EvictAside();
  RunAllAside();
  ASSERT_GE(store_->Stats().writebacks, 30u) << "version 2 is on disk, and in no hot row";
  FinishPullAndCheck();
}

TEST_F(InFlightTest, WrittenAndSweptMeanwhile) {
  UpdateAside(kRow);
  bool written_back = false;
  store_->WriteBackAll(lsn_, "",
                       [&written_back](absl::Status status) { written_back = status.ok(); });
  while (executor_.RunOne()) {
  }
  RunAllAside();
  ASSERT_TRUE(written_back);
  EvictAside();  // clean: it is not written again
  RunAllAside();
  FinishPullAndCheck();
}

TEST_F(InFlightTest, BackFromTheDiskAndUpdatedAgainMeanwhile) {
  UpdateAside(kRow);
  EvictAside();
  RunAllAside();
  UpdateAside(kRow);
  EvictAside();
  UpdateAside(kRow);
  FinishPullAndCheck();
}

// A second read of the same row, younger than the write, must not forget the write for the first.
TEST_F(InFlightTest, AYoungerReadEndsFirst) {
  UpdateAside(kRow);
  EvictAside();
  RunAllAside();
  uint64_t id = 110;  // elsewhere on disk: a read of its own
  std::vector<float> row(spec_.dim);
  RowReads reads;
  reads.ids = &id;
  reads.count = 1;
  reads.rows = reinterpret_cast<uint8_t*>(row.data());
  bool pulled = false;
  ASSERT_FALSE(store_->Pull(reads, [&pulled](absl::Status) { pulled = true; }));
  RunAllAside();
  ASSERT_TRUE(pulled);
  EXPECT_EQ(row, twin_->Read(id).weights);
  FinishPullAndCheck();
}

// While an update waits for the disk, what it found absent must stay so: the pull that ends in
// between answers with version 1 and keeps nothing.
TEST_F(InFlightTest, EndsWhileAnUpdateOfTheRowWaits) {
  const std::vector<float> gradient(spec_.dim, 3.0f);
  const auto* gradient_row = reinterpret_cast<const uint8_t*>(gradient.data());
  RowUpdates updates;
  updates.ids = &kRow;
  updates.count = 1;
  updates.gradients = &gradient_row;
  updates.scalars = {0.1f, 1.0f, 1.0f};
  updates.lsn = ++lsn_;
  bool applied = false;
  ASSERT_FALSE(store_->Apply(updates, [&applied](absl::Status status) { applied = status.ok(); }));
  io_.RunAt(0);  // the pull's second part
  while (executor_.RunOne()) {
  }
  ASSERT_TRUE(pulled_);
  ASSERT_FALSE(applied);
  EXPECT_TRUE(std::equal(version1_.begin(), version1_.end(), rows_.begin() + kRow * spec_.dim));
  EXPECT_EQ(store_->Stats().rows_resident, 0u);
  RunAll();
  ASSERT_TRUE(applied);
  twin_->Update(kRow, gradient, updates.scalars);
  EXPECT_EQ(store_->Stats().rows_resident, 1u);
  CheckRow();
  for (uint64_t id = 500; id < 540; ++id) Update(id);
  CheckRow();
}

// The shard is closed while its reads and writes are in flight: they touch nothing of it.
TEST_F(InFlightTest, ClosedMeanwhile) {
  UpdateAside(kRow);
  EvictAside();
  store_ = nullptr;
  RunAll();
  EXPECT_FALSE(pulled_);
  EXPECT_EQ(NumberOf(*host_, "hot_bytes"), 0u);
}

}  // namespace in_flight_test
}  // namespace hotbed
