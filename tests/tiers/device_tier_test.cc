// The device's executor: jobs of many tables against a map, cut and joined as the limits of a
// message say; what is told when it fails, and what is dropped.
#include "server/tiers/device_tier.h"

#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <numeric>

#include "common/random.h"
#include "tests/tiers/emulated_device.h"
#include "tests/tiers/store_fixture.h"

namespace hotbed {
namespace {

constexpr uint32_t kDim = 3;
constexpr uint32_t kTables = 4;
constexpr uint32_t kRows = 64;

class DeviceTierTest : public ::testing::Test {
 protected:
  void Open(device::HostDeviceOptions faults = {}) {
    auto tier = EmulatedDevice(SmallMessages(16), 1 << 20, [faults] { return faults; })();
    ASSERT_TRUE(tier.ok()) << tier.status();
    tier_ = *std::move(tier);
    tier_->RunOn(&io_);
    for (uint32_t t = 0; t < kTables; ++t) AddTable();
    ended_.clear();
  }
  ~DeviceTierTest() override { RunAll(); }

  void AddTable() {
    auto job = NewJob(DeviceJob::Kind::kCall);
    job->call = [this](device::DeviceRows* rows) {
      device::RowShape shape;
      shape.dim = kDim;
      shape.optimizer.kind = OptimizerKind::kSgd;
      uint32_t table = 0;
      device::Status status = rows->AddTable(shape, true, 0, kRows, &table);
      std::vector<device::RowToInsert> inserted;
      for (uint64_t row = 0; row < kRows; row += 2) inserted.push_back({table, row, zeros_});
      std::vector<device::MovedRow> evicted;
      if (status.ok()) status = rows->Insert(inserted, false, false, &evicted);
      return status;
    };
    tier_->Submit(job);
    RunAll();
  }
  std::shared_ptr<DeviceJob> NewJob(DeviceJob::Kind kind) {
    auto job = std::make_shared<DeviceJob>();
    job->kind = kind;
    job->dim = kDim;
    job->gate = gate_;
    job->executor = &executor_;
    job->done = [this, job = job.get()] { ended_.push_back(job); };
    return job;
  }
  void RunAll() {
    while (io_.depth() > 0) io_.RunAt(0);
    while (executor_.RunOne()) {
    }
  }

  uint8_t zeros_[4 * kDim] = {};
  ManualIoQueue io_;
  ManualExecutor executor_;
  std::shared_ptr<IoGate> gate_ = std::make_shared<IoGate>();
  std::unique_ptr<DeviceTier> tier_;
  std::vector<DeviceJob*> ended_;
};

constexpr float kOne[kDim] = {1, 1, 1};

// A job and what it must find. Rows with even numbers are there.
struct Asked {
  std::shared_ptr<DeviceJob> job;
  std::vector<uint64_t> ids;
  std::vector<float> rows, want;
  std::vector<uint8_t> flags;
  std::vector<const uint8_t*> gradients;
  std::vector<uint32_t> missing;

  // Up to four messages' worth of ids; of an update, of rows that are there.
  void Draw(Random& random, std::map<std::pair<uint32_t, uint64_t>, float>* values) {
    job->table = static_cast<uint32_t>(random.Uniform(kTables));
    const bool updates = job->kind == DeviceJob::Kind::kUpdate;
    const uint64_t first = random.Uniform(kRows) & ~1ull;
    const uint64_t count = 1 + random.Uniform(kRows - first);
    for (uint64_t id = first; id < first + count; ++id) {
      if (updates && id % 2 == 1) continue;
      if (id % 2 == 1) missing.push_back(static_cast<uint32_t>(ids.size()));
      ids.push_back(id);
      float& value = (*values)[{job->table, id}];
      if (updates) value -= 0.5f;
      want.insert(want.end(), kDim, value);
    }
    rows.assign(want.size(), -77.0f);
    flags.assign(ids.size(), 77);
    gradients.assign(ids.size(), reinterpret_cast<const uint8_t*>(kOne));
    job->ids = ids.data();
    job->count = static_cast<uint32_t>(ids.size());
    job->rows = reinterpret_cast<uint8_t*>(rows.data());
    job->flags = flags.data();
    job->gradients = gradients.data();
    job->scalars.learning_rate = 0.5f;
  }
  void Check() const {
    ASSERT_TRUE(job->status.ok()) << job->status;
    ASSERT_EQ(job->missing, missing);
    if (job->kind != DeviceJob::Kind::kPull) return;
    for (size_t i = 0; i < ids.size(); ++i) {
      ASSERT_EQ(flags[i], ids[i] % 2 == 0);
      if (flags[i] == 1) {
        ASSERT_EQ(rows[kDim * i], want[kDim * i]) << "id " << ids[i];
      }
    }
  }
};

// Jobs of a table take effect, and are told, in the order in which they were given.
TEST_F(DeviceTierTest, JobsTakeEffectInTheOrderOfTheirTable) {
  const uint64_t seed = TestSeed(3);
  SCOPED_TRACE(Replay(seed));
  Random random(seed);
  Open();
  std::map<std::pair<uint32_t, uint64_t>, float> values;
  for (int round = 0; round < 20; ++round) {
    std::vector<std::unique_ptr<Asked>> all;
    std::map<DeviceJob*, size_t> number_of;
    ended_.clear();
    for (size_t i = 0; i < 40; ++i) {
      all.push_back(std::make_unique<Asked>());
      all[i]->job = NewJob(static_cast<DeviceJob::Kind>(random.Uniform(3)));
      number_of[all[i]->job.get()] = i;
      all[i]->Draw(random, &values);
      tier_->Submit(all[i]->job);
    }
    RunAll();
    ASSERT_EQ(ended_.size(), all.size());
    std::map<uint32_t, size_t> last_of;
    for (DeviceJob* job : ended_) {
      ASSERT_GE(number_of[job], last_of[job->table]) << "told in another order";
      last_of[job->table] = number_of[job];
    }
    for (const auto& asked : all) asked->Check();
  }
}

TEST_F(DeviceTierTest, WhatIsAlikeIsOneMessage) {
  Open();
  std::vector<uint64_t> ids = {0, 2};
  std::vector<std::vector<float>> rows(8, std::vector<float>(2 * kDim));
  for (uint32_t i = 0; i < 8; ++i) {
    auto job = NewJob(DeviceJob::Kind::kPull);
    job->table = i % kTables;
    job->ids = ids.data();
    job->count = 2;
    job->rows = reinterpret_cast<uint8_t*>(rows[i].data());
    tier_->Submit(job);
  }
  ASSERT_EQ(io_.depth(), 1u);
  io_.RunAt(0);
  EXPECT_EQ(io_.depth(), 0u) << "16 ids are one message";
  RunAll();
  EXPECT_EQ(ended_.size(), 8u);
}

// Ids of rows that would not fit into a message: a probe moves none.
TEST_F(DeviceTierTest, AProbeIsBoundedByIdsAlone) {
  Open();
  std::vector<uint64_t> ids(16);
  std::iota(ids.begin(), ids.end(), uint64_t{0});
  auto job = NewJob(DeviceJob::Kind::kProbe);
  job->dim = 1000;
  job->ids = ids.data();
  job->count = 16;
  tier_->Submit(job);
  io_.RunAt(0);
  EXPECT_EQ(io_.depth(), 0u);
  EXPECT_TRUE(job->status.ok()) << job->status;
  EXPECT_EQ(job->missing.size(), 8u);
}

TEST_F(DeviceTierTest, AShardThatHasGoneIsToldNothing) {
  Open();
  uint64_t id = 2;
  float row[kDim] = {7, 7, 7};
  for (int i = 0; i < 2; ++i) {
    auto job = NewJob(DeviceJob::Kind::kPull);
    job->ids = &id;
    job->count = 1;
    job->rows = reinterpret_cast<uint8_t*>(row);
    tier_->Submit(job);
  }
  gate_->Close();
  RunAll();
  EXPECT_TRUE(ended_.empty());
  EXPECT_EQ(row[0], 7.0f) << "its memory was written to";
}

TEST_F(DeviceTierTest, ADeviceThatFailedTellsEveryJobAndRunsNone) {
  device::HostDeviceOptions faults;
  faults.works_before_fault = 8 * kTables;  // a table's rows come in two parts, four each
  Open(faults);
  ASSERT_FALSE(tier_->failed());
  uint64_t id = 2;
  float row[kDim];
  for (int i = 0; i < 3; ++i) {
    auto job = NewJob(DeviceJob::Kind::kPull);
    job->table = static_cast<uint32_t>(i);
    job->ids = &id;
    job->count = 1;
    job->rows = reinterpret_cast<uint8_t*>(row);
    tier_->Submit(job);
    RunAll();
    ASSERT_EQ(ended_.size(), static_cast<size_t>(i) + 1);
    EXPECT_TRUE(IsDeviceLost(job->status)) << job->status;
  }
  EXPECT_TRUE(tier_->failed());
  EXPECT_NE(tier_->error().message().find("started anew"), absl::string_view::npos);
}

TEST(DeviceTierOpenTest, MemoryThatIsShortIsToldByName) {
  device::HostDeviceOptions small;
  small.bytes_max = 8 << 20;
  auto tier = DeviceTier::Open(std::make_unique<device::HostDevice>(small), 64 << 20, 1 << 20);
  ASSERT_FALSE(tier.ok());
  EXPECT_TRUE(absl::IsResourceExhausted(tier.status()));
  EXPECT_NE(tier.status().message().find("--device-bytes"), absl::string_view::npos);
  // Nine tenths of what is free.
  tier = DeviceTier::Open(std::make_unique<device::HostDevice>(small), 0, 1 << 20);
  ASSERT_TRUE(tier.ok()) << tier.status();
  EXPECT_EQ((*tier)->bytes_limit(), (8u << 20) / 10 * 9);
  EXPECT_GT((*tier)->slab_bytes(), 0u);
  EXPECT_EQ((*tier)->bytes(), (*tier)->bytes_limit() - (*tier)->slab_bytes());
}

}  // namespace
}  // namespace hotbed
