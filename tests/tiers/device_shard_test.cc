// Covers what the random operations of tiered_store_test do not show: that heat decides which rows
// are on the device, and that a shard survives the failure of its device.
#include "server/tiers/device/device_shard.h"

#include <gtest/gtest.h>

#include <numeric>

#include "tests/tiers/store_fixture.h"

namespace hotbed {
namespace device_shard_test {

class DeviceShardTest : public StoreFixture {
 protected:
  void Open(uint32_t buckets) {
    UseDevice(buckets, /*ids_max=*/64);
    OpenStore();
    twin_ = std::make_unique<RowTwin>(spec_, range_);
  }
  // The twin has what the log has, acknowledged or not.
  absl::Status Update(const std::vector<uint64_t>& ids) {
    const UpdateScalars scalars = {0.1f, 1.0f, 1.0f};
    std::vector<std::vector<float>> gradients;
    ++lsn_;
    for (uint64_t id : ids) {
      gradients.emplace_back(spec_.dim, static_cast<float>((lsn_ * 31 + id) % 17) - 8.0f);
      twin_->Update(id, gradients.back(), scalars);
    }
    log_.push_back({ids, gradients});
    const absl::Status status = ApplyNow(ids, gradients, lsn_, scalars);
    if (status.ok()) store_->SetAppliedLsn(lsn_);
    return status;
  }
  absl::Status Read(const std::vector<uint64_t>& ids) {
    std::vector<float> rows;
    std::vector<uint8_t> flags;
    const absl::Status status = PullNow(ids, &rows, &flags);
    for (size_t i = 0; status.ok() && i < ids.size(); ++i) {
      const std::vector<float> row(rows.begin() + i * spec_.dim,
                                   rows.begin() + (i + 1) * spec_.dim);
      EXPECT_EQ(row, twin_->Read(ids[i]).weights) << "id " << ids[i];
      EXPECT_EQ(flags[i], twin_->Exists(ids[i])) << "id " << ids[i];
    }
    return status;
  }
  std::vector<uint64_t> Range(uint64_t first, uint64_t count) const {
    std::vector<uint64_t> ids(count);
    std::iota(ids.begin(), ids.end(), first);
    return ids;
  }
  void ReplayFrom(Lsn first) {
    store_->SetAppliedLsn(first - 1);
    store_->BeginReplay();
    for (Lsn lsn = first; lsn <= lsn_; ++lsn) {
      const auto& [ids, gradients] = log_[lsn - 1];
      ASSERT_TRUE(ApplyNow(ids, gradients, lsn).ok());
      store_->SetAppliedLsn(lsn);
    }
    store_->EndReplay();
  }

  std::unique_ptr<RowTwin> twin_;
  std::vector<std::pair<std::vector<uint64_t>, std::vector<std::vector<float>>>> log_;
  Lsn lsn_ = 0;
};

TEST_F(DeviceShardTest, WhatIsHotIsOnTheDeviceHoweverMuchIsReadOnce) {
  spec_.hashed = true;
  spec_.rows = 4000;
  Open(/*buckets=*/4);
  for (uint64_t first = 0; first < 4000; first += 100) ASSERT_TRUE(Update(Range(first, 100)).ok());
  const std::vector<uint64_t> hot = Range(3000, 100);
  uint64_t cold = 0;
  for (int round = 0; round < 40; ++round) {
    ASSERT_TRUE(Read(hot).ok());
    ASSERT_TRUE(Read(hot).ok());
    ASSERT_TRUE(Read(Range(cold, 70)).ok());
    cold = (cold + 70) % 2900;
  }
  const uint64_t before = store_->Stats().device_hits;
  ASSERT_TRUE(Read(hot).ok());
  EXPECT_GE(store_->Stats().device_hits - before, 90u) << "of 100";
  EXPECT_EQ(store_->Stats().device_rows, 256u) << "no slot is left free";
}

TEST_F(DeviceShardTest, RowsThatMakeRoomGoToTheHostNotToTheDisk) {
  spec_.rows = 300;
  Open(/*buckets=*/1);
  for (int round = 0; round < 4; ++round) {
    for (uint64_t first = 0; first < 300; first += 30) {
      ASSERT_TRUE(Update(Range(first, 30)).ok());
    }
  }
  ASSERT_TRUE(Read(Range(0, 300)).ok());
  EXPECT_EQ(store_->Stats().misses, 0u) << "the host has room for all that the device has not";
  EXPECT_EQ(store_->Stats().rows_resident, 300u);
  EXPECT_GT(store_->Stats().device_rows, 32u);
}

struct LostCase {
  uint64_t launches;
  bool flushed;  // everything written back is on disk, else only what WriteBackAll flushed
};

class LostDeviceTest : public DeviceShardTest, public ::testing::WithParamInterface<LostCase> {};

TEST_P(LostDeviceTest, ItsShardAnswersNothingAndTheLogHasEverything) {
  spec_.rows = 150;
  spec_.optimizer.kind = OptimizerKind::kAdagrad;  // applying a record twice shows
  options_.hot_bytes = RowCost() * 20;
  device_faults_.works_before_fault = GetParam().launches;
  Open(/*buckets=*/1);
  absl::Status status;
  Lsn written_back = 0;
  while (status.ok() && lsn_ < 400) {
    status = Update(Range(lsn_ * 7 % 120, 25));
    if (status.ok() && lsn_ % 3 == 0) status = Read(Range(lsn_ % 100, 20));
    if (status.ok() && lsn_ % 10 == 0) {
      status = WriteBackNow(lsn_, absl::StrCat(lsn_));
      if (!status.ok()) break;
      ASSERT_TRUE(host_->Flush().ok());
      written_back = lsn_;
    }
  }
  ASSERT_TRUE(IsDeviceLost(status)) << status << ", LSN " << lsn_;
  EXPECT_TRUE(IsDeviceLost(Read({1})));
  EXPECT_TRUE(IsDeviceLost(WriteBackNow(lsn_, "no")));
  EXPECT_TRUE(IsDeviceLost(ApplyNow({1}, {std::vector<float>(spec_.dim)}, lsn_ + 1)));
  EXPECT_NE(host_->DeviceError(), "");
  RunAll();
  if (GetParam().flushed) {
    ASSERT_TRUE(host_->Flush().ok());
  }
  CloseStore();
  host_ = nullptr;

  device_faults_ = {};
  OpenStore();
  EXPECT_EQ(store_->meta(), written_back == 0 ? "" : absl::StrCat(written_back));
  ReplayFrom(written_back + 1);
  ASSERT_TRUE(Read(Range(0, 150)).ok());
  ASSERT_TRUE(Update(Range(0, 50)).ok());
  ASSERT_TRUE(Read(Range(0, 150)).ok());
}

std::vector<LostCase> LostCases() {
  std::vector<LostCase> cases;
  for (bool flushed : {false, true}) {
    for (uint64_t launches : {0, 1, 2, 3, 5, 8, 20, 77, 250, 600, 601, 602, 603, 604}) {
      cases.push_back({launches, flushed});
    }
  }
  return cases;
}
INSTANTIATE_TEST_SUITE_P(At, LostDeviceTest, ::testing::ValuesIn(LostCases()));

}  // namespace device_shard_test
}  // namespace hotbed
