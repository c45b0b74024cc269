// Rows of copies in device memory, over the emulated device: lookups have the bits of a copy that
// has no device, whatever came up, changed, went or failed.
#include "serving/rows/rows_on_device.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <thread>  // NOLINT(build/c++11)
#include <utility>
#include <vector>

#include "common/random.h"
#include "device/host_device.h"
#include "row_math/types.h"
#include "server/tiers/device/device_tier.h"
#include "serving/row_answer.h"
#include "serving/rows/versioned_rows.h"
#include "tests/common/test_seed.h"

namespace hotbed {
namespace rows_on_device_test {

#ifdef HOTBED_PLANTED_UNWATCHED_CHANGES
constexpr bool kIsPlanted = true;
#else
constexpr bool kIsPlanted = false;
#endif

constexpr RowFormatKind kKinds[] = {RowFormatKind::kFp32,    RowFormatKind::kFp16,
                                    RowFormatKind::kBf16,    RowFormatKind::kTbeInt8,
                                    RowFormatKind::kTbeInt4, RowFormatKind::kTbeInt2};
constexpr RowType kTypes[] = {RowType::kFp32, RowType::kFp16, RowType::kBf16, RowType::kInt8};
constexpr v1::ServedPooling kPoolings[] = {v1::SERVED_ROWS, v1::SERVED_SUM, v1::SERVED_MEAN,
                                           v1::SERVED_MAX};

std::shared_ptr<ServedDevice> OpenDevice(uint64_t order_seed, uint64_t works_before_fault = ~0ull) {
  device::HostDeviceOptions emulated;
  emulated.order_seed = order_seed;
  emulated.works_before_fault = works_before_fault;
  emulated.staging_only = true;
  device::RowsOptions options;
  options.device_bytes = 2 << 20;
  options.ids_max = 512;
  options.segments_max = 64;
  options.tables_max = 8;
  options.row_bytes_max = 64 << 10;
  options.move_bytes_max = 16 << 10;
  auto tier = DeviceTier::Open(std::make_unique<device::HostDevice>(emulated), options);
  EXPECT_TRUE(tier.ok()) << tier.status();
  return std::make_shared<ServedDevice>(*std::move(tier));
}

// What a copy has on disk.
class FakeDisk : public RowsBelow {
 public:
  bool needed() const override { return true; }
  absl::Status Read(absl::Span<const uint64_t> ids, const Visit& visit) const override {
    for (size_t at = 0; at < ids.size(); ++at) {
      const auto found = rows_of.find(ids[at]);
      if (found != rows_of.end()) visit(at, ids[at], found->second.data());
    }
    return absl::OkStatus();
  }
  absl::Status Scan(const std::function<bool(uint64_t, const uint8_t*)>&) const override {
    return absl::UnimplementedError("not of lookups");
  }
  bool damaged() const override { return false; }
  uint64_t rows() const override { return rows_of.size(); }
  uint64_t bytes() const override { return 0; }

  std::map<uint64_t, std::vector<uint8_t>> rows_of;
};

// A copy that a test changes as TableReplica does. With `below`, memory has some of its rows.
class Copy {
 public:
  static constexpr uint64_t kIds = 600;
  // Rows of these ids may have elements that are not finite. Bags have others: the bits of a NaN
  // that arithmetic makes are the device's own.
  static constexpr uint64_t kOddIds = 50;

  Copy(RowFormatKind kind, bool below, std::shared_ptr<ServedDevice> device, Random* random)
      : random_(*random),
        coder_(kind, static_cast<uint32_t>(1 + random->Uniform(40))),
        below_(below),
        memory_(64 << 20),
        rows_(coder_, &memory_),
        disk_(std::make_shared<FakeDisk>()),
        on_device_(std::make_shared<RowsOnDevice>(std::move(device), coder_)) {}

  RowsOnDevice* on_device() { return on_device_.get(); }
  RowsView Latest(bool with_device) const {
    RowsView view = rows_.Latest();
    if (below_) view.below = disk_;
    if (with_device) view.device = on_device_;
    return view;
  }

  // Random rows are put and deleted. Lookups in the midst of it are compared, too.
  void Change() {
    std::vector<uint64_t> ids, deleted;
    std::vector<uint8_t> coded;
    for (uint64_t n = random_.Uniform(60); n > 0; --n) {
      const uint64_t id = random_.Uniform(kIds);
      if (random_.OneIn(4)) {
        deleted.push_back(id);
        continue;
      }
      ids.push_back(id);
      std::vector<float> row(coder_.dim());
      for (float& value : row) value = static_cast<float>(random_.Double() - 0.5);
      if (id < kOddIds && random_.OneIn(2)) row[random_.Uniform(row.size())] = INFINITY;
      coded.resize(ids.size() * coder_.row_bytes());
      coder_.Encode(row.data(), coded.data() + (ids.size() - 1) * coder_.row_bytes());
    }
    const auto row_of = [&](size_t i) { return coded.data() + i * coder_.row_bytes(); };
    for (size_t i = 0; i < ids.size(); ++i) {
      disk_->rows_of[ids[i]] = {row_of(i), row_of(i) + coder_.row_bytes()};
    }
    for (const uint64_t id : deleted) disk_->rows_of.erase(id);
    const auto in_memory = [&] {
      CompareBags();
      for (size_t i = 0; i < ids.size(); ++i) {
        if (below_ && rows_.latest().Get(ids[i]) == nullptr) continue;
        EXPECT_TRUE(rows_.PutRow(ids[i], row_of(i)).ok());
      }
      for (const uint64_t id : deleted) rows_.Delete(id);
      rows_.Reclaim();
      return absl::OkStatus();
    };
    EXPECT_TRUE(on_device_->Change(ids, coded.data(), deleted, in_memory).ok());
  }

  // Rows enter memory, and others leave it.
  void MoveInMemory() {
    if (!below_) return;
    for (uint64_t n = random_.Uniform(40); n > 0; --n) {
      const uint64_t id = random_.Uniform(kIds);
      const auto row = disk_->rows_of.find(id);
      if (random_.OneIn(2)) {
        rows_.Delete(id);
      } else if (row != disk_->rows_of.end()) {
        ASSERT_TRUE(rows_.PutRow(id, row->second.data()).ok());
      }
    }
    rows_.Reclaim();
  }

  void BringUp(std::vector<uint64_t> ids) {
    for (uint64_t n = random_.Uniform(100); n > 0; --n) ids.push_back(random_.Uniform(kIds));
    std::sort(ids.begin(), ids.end());
    ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
    std::vector<uint64_t> up;
    std::vector<uint8_t> rows;
    for (const uint64_t id : ids) {
      const auto row = disk_->rows_of.find(id);
      if (row == disk_->rows_of.end()) continue;
      up.push_back(id);
      rows.insert(rows.end(), row->second.begin(), row->second.end());
    }
    on_device_->BringUp(up, rows.data(), rows_in_all);
  }

  void BeginVersion(uint64_t number) {
    rows_.Begin(number);
    std::vector<uint64_t> ids;
    std::vector<float> weights;
    for (uint64_t id = 0; id < kIds; ++id) {
      const auto row = disk_->rows_of.find(id);
      if (row == disk_->rows_of.end() || random_.OneIn(5)) continue;
      ids.push_back(id);
      weights.resize(ids.size() * coder_.dim());
      coder_.Decode(row->second.data(), weights.data() + (ids.size() - 1) * coder_.dim());
      if (id >= kOddIds && random_.OneIn(3)) weights.back() += 1;
    }
    ASSERT_TRUE(rows_.TakeUp(number, ids, weights).ok());
    ASSERT_TRUE(rows_.End(number).ok());
  }
  RowsView Version(uint64_t number, bool with_device) const {
    RowsView view = *rows_.Version(number);
    if (with_device) view.device = on_device_;
    return view;
  }

  void CompareRows() { Compare(Latest(true), Latest(false), v1::SERVED_ROWS); }
  void CompareBags() { Compare(Latest(true), Latest(false), kPoolings[1 + random_.Uniform(3)]); }
  void CompareVersion(uint64_t number) {
    Compare(Version(number, true), Version(number, false), kPoolings[1 + random_.Uniform(3)]);
  }

  uint64_t rows_in_all = kIds;
  uint64_t differences = 0;
  uint64_t from_device = 0;  // rows of answers

 private:
  void Compare(const RowsView& with, const RowsView& without, v1::ServedPooling pooling) {
    std::vector<uint64_t> ids;
    std::vector<uint32_t> offsets;
    std::vector<float> weights;
    // Bags of few ids, so that some are on the device as a whole.
    const uint64_t first = pooling == v1::SERVED_ROWS ? 0 : kOddIds;
    for (int bag = 0; bag < 30; ++bag) {
      offsets.push_back(static_cast<uint32_t>(ids.size()));
      for (uint64_t n = random_.Uniform(4); n > 0; --n) {
        ids.push_back(first + random_.Uniform(kIds - first));
      }
    }
    if (pooling == v1::SERVED_SUM || pooling == v1::SERVED_MEAN) {
      for (size_t i = 0; random_.OneIn(2) && i < ids.size(); ++i) {
        weights.resize(ids.size());
        weights[i] = random_.OneIn(5) ? 0.0f : static_cast<float>(random_.Double() - 0.5);
      }
    }
    const bool pooled = pooling != v1::SERVED_ROWS;
    const ServedBags bags = {
        .pooling = pooling,
        .ids = static_cast<uint32_t>(ids.size()),
        .bags = pooled ? static_cast<uint32_t>(offsets.size()) : 0,
        .offsets = reinterpret_cast<const char*>(offsets.data()),
        .weights = weights.empty() ? nullptr : reinterpret_cast<const char*>(weights.data())};
    const RowType type = kTypes[random_.Uniform(4)];
    const auto answer = [&](const RowsView& view, std::vector<char>* flags, std::string* tiers) {
      std::vector<uint8_t> rows(uint64_t{bags.rows()} * RowWireBytes(type, coder_.dim()));
      flags->resize(ids.size());
      tiers->resize(ids.size());
      EXPECT_TRUE(AnswerRows(view, type, reinterpret_cast<const char*>(ids.data()), bags,
                             rows.data(), flags->data(), tiers->data())
                      .ok());
      EXPECT_TRUE(view.Holds());
      return rows;
    };
    std::vector<char> exists, exists_without;
    std::string tiers, tiers_without;
    const std::vector<uint8_t> rows = answer(with, &exists, &tiers);
    const bool same =
        rows == answer(without, &exists_without, &tiers_without) && exists == exists_without;
    differences += same ? 0 : 1;
    EXPECT_TRUE(same || kIsPlanted)
        << "format " << static_cast<int>(coder_.kind()) << ", dim " << coder_.dim() << ", pooling "
        << pooling << ", type " << static_cast<int>(type);
    for (size_t i = 0; i < ids.size(); ++i) {
      EXPECT_EQ(tiers[i] != 0, exists[i] == 1);
      EXPECT_NE(tiers_without[i], kTierDevice);
      from_device += tiers[i] == kTierDevice ? 1 : 0;
    }
  }

  Random& random_;
  const RowCoder coder_;
  const bool below_;
  ServedMemory memory_;
  VersionedRows rows_;
  const std::shared_ptr<FakeDisk> disk_;
  const std::shared_ptr<RowsOnDevice> on_device_;
};

void RunRandomly(Copy* copy, int rounds, Random* random) {
  for (int round = 0; round < rounds; ++round) {
    copy->Change();
    copy->MoveInMemory();
    copy->BringUp(copy->on_device()->TakeWanted());
    copy->CompareRows();
    copy->CompareBags();
    if (round > rounds * 3 / 4 && random->OneIn(8)) copy->on_device()->GiveUp();
  }
}

// The planted bug takes bags from the device while rows change.
TEST(RowsOnDeviceTest, LookupsHaveTheBitsOfACopyWithoutADevice) {
  const TestSeed seed(2101);
  Random random(seed.value());
  uint64_t differences = 0, pooled_of_device = 0;
  for (const RowFormatKind kind : kKinds) {
    for (const bool below : {false, true}) {
      const std::shared_ptr<ServedDevice> device = OpenDevice(random.Next());
      Copy copy(kind, below, device, &random);
      // The device has room for a part of some copies alone.
      copy.rows_in_all = random.OneIn(2) ? Copy::kIds : 128;
      RunRandomly(&copy, 60, &random);
      differences += copy.differences;
      const bool is_of_use = below || copy.on_device()->pools();
      EXPECT_EQ(copy.from_device > 0, is_of_use) << static_cast<int>(kind) << below;
      EXPECT_EQ(copy.on_device()->hits() > 0, is_of_use);
      if (!below) pooled_of_device += copy.from_device;
    }
  }
  EXPECT_GT(pooled_of_device, 50u);
  EXPECT_EQ(differences > 0, kIsPlanted);
}

TEST(RowsOnDeviceTest, VersionsHaveTheirOwnRows) {
  if (kIsPlanted) return;
  const TestSeed seed(2102);
  Random random(seed.value());
  const std::shared_ptr<ServedDevice> device = OpenDevice(random.Next());
  Copy copy(RowFormatKind::kFp16, false, device, &random);
  for (uint64_t round = 0; round < 80; ++round) {
    if (round % 20 == 10) copy.BeginVersion(round / 20);
    copy.Change();
    copy.BringUp(copy.on_device()->TakeWanted());
    if (round >= 10) copy.CompareVersion(random.Uniform((round - 10) / 20 + 1));
    copy.CompareBags();
  }
  EXPECT_GT(copy.from_device, 50u);
}

TEST(RowsOnDeviceTest, ADeviceThatFailsCostsNoRow) {
  if (kIsPlanted) return;
  const TestSeed seed(2103);
  Random random(seed.value());
  int failed_in_use = 0;
  for (int i = 0; i < 12; ++i) {
    const std::shared_ptr<ServedDevice> device = OpenDevice(random.Next(), random.Uniform(600));
    Copy copy(kKinds[random.Uniform(6)], random.OneIn(2), device, &random);
    RunRandomly(&copy, 60, &random);
    Copy other(RowFormatKind::kFp32, true, device, &random);
    RunRandomly(&other, 20, &random);
    if (!device->tier()->failed()) continue;
    EXPECT_TRUE(other.on_device()->TakeWanted().empty());
    failed_in_use += copy.from_device > 0 ? 1 : 0;
  }
  EXPECT_GT(failed_in_use, 2);
}

std::vector<uint64_t> AllIds() {
  std::vector<uint64_t> ids(Copy::kIds);
  std::iota(ids.begin(), ids.end(), 0);
  return ids;
}

TEST(RowsOnDeviceTest, CopiesShareTheDeviceAndGiveTheirPartBack) {
  if (kIsPlanted) return;
  const TestSeed seed(2104);
  Random random(seed.value());
  const std::shared_ptr<ServedDevice> device = OpenDevice(0);
  const auto taken = [&device] {
    StatusNumbers numbers;
    device->tier()->AddNumbers(&numbers);
    return numbers["device_bytes"];
  };
  const uint64_t empty = taken();
  {
    Copy first(RowFormatKind::kFp32, true, device, &random);
    Copy second(RowFormatKind::kTbeInt4, true, device, &random);
    first.rows_in_all = second.rows_in_all = 1'000'000;
    for (Copy* const copy : {&first, &second}) {
      for (int i = 0; i < 20; ++i) copy->Change();
      copy->BringUp(AllIds());
      EXPECT_GT(copy->on_device()->rows(), 0u);
    }
    EXPECT_GT(taken(), empty);
  }
  Copy third(RowFormatKind::kFp32, true, device, &random);
  for (int i = 0; i < 20; ++i) third.Change();
  third.BringUp(AllIds());  // its job runs behind those that gave memory back
  EXPECT_GT(third.on_device()->rows(), 0u);
}

// Rows of one element each, which is `value`.
std::vector<uint8_t> BytesOf(float value, size_t rows) {
  const std::vector<float> values(rows, value);
  std::vector<uint8_t> bytes(rows * sizeof(float));
  std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

std::optional<RowsOnDevice::PooledBags> PoolEach(const RowsOnDevice& rows,
                                                 const std::vector<uint64_t>& ids) {
  const std::vector<uint32_t> lengths(ids.size(), 1);
  return rows.Pool({.ids = ids, .lengths = lengths});
}

// Memory keeps the old row then.
TEST(RowsOnDeviceTest, NoBagComesFromTheDeviceAfterAChangeThatMemoryRefused) {
  if (kIsPlanted) return;
  RowsOnDevice rows(OpenDevice(0), RowCoder(RowFormatKind::kFp32, 1));
  const std::vector<uint64_t> ids = {7, 8};
  rows.BringUp(ids, BytesOf(1, 2).data(), 2);
  const auto before = PoolEach(rows, ids);
  ASSERT_TRUE(before.has_value());
  EXPECT_EQ(before->rows, std::vector<float>({1, 1}));
  const auto works = [] { return absl::OkStatus(); };
  const auto refuses = [] { return absl::ResourceExhaustedError("memory is used up"); };
  ASSERT_TRUE(rows.Change(ids, BytesOf(2, 2).data(), {}, works).ok());
  const auto changed = PoolEach(rows, ids);
  ASSERT_TRUE(changed.has_value());
  EXPECT_EQ(changed->rows, std::vector<float>({2, 2}));
  EXPECT_TRUE(absl::IsResourceExhausted(rows.Change(ids, BytesOf(3, 2).data(), {}, refuses)));
  EXPECT_FALSE(PoolEach(rows, ids).has_value());
  ASSERT_TRUE(rows.Change(ids, BytesOf(4, 2).data(), {}, works).ok());
  EXPECT_FALSE(PoolEach(rows, ids).has_value());
}

// A device with room is not taken for a full one, whose rows come up at their second miss.
TEST(RowsOnDeviceTest, AnIdThatIsBroughtUpTwiceTakesOneSlot) {
  if (kIsPlanted) return;
  RowsOnDevice rows(OpenDevice(0), RowCoder(RowFormatKind::kFp32, 1));
  rows.BringUp({7, 8, 7}, BytesOf(1, 3).data(), 100);
  EXPECT_EQ(rows.rows(), 2u);
  ASSERT_TRUE(PoolEach(rows, {9}).has_value());
  EXPECT_EQ(rows.TakeWanted(), std::vector<uint64_t>({9}));
}

TEST(RowsOnDeviceTest, RowsThatAreThereAreNotWanted) {
  if (kIsPlanted) return;
  RowsOnDevice rows(OpenDevice(0), RowCoder(RowFormatKind::kFp32, 1));
  rows.BringUp({7, 8}, BytesOf(1, 2).data(), 100);
  const std::vector<uint64_t> ids = {8, 9, 7, 8, 9};
  const std::vector<uint32_t> lengths = {5};
  ASSERT_TRUE(rows.Pool({.ids = ids, .lengths = lengths}).has_value());
  EXPECT_EQ(rows.TakeWanted(), std::vector<uint64_t>({9}));
}

// One writer counts rows up; readers ask for bags and rows in turns.
TEST(RowsOnDeviceTest, NoReaderSeesARowGoBack) {
  if (kIsPlanted) return;
  constexpr uint64_t kRows = 8;
  const std::shared_ptr<ServedDevice> device = OpenDevice(0);
  const RowCoder coder(RowFormatKind::kFp32, 4);
  ServedMemory memory(1 << 20);
  VersionedRows rows(coder, &memory);
  auto on_device = std::make_shared<RowsOnDevice>(device, coder);
  std::vector<uint64_t> ids;
  std::vector<float> values(kRows * 4);
  for (uint64_t id = 0; id < kRows; ++id) ids.push_back(id);
  const auto* const bytes = reinterpret_cast<const uint8_t*>(values.data());
  const auto put = [&] {
    for (uint64_t id = 0; id < kRows; ++id) {
      ASSERT_TRUE(rows.PutRow(id, bytes + id * coder.row_bytes()).ok());
    }
    rows.Reclaim();
  };
  put();
  on_device->BringUp(ids, bytes, kRows);
  std::atomic<bool> ends{false};
  std::atomic<uint64_t> pooled{0};
  const auto read = [&] {
    RowsView view = rows.Latest();
    view.device = on_device;
    float last = 0;
    for (uint64_t n = 0; !ends.load(); ++n) {
      const uint32_t offset = 0;
      const uint64_t id = 0;
      const ServedBags bags = {.pooling = n % 2 == 0 ? v1::SERVED_SUM : v1::SERVED_ROWS,
                               .ids = 1,
                               .bags = n % 2 == 0 ? 1u : 0u,
                               .offsets = reinterpret_cast<const char*>(&offset)};
      float row[4];
      char exists = 0, tier = 0;
      EXPECT_TRUE(AnswerRows(view, RowType::kFp32, reinterpret_cast<const char*>(&id), bags,
                             reinterpret_cast<uint8_t*>(row), &exists, &tier)
                      .ok());
      EXPECT_GE(row[0], last);
      last = row[0];
      if (tier == kTierDevice) pooled.fetch_add(1);
    }
  };
  std::thread first(read), second(read);
  for (uint64_t round = 1; round <= 300; ++round) {
    std::fill(values.begin(), values.end(), static_cast<float>(round));
    const auto in_memory = [&] {
      put();
      return absl::OkStatus();
    };
    EXPECT_TRUE(on_device->Change(ids, bytes, {}, in_memory).ok());
    // Bags come from the device between changes.
    const uint64_t before = pooled.load();
    while (round % 16 == 0 && pooled.load() == before) std::this_thread::yield();
  }
  ends.store(true);
  first.join();
  second.join();
  EXPECT_EQ(on_device->rows(), kRows);
}

}  // namespace rows_on_device_test
}  // namespace hotbed
