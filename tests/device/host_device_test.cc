// All cases on the emulated device; on a GPU they are run by gpu_test.cc.
#include "device/host_device.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <memory>
#include <set>

#include "tests/common/test_seed.h"
#include "tests/device/case.h"

namespace hotbed {
namespace device {
namespace host_device_test {

class DeviceCases : public testing::TestWithParam<Case> {};

TEST_P(DeviceCases, AgreeWithTheirTwins) {
  const TestSeed seed(1);
  HostDevice device;
  Findings findings;
  GetParam().run(&device, seed.value(), &findings);
  EXPECT_EQ(findings.count(), 0u) << findings.text();
}

INSTANTIATE_TEST_SUITE_P(HostDevice, DeviceCases, testing::ValuesIn(AllCases()),
                         [](const auto& info) { return info.param.name; });

// The queues in an order of their own: what relies on more than Order() asked for differs.
TEST_P(DeviceCases, AgreeWhateverTheOrderOfTheQueues) {
  const TestSeed seed(2);
  for (uint64_t order = 1; order <= 3; ++order) {
    HostDeviceOptions options;
    options.order_seed = Mix64(seed.value() + order);
    HostDevice device(options);
    Findings findings;
    GetParam().run(&device, seed.value(), &findings);
    EXPECT_EQ(findings.count(), 0u) << "order " << order << ": " << findings.text();
  }
}

// Every memcpy that is to run concurrently with works uses staging memory.
TEST(HostDeviceStaging, MessagesCopyFromAndToStagingMemoryAlone) {
  const TestSeed seed(4);
  for (uint64_t order = 0; order <= 3; ++order) {
    HostDeviceOptions options;
    options.order_seed = order;
    options.staging_only = true;
    HostDevice device(options);
    Findings findings;
    FlightCases()[0].run(&device, seed.value(), &findings);
    EXPECT_EQ(findings.count(), 0u) << "order " << order << ": " << findings.text();
  }
}

struct AlignedBytes {
  explicit AlignedBytes(uint64_t bytes)
      : data(static_cast<uint8_t*>(std::aligned_alloc(kPinUnit, bytes))) {}
  ~AlignedBytes() { std::free(data); }
  AlignedBytes(const AlignedBytes&) = delete;
  uint8_t* const data;
};

// The device's status after a concurrent memcpy of 100 bytes to `host` or from it.
Status AfterACopyOf(uint8_t* host, bool out, HostDevice* device) {
  uint8_t* memory = nullptr;
  Status status = device->Allocate(100, &memory);
  if (!status.ok()) return status;
  out ? device->CopyOutAside(host, memory, 100) : device->CopyInAside(memory, host, 100);
  status = device->Wait();
  device->Free(memory);
  return status;
}

TEST(HostDeviceStaging, ACopyAsideOfOtherMemoryIsSeen) {
  AlignedBytes memory(3 * kPinUnit);
  for (const bool out : {false, true}) {
    for (const uint64_t order : {0, 5}) {
      HostDeviceOptions options;
      options.staging_only = true;
      options.order_seed = order;
      const auto open = [&] {
        auto device = std::make_unique<HostDevice>(options);
        EXPECT_TRUE(device->PinStaging(memory.data, kPinUnit).ok());
        EXPECT_TRUE(device->PinStaging(memory.data + kPinUnit, kPinUnit).ok());
        return device;
      };
      auto device = open();
      EXPECT_TRUE(AfterACopyOf(memory.data + kPinUnit - 100, out, device.get()).ok());
      EXPECT_TRUE(AfterACopyOf(memory.data + kPinUnit, out, device.get()).ok());
      uint8_t* staged = nullptr;
      EXPECT_TRUE(device->AllocateStaging(100, &staged).ok());
      EXPECT_TRUE(AfterACopyOf(staged, out, device.get()).ok());
      device->FreeStaging(staged);
      device->UnpinStaging(memory.data + kPinUnit);
      const Status unpinned = AfterACopyOf(memory.data + kPinUnit, out, device.get());
      EXPECT_EQ(unpinned.code, Code::kFailed);
      EXPECT_NE(unpinned.message.find("PinStaging"), std::string::npos) << unpinned.message;
      EXPECT_FALSE(AfterACopyOf(memory.data + kPinUnit - 99, out, open().get()).ok())
          << "over the border of two pieces";
      EXPECT_FALSE(AfterACopyOf(memory.data + 2 * kPinUnit, out, open().get()).ok());
    }
  }
}

TEST(HostDeviceStaging, PinnedMemoryIsBoundedAndPinnedOnce) {
  AlignedBytes memory(4 * kPinUnit);
  HostDeviceOptions options;
  options.pinned_bytes_max = 2 * kPinUnit;
  HostDevice device(options);
  ASSERT_TRUE(device.PinStaging(memory.data + kPinUnit, 2 * kPinUnit).ok());
  for (const uint64_t at : {0, 1, 2}) {
    const Status twice = device.PinStaging(memory.data + at * kPinUnit, 2 * kPinUnit);
    EXPECT_EQ(twice.code, Code::kTooLarge) << twice.message;
  }
  EXPECT_EQ(device.PinStaging(memory.data + 1, kPinUnit).code, Code::kTooLarge);
  EXPECT_EQ(device.PinStaging(memory.data, 100).code, Code::kTooLarge);
  EXPECT_EQ(device.PinStaging(memory.data, kPinUnit).code, Code::kNoMemory);
  device.UnpinStaging(memory.data + kPinUnit);
  EXPECT_TRUE(device.PinStaging(memory.data, 2 * kPinUnit).ok());
}

// How often a byte that is copied in, added to and copied out is wrong, over many orders.
int WrongBytes(uint64_t seed, bool in_first, bool out_last, bool whole_wait) {
  int wrong = 0;
  for (uint64_t order = 1; order <= 200; ++order) {
    HostDeviceOptions options;
    options.order_seed = Mix64(seed + order);
    HostDevice device(options);
    uint8_t* memory = nullptr;
    EXPECT_TRUE(device.Allocate(2, &memory).ok());
    const uint8_t in = 7;
    uint8_t out = 0;
    device.CopyInAside(memory, &in, 1);
    if (in_first) device.Order(Queue::kWork, Queue::kIn);
    device.CopyWithin(memory + 1, memory, 1);
    if (out_last) device.Order(Queue::kOut, Queue::kWork);
    device.CopyOutAside(&out, memory + 1, 1);
    const Queue waited = whole_wait ? Queue::kOut : Queue::kIn;
    EXPECT_TRUE(device.WaitFor(device.Mark(waited)).ok());
    wrong += out != 7;
    EXPECT_TRUE(device.Wait().ok());
    device.Free(memory);
  }
  return wrong;
}

TEST(HostDeviceOrder, AMissingOrderIsSeenAndNoneIsEnough) {
  const TestSeed seed(3);
  EXPECT_EQ(WrongBytes(seed.value(), true, true, true), 0);
  EXPECT_GT(WrongBytes(seed.value(), false, true, true), 0);
  EXPECT_GT(WrongBytes(seed.value(), true, false, true), 0);
  EXPECT_GT(WrongBytes(seed.value(), true, true, false), 0) << "the wrong queue was waited for";
}

RowsOptions SmallRows() {
  RowsOptions options;
  options.device_bytes = 64ull << 20;
  options.ids_max = 1024;
  options.segments_max = 16;
  options.tables_max = 4;
  options.row_bytes_max = 1 << 20;
  options.move_bytes_max = 1 << 20;
  return options;
}

TEST(DeviceRowsFailures, AFaultIsToldByEveryCallAfterIt) {
  // However far the device gets before it fails.
  std::set<uint64_t> told_at;
  for (uint64_t launches = 0; launches < 14; ++launches) {
    HostDeviceOptions faulty;
    faulty.works_before_fault = launches;
    HostDevice device(faulty);
    std::unique_ptr<DeviceRows> rows;
    ASSERT_TRUE(DeviceRows::Open(&device, SmallRows(), &rows).ok());
    RowShape shape;
    shape.dim = 4;
    uint32_t table = 0;
    ASSERT_TRUE(rows->AddTable(shape, false, 0, 64, &table).ok());
    const uint64_t id = 7;
    const float gradient[4] = {1, 2, 3, 4};
    const auto* const bytes = reinterpret_cast<const uint8_t*>(gradient);
    uint8_t out[16];
    Segment segment;
    segment.table = table;
    const Batch batch = {&segment, 1, &id, 1};
    std::vector<uint32_t> missing;
    std::vector<MovedRow> moved;
    uint32_t slot = 0;
    const auto calls = {
        ProbeNow(&*rows, batch, &missing).ok(),
        rows->Insert({{table, id, nullptr}}, true, &moved).ok(),
        UpdateNow(&*rows, batch, bytes, &missing).ok(),
        PullNow(&*rows, batch, out, nullptr, &missing).ok(),
        rows->Collect(table, &slot, 10, &moved).ok(),
    };
    bool failed = false;
    uint64_t good = 0;
    for (bool ok : calls) {
      EXPECT_FALSE(failed && ok) << "fault at launch " << launches;
      failed = failed || !ok;
      good += ok;
    }
    told_at.insert(good);
    const Status status = device.Wait();
    EXPECT_EQ(status.code == Code::kFailed, failed) << status.message;
  }
  EXPECT_EQ(told_at.size(), 6u) << "each call was the first to fail once, and none at all";
}

// A table of 64 rows of one column, SGD, in buckets.
uint32_t AddColumn(DeviceRows* rows) {
  RowShape shape;
  shape.dim = 1;
  shape.optimizer.kind = OptimizerKind::kSgd;
  uint32_t table = 0;
  EXPECT_TRUE(rows->AddTable(shape, false, 0, 64, &table).ok());
  return table;
}

TEST(DeviceRows, ARowThatIsThereIsNotBroughtInTwice) {
  HostDevice device;
  std::unique_ptr<DeviceRows> rows;
  ASSERT_TRUE(DeviceRows::Open(&device, SmallRows(), &rows).ok());
  const uint32_t table = AddColumn(rows.get());
  const float one = 1.0f, two = 2.0f;
  const auto* const first = reinterpret_cast<const uint8_t*>(&one);
  const auto* const second = reinterpret_cast<const uint8_t*>(&two);
  std::vector<MovedRow> evicted;
  ASSERT_TRUE(rows->Insert({{table, 5, first}, {table, 5, second}}, true, &evicted).ok());
  ASSERT_TRUE(rows->Insert({{table, 5, second}}, true, &evicted).ok());
  EXPECT_EQ(rows->counts().inserted, 1u);
  uint32_t slot = 0;
  std::vector<MovedRow> dirty;
  ASSERT_TRUE(rows->Collect(table, &slot, 100, &dirty).ok());
  ASSERT_EQ(dirty.size(), 1u);
  EXPECT_EQ(dirty[0].stored, std::vector<uint8_t>(first, first + 4));
}

TEST(DeviceRows, AnUpdateAtOnceTellsWhatIsElsewhereAndInsertWhatWasRefused) {
  HostDevice device;
  std::unique_ptr<DeviceRows> rows;
  ASSERT_TRUE(DeviceRows::Open(&device, SmallRows(), &rows).ok());
  const uint32_t table = AddColumn(rows.get());
  std::vector<RowToInsert> many;
  for (uint64_t id = 0; id < 70; ++id) many.push_back({table, id, nullptr});
  std::vector<MovedRow> evicted;
  std::vector<uint32_t> refused;
  ASSERT_TRUE(rows->Insert(many, false, &evicted, &refused).ok());
  EXPECT_EQ(refused, (std::vector<uint32_t>{64, 65, 66, 67, 68, 69})) << "one bucket has 64 slots";
  const std::vector<uint64_t> ids = {3, 69, 5};
  const float gradients[3] = {1, 1, 1};
  Segment segment;
  segment.table = table;
  segment.scalars.learning_rate = 0.5f;
  const Batch batch = {&segment, 1, ids.data(), 3};
  std::vector<uint32_t> missing;
  ASSERT_TRUE(ProbeNow(&*rows, batch, &missing).ok());
  EXPECT_EQ(missing, std::vector<uint32_t>{1});
  missing.clear();
  const auto* const bytes = reinterpret_cast<const uint8_t*>(gradients);
  ASSERT_TRUE(UpdateNow(&*rows, batch, bytes, &missing).ok());
  EXPECT_EQ(missing, std::vector<uint32_t>{1});
  uint32_t slot = 0;
  ASSERT_TRUE(rows->Collect(table, &slot, 100, &evicted).ok());
  EXPECT_EQ(evicted.size(), 2u) << "the others are clean";
}

TEST(DeviceRows, VictimsComeWithTheirBytesCleanOnesToo) {
  HostDevice device;
  std::unique_ptr<DeviceRows> rows;
  ASSERT_TRUE(DeviceRows::Open(&device, SmallRows(), &rows).ok());
  const uint32_t table = AddColumn(rows.get());
  std::vector<float> values(64);
  std::vector<RowToInsert> clean, dirty;
  for (uint64_t id = 0; id < 64; ++id) {
    values[id] = static_cast<float>(id);
    const auto* const stored = reinterpret_cast<const uint8_t*>(&values[id]);
    (id % 2 == 0 ? clean : dirty).push_back({table, id, stored});
  }
  std::vector<MovedRow> evicted;
  ASSERT_TRUE(rows->Insert(clean, false, &evicted).ok());
  ASSERT_TRUE(rows->Insert(dirty, true, &evicted).ok());
  ASSERT_TRUE(evicted.empty());
  std::vector<RowToInsert> others;
  for (uint64_t id = 100; id < 164; ++id) others.push_back({table, id, nullptr});
  ASSERT_TRUE(rows->Insert(others, false, &evicted).ok());
  ASSERT_EQ(evicted.size(), 64u);
  for (const MovedRow& row : evicted) {
    EXPECT_EQ(row.dirty, row.position % 2 == 1);
    const auto* const stored = reinterpret_cast<const uint8_t*>(&values[row.position]);
    EXPECT_EQ(row.stored, std::vector<uint8_t>(stored, stored + 4)) << row.position;
  }
}

TEST(DeviceRowsFailures, MemoryThatIsShortIsRefused) {
  HostDeviceOptions small;
  small.bytes_max = 32ull << 20;
  HostDevice device(small);
  std::unique_ptr<DeviceRows> rows;
  EXPECT_EQ(DeviceRows::Open(&device, SmallRows(), &rows).code, Code::kNoMemory);
  RowsOptions options = SmallRows();
  options.device_bytes = 1 << 20;
  const Status status = DeviceRows::Open(&device, options, &rows);
  EXPECT_EQ(status.code, Code::kNoMemory);
  EXPECT_NE(status.message.find("--device-bytes=1048576"), std::string::npos) << status.message;
  options.device_bytes = 32ull << 20;
  ASSERT_TRUE(DeviceRows::Open(&device, options, &rows).ok());
  RowShape shape;
  shape.dim = 64;
  uint32_t table = 0;
  EXPECT_EQ(rows->AddTable(shape, false, 0, 1 << 20, &table).code, Code::kNoMemory);
  const uint64_t free = rows->free_bytes();
  ASSERT_TRUE(rows->AddTable(shape, false, 0, 1000, &table).ok());
  EXPECT_EQ(rows->slots(table), 1024u);
  EXPECT_EQ(rows->free_bytes(), free - DeviceRows::TableBytes(shape, false, 1000));
  rows->RemoveTable(table);
  EXPECT_EQ(rows->free_bytes(), free);
}

TEST(DeviceRowsFailures, MessagesBeyondALimitAreRefusedByName) {
  HostDevice device;
  std::unique_ptr<DeviceRows> rows;
  ASSERT_TRUE(DeviceRows::Open(&device, SmallRows(), &rows).ok());
  RowShape shape;
  shape.dim = 4;
  uint32_t table = 0;
  ASSERT_TRUE(rows->AddTable(shape, false, 0, 64, &table).ok());
  std::vector<uint32_t> missing;
  std::vector<uint64_t> ids(2000);
  uint8_t out[64];
  Segment segment;
  const auto pull = [&](uint32_t count) {
    return PullNow(&*rows, {&segment, 1, ids.data(), count}, out, nullptr, &missing);
  };
  EXPECT_EQ(pull(2000).code, Code::kTooLarge);
  segment.table = 3;
  EXPECT_EQ(pull(1).code, Code::kUnknown);
  segment.table = table;
  segment.rows_at = 8;
  EXPECT_EQ(pull(1).code, Code::kTooLarge);
  segment.rows_at = 2 << 20;
  EXPECT_EQ(pull(1).code, Code::kTooLarge);
  segment.rows_at = 0;
  for (const RowsOut& part : {RowsOut{0, 17, out}, RowsOut{16, 1, out}, RowsOut{~0ull, 2, out}}) {
    EXPECT_EQ(rows->StartPull(0, {&segment, 1, ids.data(), 1}, {part}, nullptr).code,
              Code::kTooLarge);
  }
  segment.type = RowType::kInt8;
  EXPECT_TRUE(pull(1).ok());
  EXPECT_FALSE(UpdateNow(&*rows, {&segment, 1, ids.data(), 1}, out, &missing).ok())
      << "int8 gradients";
}

}  // namespace host_device_test
}  // namespace device
}  // namespace hotbed
