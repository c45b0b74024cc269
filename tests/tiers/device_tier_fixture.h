// A device tier whose executor and I/O queue the test runs by hand. Of its tables' rows those with
// even numbers are there.
#ifndef HOTBED_TESTS_TIERS_DEVICE_TIER_FIXTURE_H_
#define HOTBED_TESTS_TIERS_DEVICE_TIER_FIXTURE_H_

#include <gtest/gtest.h>

#include <memory>
#include <utility>
#include <vector>

#include "server/tiers/device/device_tier.h"
#include "tests/tiers/emulated_device.h"
#include "tests/tiers/manual_io_queue.h"
#include "tests/tiers/store_fixture.h"

namespace hotbed {

constexpr uint32_t kDim = 3;
constexpr uint32_t kTables = 4;
constexpr uint32_t kRows = 64;

class DeviceTierTest : public ::testing::Test {
 protected:
  void Open(device::HostDeviceOptions faults = {}, uint32_t messages_of_task = 1) {
    auto tier = EmulatedDevice(limits_, 1 << 20, [faults] { return faults; })();
    ASSERT_TRUE(tier.ok()) << tier.status();
    tier_ = *std::move(tier);
    tier_->RunOn(&io_, messages_of_task);
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
      if (status.ok()) status = rows->Insert(inserted, false, &evicted);
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

  device::RowsOptions limits_ = SmallMessages(16);
  uint8_t zeros_[4 * kDim] = {};
  ManualIoQueue io_;
  ManualExecutor executor_;
  std::shared_ptr<IoGate> gate_ = std::make_shared<IoGate>();
  std::unique_ptr<DeviceTier> tier_;
  std::vector<DeviceJob*> ended_;
};

}  // namespace hotbed

#endif  // HOTBED_TESTS_TIERS_DEVICE_TIER_FIXTURE_H_
