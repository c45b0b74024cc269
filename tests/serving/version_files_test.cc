#include "serving/version_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "checkpoint/manifest.h"
#include "checkpoint/rows_file.h"
#include "common/files/file_system.h"
#include "places/directory_place.h"
#include "row_math/position.h"

namespace hotbed {
namespace version_files_test {

using ::testing::HasSubstr;

constexpr uint32_t kDim = 2;
constexpr float kDeleted = -1;

// A checkpoint of a table of two shards, which was cut between the passes of the first one's save.
class VersionFilesTest : public ::testing::Test {
 protected:
  void SetUp() override {
    manifest_.set_format(kCheckpointFormat);
    manifest_.set_name("v1");
    v1::CheckpointTable& table = *manifest_.add_tables();
    v1::TableSpec& spec = *table.mutable_spec();
    spec.set_id(7);
    spec.set_name("clicks");
    spec.set_rows(100);
    spec.set_dim(kDim);
    spec.set_weight_type(v1::WEIGHT_FP32);
    spec.mutable_optimizer()->set_kind(v1::OPTIMIZER_SGD);
    ASSERT_TRUE(place_.MakeFolder(folder_).ok());
  }

  // The table has slices of kDim columns each.
  void Slice(uint32_t slices) {
    manifest_.mutable_tables(0)->mutable_spec()->set_column_slices(slices);
    manifest_.mutable_tables(0)->mutable_spec()->set_dim(slices * kDim);
  }

  // Rows by pass: id to value; kDeleted: the row was deleted.
  void AddShard(uint64_t first, uint64_t limit,
                const std::vector<std::map<uint64_t, float>>& passes, uint32_t slice = 0) {
    v1::CheckpointTable& table = *manifest_.mutable_tables(0);
    v1::CheckpointShard& shard = *table.add_shards();
    shard.set_index(static_cast<uint32_t>(table.shards_size() - 1));
    shard.set_range_first(first);
    shard.set_range_limit(limit);
    shard.set_column_first(slice * kDim);
    shard.set_column_limit((slice + 1) * kDim);
    shard.set_file(absl::StrCat("7-", shard.index(), "-1.rows"));
    const bool hashed = table.spec().hashed();
    const RowsFileHeader header = {
        .hashed = hashed, .weight_bytes = 4 * kDim, .payload_bytes = 4 * kDim + 8};
    auto file = RowsFileWriter::Create(absl::StrCat(folder_, "/", shard.file()), header, &place_);
    ASSERT_TRUE(file.ok()) << file.status();
    for (const auto& pass : passes) {
      std::vector<uint64_t> ids;
      std::vector<uint8_t> payloads;
      std::vector<uint64_t> deleted;
      std::vector<std::pair<uint64_t, float>> rows(pass.begin(), pass.end());
      if (hashed) {
        std::sort(rows.begin(), rows.end(),
                  [](const auto& a, const auto& b) { return Mix64(a.first) < Mix64(b.first); });
      }
      for (const auto& [id, value] : rows) {
        if (value == kDeleted) {
          deleted.push_back(id);
          continue;
        }
        ids.push_back(id);
        const float column = value + 1000 * static_cast<float>(slice);
        const float weights[kDim + 2] = {column, column, 99, 99};  // and state
        const auto* const bytes = reinterpret_cast<const uint8_t*>(weights);
        payloads.insert(payloads.end(), bytes, bytes + sizeof(weights));
      }
      (*file)->BeginPass();
      ASSERT_TRUE((*file)->AddRows(ids, payloads).ok());
      if (deleted.empty()) continue;
      ASSERT_TRUE((*file)->AddDeleted(deleted).ok());
      manifest_.set_format(kDeletesFormat);
    }
    ASSERT_TRUE((*file)->Finish().ok());
    shard.set_bytes((*file)->bytes());
    shard.set_rows((*file)->rows());
    shard.set_deleted((*file)->deleted());
    shard.set_index_crc((*file)->index_crc());
    shard.set_passes(static_cast<uint32_t>(passes.size()));
  }

  absl::Status Read(const v1::TableSpec& spec, const ServedPart& part = {}) {
    rows_.clear();
    reads_ = 0;
    return ReadVersionRows(folder_, spec, part, &place_, [this](const VersionRows& read) {
      const size_t dim = manifest_.tables(0).spec().dim();
      EXPECT_EQ(read.weights.size(), read.ids.size() * dim);
      for (size_t i = 0; i < read.ids.size(); ++i) {
        const float* const row = read.weights.data() + i * dim;
        // All columns of a slice are the same, and each slice has 1000 more than the one before.
        for (size_t c = 0; c < dim; ++c) {
          const size_t slice = c / kDim;
          EXPECT_EQ(row[c], row[0] + 1000 * static_cast<float>(slice)) << read.ids[i];
        }
        rows_[read.ids[i]] = row[0];
      }
      ++reads_;
      in_all_ = read.rows_in_all;
      return end_;
    });
  }

  void TearDown() override { std::filesystem::remove_all(directory_); }

  const std::string directory_ =
      absl::StrCat(::testing::TempDir(), "/version_files_", getpid(), "_", ++number_);
  DirectoryPlace place_{FileSystem::Real()};
  const std::string folder_ = absl::StrCat(directory_, "/v1");
  v1::CheckpointManifest manifest_;
  std::map<uint64_t, float> rows_;
  uint64_t in_all_ = 0;
  size_t reads_ = 0;  // blocks that were told
  absl::Status end_;
  static inline int number_ = 0;
};

TEST_F(VersionFilesTest, LaterPassesAndTheShardsRangesDecide) {
  AddShard(0, 50, {{{1, 10}, {2, 20}, {60, 600}}, {{2, 21}}});
  AddShard(50, 100, {{{60, 601}, {99, 990}}});
  ASSERT_TRUE(WriteManifest(folder_, manifest_, &place_).ok());
  const absl::Status read = Read(manifest_.tables(0).spec());
  ASSERT_TRUE(read.ok()) << read;
  EXPECT_EQ(rows_, (std::map<uint64_t, float>{{1, 10}, {2, 21}, {60, 601}, {99, 990}}));
  EXPECT_EQ(in_all_, 6u);
  // The rows of a part alone: ids 66 to 99 are the last of three.
  ASSERT_TRUE(Read(manifest_.tables(0).spec(), {.part = 2, .parts = 3}).ok());
  EXPECT_EQ(rows_, (std::map<uint64_t, float>{{99, 990}}));
  end_ = absl::CancelledError("enough");
  EXPECT_EQ(Read(manifest_.tables(0).spec()), end_);
}

TEST_F(VersionFilesTest, RowsThatWereDeletedDuringTheSaveAreNotInIt) {
  AddShard(0, 100, {{{1, 10}, {2, 20}, {3, 30}}, {{1, kDeleted}, {2, kDeleted}}, {{2, 22}}});
  ASSERT_TRUE(WriteManifest(folder_, manifest_, &place_).ok());
  const absl::Status read = Read(manifest_.tables(0).spec());
  ASSERT_TRUE(read.ok()) << read;
  EXPECT_EQ(rows_, (std::map<uint64_t, float>{{2, 22}, {3, 30}}));
}

TEST_F(VersionFilesTest, ARowOfColumnSlicesComesWholeOrNotAtAll) {
  Slice(3);
  // Row 1 lacks the second slice, row 2 was deleted in the third, row 4 is in the first slice's
  // second pass alone, and row 5 is not in the first slice.
  AddShard(0, 50, {{{1, 10}, {2, 20}, {3, 30}, {49, 490}}, {{3, 31}, {4, 40}}}, 0);
  AddShard(50, 100, {{{50, 500}, {99, 990}}}, 0);
  AddShard(0, 50, {{{2, 20}, {3, 30}, {4, 40}, {5, 50}, {49, 490}}, {{3, 31}}}, 1);
  AddShard(50, 100, {{{50, 500}, {99, 990}}}, 1);
  AddShard(0, 50, {{{1, 10}, {2, 20}, {3, 31}, {4, 40}, {49, 490}}, {{2, kDeleted}}}, 2);
  AddShard(50, 100, {{{50, 500}, {99, 991}}, {{99, 990}}}, 2);
  ASSERT_TRUE(WriteManifest(folder_, manifest_, &place_).ok());
  const absl::Status read = Read(manifest_.tables(0).spec());
  ASSERT_TRUE(read.ok()) << read;
  EXPECT_EQ(rows_, (std::map<uint64_t, float>{{3, 31}, {4, 40}, {49, 490}, {50, 500}, {99, 990}}));
  EXPECT_EQ(in_all_, 8u);  // a third of the rows of all files
  ASSERT_TRUE(Read(manifest_.tables(0).spec(), {.part = 1, .parts = 2}).ok());
  EXPECT_EQ(rows_, (std::map<uint64_t, float>{{50, 500}, {99, 990}}));
}

// Runs of rows are joined one after another; a later pass has rows of all runs.
TEST_F(VersionFilesTest, ManyRowsOfColumnSlicesAreJoinedInRuns) {
  constexpr uint64_t kRows = 50'000, kOfABlock = 4096;
  Slice(2);
  v1::TableSpec& spec = *manifest_.mutable_tables(0)->mutable_spec();
  for (const bool hashed : {false, true}) {
    manifest_.mutable_tables(0)->clear_shards();
    spec.set_hashed(hashed);
    spec.set_rows(hashed ? 0 : kRows);
    std::vector<uint64_t> ids(kRows);
    std::iota(ids.begin(), ids.end(), 0);
    if (hashed) {
      std::sort(ids.begin(), ids.end(), [](uint64_t a, uint64_t b) { return Mix64(a) < Mix64(b); });
    }
    std::map<uint64_t, float> expected;
    for (uint32_t slice = 0; slice < 2; ++slice) {
      std::vector<std::map<uint64_t, float>> passes(1);  // of a block each
      std::map<uint64_t, float> again;
      for (const uint64_t id : ids) {
        if (id % 7 == slice) continue;  // lacking in this slice
        if (passes.back().size() == kOfABlock) passes.emplace_back();
        const auto value = static_cast<float>(id % 512);
        (id % 1000 == 5 ? again : passes.back())[id] = value;
        if (id % 7 > 1) expected[id] = value;
      }
      passes.push_back(std::move(again));
      AddShard(0, hashed ? 65'536 : kRows, passes, slice);
    }
    ASSERT_TRUE(WriteManifest(folder_, manifest_, &place_).ok());
    const absl::Status read = Read(spec);
    ASSERT_TRUE(read.ok()) << read;
    EXPECT_EQ(rows_, expected);
    EXPECT_GT(reads_, 2u) << "not all at once";
    std::map<uint64_t, float> parts;
    for (uint32_t part = 0; part < 3; ++part) {
      ASSERT_TRUE(Read(spec, {.part = part, .parts = 3}).ok());
      EXPECT_GT(rows_.size(), kRows / 6);
      parts.insert(rows_.begin(), rows_.end());
    }
    EXPECT_EQ(parts, expected);
    std::filesystem::remove_all(folder_);
    ASSERT_TRUE(place_.MakeFolder(folder_).ok());
  }
}

TEST_F(VersionFilesTest, SlicesOfOtherRangesAreRefused) {
  Slice(2);
  AddShard(0, 50, {{{1, 10}}}, 0);
  AddShard(50, 100, {{{60, 600}}}, 0);
  AddShard(0, 40, {{{1, 10}}}, 1);
  AddShard(40, 100, {{{60, 600}}}, 1);
  ASSERT_TRUE(WriteManifest(folder_, manifest_, &place_).ok());
  const absl::Status read = Read(manifest_.tables(0).spec());
  EXPECT_EQ(read.code(), absl::StatusCode::kDataLoss) << read;
  EXPECT_THAT(read.message(), HasSubstr("shard 2 of table clicks is not slice 1 of range 0 of 2"));
  EXPECT_TRUE(rows_.empty());
}

TEST_F(VersionFilesTest, AShardOfAllColumnsIsNoSlice) {
  AddShard(0, 100, {{{1, 10}}});
  manifest_.mutable_tables(0)->mutable_spec()->set_column_slices(2);
  ASSERT_TRUE(WriteManifest(folder_, manifest_, &place_).ok());
  const absl::Status read = Read(manifest_.tables(0).spec());
  EXPECT_EQ(read.code(), absl::StatusCode::kDataLoss) << read;
  EXPECT_THAT(read.message(), HasSubstr("1 shards, which are no ranges of 2 slices"));
}

TEST_F(VersionFilesTest, ASliceThatIsDamagedOrMissingIsToldAndNoRowIsTaken) {
  Slice(2);
  AddShard(0, 100, {{{1, 10}, {2, 20}}}, 0);
  AddShard(0, 100, {{{1, 10}, {2, 20}}}, 1);
  ASSERT_TRUE(WriteManifest(folder_, manifest_, &place_).ok());
  ASSERT_TRUE(Read(manifest_.tables(0).spec()).ok());
  const std::string path = absl::StrCat(folder_, "/", manifest_.tables(0).shards(1).file());
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(80);  // in the block of rows
  file.put('x');
  file.close();
  const absl::Status read = Read(manifest_.tables(0).spec());
  EXPECT_EQ(read.code(), absl::StatusCode::kDataLoss) << read;
  EXPECT_THAT(read.message(), HasSubstr(path));
  EXPECT_TRUE(rows_.empty());
  std::filesystem::remove(path);
  EXPECT_FALSE(Read(manifest_.tables(0).spec()).ok());
  EXPECT_TRUE(rows_.empty());
}

TEST_F(VersionFilesTest, AFolderThatIsNoVersionOfTheTableIsRefused) {
  v1::TableSpec spec = manifest_.tables(0).spec();
  EXPECT_EQ(Read(spec).code(), absl::StatusCode::kNotFound);
  AddShard(0, 100, {{{1, 10}}});
  ASSERT_TRUE(WriteManifest(folder_, manifest_, &place_).ok());
  ASSERT_TRUE(Read(spec).ok());
  spec.set_id(8);  // it was dropped and made again
  EXPECT_THAT(Read(spec).message(), HasSubstr("the served one has number 8"));
  spec.set_name("other");
  EXPECT_EQ(Read(spec).code(), absl::StatusCode::kNotFound);
  manifest_.set_parent("v0");
  manifest_.set_generation(1);
  ASSERT_TRUE(WriteManifest(folder_, manifest_, &place_).ok());
  EXPECT_THAT(Read(manifest_.tables(0).spec()).message(), HasSubstr("needs other files"));
  EXPECT_TRUE(rows_.empty());
}

}  // namespace version_files_test
}  // namespace hotbed
