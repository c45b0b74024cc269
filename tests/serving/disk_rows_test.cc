#include "serving/rows/disk_rows.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <map>

#include "absl/strings/str_cat.h"
#include "row_math/position.h"
#include "serving/rows/row_coder.h"
#include "serving/rows/row_search.h"

namespace hotbed {
namespace disk_rows_test {

class DiskRowsTest : public ::testing::Test {
 protected:
  std::unique_ptr<DiskRows> Open(const std::string& kind = "k", uint32_t row_bytes = 8) {
    auto rows = DiskRows::Open(directory_, row_bytes, kind);
    EXPECT_TRUE(rows.ok()) << rows.status();
    return rows.ok() ? *std::move(rows) : nullptr;
  }
  static void Put(uint64_t id, uint64_t value, DiskRows* rows) {
    rows->Put(id, reinterpret_cast<const uint8_t*>(&value));
  }
  static std::map<uint64_t, uint64_t> All(const DiskRows& rows) {
    std::map<uint64_t, uint64_t> all;
    uint64_t last = 0;
    EXPECT_TRUE(rows.Scan([&](uint64_t id, const uint8_t* row) {
                      EXPECT_TRUE(all.empty() || id > last) << "ids ascend";
                      last = id;
                      std::memcpy(&all[id], row, sizeof(uint64_t));
                      return true;
                    })
                    .ok());
    EXPECT_EQ(rows.rows(), all.size());
    return all;
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }

  const std::string directory_ =
      absl::StrCat(::testing::TempDir(), "/disk_rows_", getpid(), "_", ++number_);
  static inline int number_ = 0;
};

using Rows = std::map<uint64_t, uint64_t>;

TEST_F(DiskRowsTest, WhatWasCommittedIsThereAfterARestart) {
  {
    const auto rows = Open();
    Put(7, 70, rows.get());
    Put(1ull << 63, 5, rows.get());
    Put(300, 3, rows.get());
    Put(7, 71, rows.get());
    rows->Delete(300);
    rows->Delete(4);
    ASSERT_TRUE(rows->Commit("here").ok());
    EXPECT_EQ(All(*rows), (Rows{{7, 71}, {1ull << 63, 5}}));
    Put(8, 80, rows.get());  // never committed
  }
  auto rows = Open();
  EXPECT_EQ(rows->position(), "here");
  EXPECT_EQ(All(*rows), (Rows{{7, 71}, {1ull << 63, 5}}));
  EXPECT_FALSE(rows->needed());
  std::map<size_t, uint64_t> found;
  const std::vector<uint64_t> ids = {9, 7, 1ull << 63, 7};
  ASSERT_TRUE(
      rows->Read(ids, [&](size_t at, uint64_t id, const uint8_t*) { found[at] = id; }).ok());
  EXPECT_EQ(found, (std::map<size_t, uint64_t>{{1, 7}, {2, 1ull << 63}, {3, 7}}));
  EXPECT_EQ(rows->TakeRead().size(), 3u);
  EXPECT_TRUE(rows->TakeRead().empty());
  // Rows of another kind, or of other lengths, are not taken for these.
  rows = nullptr;
  EXPECT_EQ(Open("other")->rows(), 0u);
  rows = Open("other");
  Put(1, 1, rows.get());
  ASSERT_TRUE(rows->Commit("").ok());
  rows = nullptr;
  EXPECT_EQ(Open("other", 4)->rows(), 0u);
}

TEST_F(DiskRowsTest, RowsThatDidNotComeAgainGo) {
  auto rows = Open();
  for (uint64_t id = 0; id < 10'000; ++id) Put(id, id, rows.get());
  ASSERT_TRUE(rows->Commit("a").ok());
  const absl::StatusOr<uint32_t> age = rows->BeginAge();
  ASSERT_TRUE(age.ok());
  for (const uint64_t id : {5'003, 5'004, 9'999}) Put(id, 2 * id, rows.get());
  ASSERT_TRUE(rows->Commit("b").ok());
  rows = nullptr;  // an age outlives the process
  rows = Open();
  EXPECT_GT(*rows->BeginAge(), *age);
  const auto deleted =
      rows->DeleteOlder([&](uint64_t id) { return id >= 5'000 ? *age : uint32_t{0}; });
  ASSERT_TRUE(deleted.ok());
  EXPECT_EQ(*deleted, 4'997u);
  const Rows all = All(*rows);
  EXPECT_EQ(all.size(), 5'003u);
  EXPECT_EQ(all.at(5'003), 10'006u);
  EXPECT_EQ(all.at(9'999), 19'998u);
}

// Zeros in the place of most rows of each file.
void Damage(const std::string& directory) {
  int files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(directory)) {
    if (entry.path().extension() != ".sst") continue;
    std::fstream file(entry.path(), std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(static_cast<std::streamoff>(entry.file_size() / 8));
    const std::string zeros(entry.file_size() / 2, '\0');
    file.write(zeros.data(), static_cast<std::streamsize>(zeros.size()));
    EXPECT_TRUE(file.good());
    ++files;
  }
  EXPECT_GT(files, 0);
}

TEST_F(DiskRowsTest, DamagedRowsAreToldAndGoWhenTheyAreOpenedAgain) {
  std::shared_ptr<DiskRows> rows = Open();
  std::vector<uint64_t> ids(5'000);
  for (uint64_t id = 0; id < ids.size(); ++id) Put(ids[id] = id, Mix64(id), rows.get());
  ASSERT_TRUE(rows->Commit("a").ok());
  ASSERT_TRUE(rows->Flush().ok());
  rows->SetNeeded();
  Damage(directory_);
  EXPECT_FALSE(rows->damaged()) << "nobody has looked yet";
  EXPECT_TRUE(absl::IsDataLoss(rows->Read(ids, [](size_t, uint64_t, const uint8_t*) {})));
  EXPECT_TRUE(rows->damaged());
  // Other copies are asked for the nearest rows, too.
  ServedMemory memory(1 << 20);
  VersionedRows in_memory(RowCoder(RowFormatKind::kFp32, 2), &memory);
  RowsView view = in_memory.Latest();
  view.below = rows;
  const std::vector<float> vector = {1, 0};
  RowQuery query = {.vectors = vector};
  const auto search = [&] { return RowSearch(view, query).Run([] { return absl::OkStatus(); }); };
  EXPECT_TRUE(absl::IsUnavailable(search())) << search();
  query.only_ids = ids;
  EXPECT_TRUE(absl::IsUnavailable(search())) << search();
  view.below = nullptr;
  rows = nullptr;
  rows = Open();
  EXPECT_EQ(rows->rows(), 0u);
  EXPECT_FALSE(rows->damaged());
}

TEST_F(DiskRowsTest, PassesOverAllRowsEndWhenTheyAreToStop) {
  bool stops = false;
  const auto open = [&] { return DiskRows::Open(directory_, 8, "k", [&] { return stops; }); };
  auto rows = open();
  ASSERT_TRUE(rows.ok());
  for (uint64_t id = 0; id < 5'000; ++id) Put(id, id, rows->get());
  ASSERT_TRUE((*rows)->Commit("a").ok());
  stops = true;
  const auto every = [](uint64_t) { return ~uint32_t{0}; };
  EXPECT_TRUE(absl::IsCancelled((*rows)->DeleteOlder(every).status()));
  (*rows).reset();
  EXPECT_TRUE(absl::IsCancelled(open().status()));
  stops = false;
  rows = open();
  ASSERT_TRUE(rows.ok());
  EXPECT_EQ((*rows)->rows(), 5'000u) << "what it did not look at is not deleted";
  EXPECT_EQ(*(*rows)->DeleteOlder(every), 5'000u);
}

TEST_F(DiskRowsTest, ASearchComparesRowsOfDiskWhereMemoryHasNotAll) {
  const RowCoder coder(RowFormatKind::kFp32, 2);
  ServedMemory memory(1 << 20);
  VersionedRows in_memory(coder, &memory);
  std::shared_ptr<DiskRows> disk = Open();
  for (uint64_t id = 0; id < 3'000; ++id) {
    const float row[2] = {static_cast<float>(id % 1000), 1};
    disk->Put(id, reinterpret_cast<const uint8_t*>(row));
    if (id % 3 == 0) {
      ASSERT_TRUE(in_memory.PutRow(id, reinterpret_cast<const uint8_t*>(row)).ok());
    }
  }
  ASSERT_TRUE(disk->Commit("").ok());
  RowsView view = in_memory.Latest();
  view.below = disk;
  const std::vector<float> vector = {1, 0};
  const auto ids = [&](const RowQuery& query) {
    RowSearch search(view, query);
    EXPECT_TRUE(search.Run([] { return absl::OkStatus(); }).ok());
    std::vector<uint64_t> ids;
    const auto nearest = search.Take();
    for (const ScoredRow& row : nearest[0]) ids.push_back(row.id);
    return ids;
  };
  RowQuery query = {.k = 4, .vectors = vector};
  EXPECT_EQ(ids(query), (std::vector<uint64_t>{999, 1998, 2997, 996}))
      << "it is not needed, so memory has all";
  disk->SetNeeded();
  EXPECT_EQ(ids(query), (std::vector<uint64_t>{999, 1999, 2999, 998}));
  const std::vector<uint64_t> only = {2, 3, 5'000, 1};
  query.only_ids = only;
  EXPECT_EQ(ids(query), (std::vector<uint64_t>{3, 2, 1}));
}

TEST(VersionedRowsPlaceTest, ARowTakesThePlaceOfAnotherWhereMemoryIsUsedUp) {
  const RowCoder coder(RowFormatKind::kFp32, 2);
  ServedMemory memory(1 << 20);
  VersionedRows rows(coder, &memory);
  const float row[2] = {1, 2};
  const auto put = [&](uint64_t id) {
    return rows.PutRow(id, reinterpret_cast<const uint8_t*>(row));
  };
  uint64_t id = 0;
  while (put(id).ok()) ++id;
  const uint64_t before = rows.latest().rows();
  EXPECT_EQ(before, id);
  for (uint64_t more = id; more < id + 100; ++more) {
    if (put(more).ok()) continue;  // its stripe had a place
    std::vector<uint8_t> left;
    ASSERT_TRUE(rows.MakePlaceFor(more, Mix64(more), &left).has_value());
    ASSERT_EQ(left.size(), rows.latest().coder().row_bytes());
    EXPECT_TRUE(put(more).ok()) << more;
    EXPECT_NE(rows.latest().Get(more), nullptr);
  }
  EXPECT_LT(rows.latest().rows(), before + 100);
}

}  // namespace disk_rows_test
}  // namespace hotbed
