// The device's executor: jobs of many tables against a map, cut and joined as the limits of a
// message say; what is told when it fails, and what is dropped.
#include "server/tiers/device/device_tier.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <numeric>

#include "common/random.h"
#include "tests/common/number_of.h"
#include "tests/tiers/device_tier_fixture.h"

namespace hotbed {
namespace device_tier_test {

constexpr float kOne[kDim] = {1, 1, 1};
// Until the fixture's rows are there: those of a table come in two parts, of five works each.
constexpr uint64_t kWorksOfRows = 10 * kTables;

// A job and what it must find. Rows with even numbers are there.
struct Asked {
  std::shared_ptr<DeviceJob> job;
  std::vector<uint64_t> ids;
  std::vector<float> rows, want;
  std::vector<uint8_t> flags;
  std::vector<const uint8_t*> gradients;
  std::vector<uint32_t> missing;
  std::vector<uint32_t> lengths;  // of bags

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
    if (job->kind == DeviceJob::Kind::kPooled) DrawBags(random);
  }
  // At most one message's worth of ids: bags are not cut.
  void DrawBags(Random& random) {
    const std::vector<float> of_ids = want;
    job->count = std::min<uint32_t>(job->count, 16);
    job->pooling = random.Uniform(2) == 0 ? RowPooling::kSum : RowPooling::kMax;
    missing.clear();
    want.clear();
    for (uint32_t k = 0; k < job->count;) {
      const auto length = static_cast<uint32_t>(random.Uniform(job->count - k + 1));
      float pooled = 0;
      bool whole = true;
      for (uint32_t i = k; i < k + length; ++i) {
        whole = whole && ids[i] % 2 == 0;
        const float value = of_ids[kDim * i];
        pooled = job->pooling == RowPooling::kSum ? pooled + value
                 : i == k                         ? value
                                                  : std::max(pooled, value);
      }
      if (!whole) missing.push_back(static_cast<uint32_t>(lengths.size()));
      lengths.push_back(length);
      want.insert(want.end(), kDim, pooled);
      k += length;
    }
    if (lengths.size() > 15) return DrawNoBags();
    job->bags = static_cast<uint32_t>(lengths.size());
    job->bag_lengths = lengths.data();
    rows.assign(want.size(), -77.0f);
    job->rows = reinterpret_cast<uint8_t*>(rows.data());
  }
  void DrawNoBags() {
    lengths.clear();
    missing.clear();
    want.clear();
    job->count = 0;
    job->bags = 0;
  }
  void Check() const {
    ASSERT_TRUE(job->status.ok()) << job->status;
    ASSERT_EQ(job->missing, missing);
    for (uint32_t bag = 0; job->kind == DeviceJob::Kind::kPooled && bag < job->bags; ++bag) {
      if (std::count(missing.begin(), missing.end(), bag) > 0) continue;
      ASSERT_EQ(rows[kDim * bag], want[kDim * bag]) << "bag " << bag;
    }
    if (job->kind != DeviceJob::Kind::kPull) return;
    for (size_t i = 0; i < ids.size(); ++i) {
      ASSERT_EQ(flags[i], ids[i] % 2 == 0);
      if (flags[i] == 1) {
        ASSERT_EQ(rows[kDim * i], want[kDim * i]) << "id " << ids[i];
      }
    }
  }
};

// Parameters: how many messages a task has, two of which may be in flight; and whether the queues
// of the device run in a random order.
class DeviceTierOrderTest : public DeviceTierTest,
                            public ::testing::WithParamInterface<std::pair<uint32_t, bool>> {};

// Jobs of a table take effect, and are told, in the order in which they were given.
TEST_P(DeviceTierOrderTest, JobsTakeEffectInTheOrderOfTheirTable) {
  const uint64_t seed = SeedFromEnvironment(3);
  SCOPED_TRACE(Replay(seed));
  Random random(seed);
  device::HostDeviceOptions options;
  if (GetParam().second) options.order_seed = seed + 1;
  Open(options, GetParam().first);
  std::map<std::pair<uint32_t, uint64_t>, float> values;
  for (int round = 0; round < 20; ++round) {
    std::vector<std::unique_ptr<Asked>> all;
    std::map<DeviceJob*, size_t> number_of;
    ended_.clear();
    for (size_t i = 0; i < 40; ++i) {
      all.push_back(std::make_unique<Asked>());
      all[i]->job = NewJob(static_cast<DeviceJob::Kind>(random.Uniform(4)));
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

INSTANTIATE_TEST_SUITE_P(Messages, DeviceTierOrderTest,
                         ::testing::Values(std::make_pair(1u, false), std::make_pair(1u, true),
                                           std::make_pair(5u, true), std::make_pair(64u, false),
                                           std::make_pair(64u, true)),
                         [](const auto& info) {
                           return std::to_string(info.param.first) +
                                  (info.param.second ? "AnyOrder" : "AtOnce");
                         });

// A `done` of another shard closes a shard whose jobs are in flight.
TEST_F(DeviceTierTest, AShardMayGoWhileItsMessageIsUnderWay) {
  Open({}, 64);
  std::vector<uint64_t> ids(16);
  std::iota(ids.begin(), ids.end(), uint64_t{0});
  std::vector<float> rows(2 * 16 * kDim, 7.0f);
  InlineExecutor at_once;
  const auto first = NewJob(DeviceJob::Kind::kPull), second = NewJob(DeviceJob::Kind::kPull);
  const auto gate = std::make_shared<IoGate>();
  for (const auto& job : {first, second}) {
    job->ids = ids.data();
    job->count = 16;  // a message each
    job->rows = reinterpret_cast<uint8_t*>(rows.data() + (job == first ? 0 : 16 * kDim));
    job->executor = &at_once;
  }
  second->table = 1;
  second->gate = gate;
  first->done = [this, gate, first = first.get()] {
    gate->Close();
    ended_.push_back(first);
  };
  tier_->Submit(first);
  tier_->Submit(second);
  RunAll();
  EXPECT_EQ(ended_, std::vector<DeviceJob*>{first.get()});
  EXPECT_EQ(rows[0], 0.0f);
  EXPECT_EQ(rows[16 * kDim], 7.0f) << "its memory was written to";
  EXPECT_TRUE(tier_->HasRoomForPull());
}

TEST_F(DeviceTierTest, BagsOfSeveralTablesAreOneMessage) {
  device::HostDeviceOptions options;
  options.works_before_fault = kWorksOfRows + 2;  // what one pooled message takes
  Open(options);
  const std::vector<uint64_t> ids = {0, 2};
  const uint32_t length = 2;
  std::vector<std::vector<float>> rows(kTables, std::vector<float>(kDim, 7.0f));
  std::vector<std::shared_ptr<DeviceJob>> jobs;  // the tier lets go of what has ended
  for (uint32_t t = 0; t < kTables; ++t) {
    auto job = NewJob(DeviceJob::Kind::kPooled);
    job->table = t;
    job->ids = ids.data();
    job->count = 2;
    job->bag_lengths = &length;
    job->bags = 1;
    job->pooling = RowPooling::kSum;
    job->rows = reinterpret_cast<uint8_t*>(rows[t].data());
    jobs.push_back(job);
    tier_->Submit(job);
  }
  RunAll();
  ASSERT_EQ(ended_.size(), kTables);
  for (const auto& job : jobs) EXPECT_TRUE(job->status.ok()) << job->status;
  for (const auto& row : rows) EXPECT_EQ(row, std::vector<float>(kDim, 0.0f));
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
  faults.works_before_fault = kWorksOfRows;
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
  EXPECT_NE(tier_->error().message().find("started again"), absl::string_view::npos);
}

TEST(DeviceTierOpenTest, MemoryThatIsShortIsToldByName) {
  device::HostDeviceOptions small;
  small.bytes_max = 10 << 20;
  auto tier = DeviceTier::Open(std::make_unique<device::HostDevice>(small), 64 << 20, 1 << 20);
  ASSERT_FALSE(tier.ok());
  EXPECT_TRUE(absl::IsResourceExhausted(tier.status()));
  EXPECT_NE(tier.status().message().find("--device-bytes"), absl::string_view::npos);
  // Nine tenths of what is free.
  tier = DeviceTier::Open(std::make_unique<device::HostDevice>(small), 0, 1 << 20);
  ASSERT_TRUE(tier.ok()) << tier.status();
  EXPECT_EQ((*tier)->bytes_limit(), (10u << 20) / 10 * 9);
  EXPECT_GT((*tier)->slab_bytes(), 0u);
  EXPECT_EQ(NumberOf(**tier, "device_bytes"), (*tier)->bytes_limit() - (*tier)->slab_bytes());
}

}  // namespace device_tier_test
}  // namespace hotbed
