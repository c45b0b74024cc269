#include "serving/rows/served_rows.h"

#include <gtest/gtest.h>

#include <atomic>
#include <map>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/random.h"
#include "tests/common/sanitized.h"
#include "tests/common/test_seed.h"

namespace hotbed {
namespace served_rows_test {

constexpr uint64_t kPlenty = 1ull << 40;

std::vector<float> RowOf(uint32_t dim, float value) { return std::vector<float>(dim, value); }

float FirstOf(const ServedRows& rows, const uint8_t* row) {
  std::vector<float> read(rows.coder().dim());
  rows.coder().Decode(row, read.data());
  return read[0];
}

void Put(ServedRows* rows, uint64_t id, float value) {
  bool finite = false;
  ASSERT_TRUE(rows->Put(id, RowOf(rows->coder().dim(), value).data(), &finite).ok());
  ASSERT_TRUE(finite);
}

TEST(ServedRowsTest, TheTwinIsAMap) {
  const TestSeed seed(821);
  Random random(seed.value());
  ServedMemory memory(kPlenty);
  {
    ServedRows rows(RowCoder(RowFormatKind::kFp32, 3), &memory);
    std::map<uint64_t, float> twin;
    for (int step = 0; step < 60000; ++step) {
      // Few ids at first, so that they are deleted and come back; and the ends of their range.
      const uint64_t id = random.OneIn(100) ? ~random.Uniform(3) : random.Uniform(1 + step / 3);
      const uint64_t kind = random.Uniform(10);
      if (kind < 7) {
        const auto value = static_cast<float>(step);
        Put(&rows, id, value);
        twin[id] = value;
      } else if (kind < 9) {
        ASSERT_EQ(rows.Delete(id), twin.erase(id) == 1);
      } else {
        const ServedRows::Reader reader(rows);
        const uint8_t* const found = reader.Find(id);
        ASSERT_EQ(found != nullptr, twin.contains(id));
        if (found != nullptr) {
          ASSERT_EQ(FirstOf(rows, found), twin[id]);
        }
      }
      if (random.OneIn(64)) rows.Reclaim();
    }
    ASSERT_EQ(rows.rows(), twin.size());
    for (const auto& [id, value] : twin) {
      const ServedRows::Reader reader(rows);
      ASSERT_NE(reader.Find(id), nullptr);
      ASSERT_EQ(FirstOf(rows, reader.Find(id)), value);
    }
    EXPECT_EQ(rows.DeleteUnmarked(), 0u);
    // Odd ones go, but for those that are put again.
    rows.Unmark([](uint64_t id) { return id % 2 == 1; });
    for (auto& [id, value] : twin) {
      if (id % 6 == 3) Put(&rows, id, value += 1);
    }
    const uint64_t gone = std::erase_if(
        twin, [](const auto& row) { return row.first % 2 == 1 && row.first % 6 != 3; });
    EXPECT_EQ(rows.DeleteUnmarked(), gone);
    EXPECT_EQ(rows.rows(), twin.size());
    for (const auto& [id, value] : twin) {
      const ServedRows::Reader reader(rows);
      ASSERT_NE(reader.Find(id), nullptr);
      ASSERT_EQ(FirstOf(rows, reader.Find(id)), value);
    }
    EXPECT_EQ(memory.used(), rows.bytes());
  }
  EXPECT_EQ(memory.used(), 0u);
}

TEST(ServedRowsTest, AFullBudgetIsToldAndRowsStay) {
  ServedMemory memory(1 << 20);
  ServedRows rows(RowCoder(RowFormatKind::kFp32, 64), &memory);
  bool finite = false;
  absl::Status put;
  uint64_t id = 0;
  for (; put.ok(); ++id) put = rows.Put(id, RowOf(64, 1).data(), &finite);
  EXPECT_EQ(put.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_NE(put.message().find("1048576"), put.message().npos) << put;
  EXPECT_LE(memory.used(), memory.bytes_max());
  EXPECT_EQ(rows.rows(), id - 1);
  const ServedRows::Reader reader(rows);
  for (uint64_t there = 0; there < id - 1; ++there) ASSERT_NE(reader.Find(there), nullptr);
  EXPECT_EQ(reader.Find(id - 1), nullptr);
}

TEST(ServedRowsTest, ARowOfDim64InInt8TakesThreeTenthsOfFp32) {
  constexpr uint64_t kRows = kSanitized ? 30'000 : 300'000;
  const auto bytes_of = [&](RowFormatKind kind) {
    ServedMemory memory(kPlenty);
    ServedRows rows(RowCoder(kind, 64), &memory);
    for (uint64_t id = 0; id < kRows; ++id) {
      Put(&rows, id, 1);
      if (id % 1000 == 0) rows.Reclaim();
    }
    rows.Reclaim();
    return static_cast<double>(rows.bytes()) / kRows;
  };
  const double fp32 = bytes_of(RowFormatKind::kFp32);
  const double int8 = bytes_of(RowFormatKind::kTbeInt8);
  const double int4 = bytes_of(RowFormatKind::kTbeInt4);
  RecordProperty("bytes per row", absl::StrCat(fp32, " fp32, ", int8, " int8, ", int4, " int4"));
  if (!kSanitized) {
    EXPECT_LE(int8, 0.30 * fp32) << int8 << " of " << fp32;
    EXPECT_LE(int4, 0.19 * fp32) << int4 << " of " << fp32;
  }
}

// Every element of a row has the number of its update, so that a torn row shows.
TEST(ServedRowsTest, ReadersSeeWholeRowsWhileTheyChange) {
  const TestSeed seed(822);
  constexpr uint32_t kDim = 40;
  constexpr uint64_t kIds = 300;
  const int steps = kSanitized ? 20'000 : 300'000;
  ServedMemory memory(kPlenty);
  ServedRows rows(RowCoder(RowFormatKind::kFp32, kDim), &memory);
  for (uint64_t id = 0; id < kIds / 2; ++id) Put(&rows, id, 0);
  std::atomic<bool> ends{false};
  std::atomic<uint64_t> seen{0};
  std::vector<std::thread> readers;
  for (int r = 0; r < 3; ++r) {
    readers.emplace_back([&, r] {
      Random random(seed.value() + static_cast<uint64_t>(r) + 1);
      std::vector<float> row(kDim), last(kIds, 0);
      while (!ends.load()) {
        const ServedRows::Reader reader(rows);
        for (int i = 0; i < 20; ++i) {
          const uint64_t id = random.Uniform(kIds);
          const uint8_t* const found = reader.Find(id);
          // The first ids are never deleted.
          ASSERT_TRUE(found != nullptr || id >= 50);
          if (found == nullptr) continue;
          rows.coder().Decode(found, row.data());
          for (const float value : row) ASSERT_EQ(value, row[0]) << "a torn row";
          ASSERT_GE(row[0], last[id]) << "an earlier row came back";
          last[id] = row[0];
          seen.fetch_add(1, std::memory_order_relaxed);
        }
      }
    });
  }
  Random random(seed.value());
  for (int step = 1; step <= steps || seen.load() < 1000; ++step) {
    const uint64_t id = random.Uniform(kIds);
    if (id >= 50 && random.OneIn(3)) {
      rows.Delete(id);
    } else {
      Put(&rows, id, static_cast<float>(step));
    }
    if (step % 16 == 0) rows.Reclaim();
  }
  ends.store(true);
  for (std::thread& reader : readers) reader.join();
  // Old rows were used again: all of them would take twice as much. A reader without a processor
  // holds up those of its time.
  EXPECT_LT(rows.bytes(), uint64_t{rows.coder().row_bytes()} * static_cast<uint64_t>(steps) / 2);
}

}  // namespace served_rows_test
}  // namespace hotbed
