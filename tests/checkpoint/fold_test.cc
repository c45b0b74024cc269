#include "checkpoint/fold.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "checkpoint/checkpoint_folder.h"
#include "checkpoint/manifest.h"
#include "checkpoint/prune.h"
#include "checkpoint/rows_file.h"
#include "common/clock.h"
#include "common/tables/table_spec.h"
#include "places/directory_place.h"
#include "proto/convert.h"
#include "row_math/position.h"
#include "tests/common/fault_file_system.h"
#include "tests/common/test_seed.h"

namespace hotbed {
namespace fold_test {

constexpr uint32_t kDim = 2;
constexpr uint64_t kRowBytes = 8;  // two weights, no state
constexpr uint64_t kBoundedRows = 1000;

using Rows = std::map<uint64_t, std::vector<uint8_t>>;  // by position

// Writes random checkpoints, each needing the one before, and keeps what each has as a map.
class Series {
 public:
  Series(std::mt19937_64* random, bool hashed, Place* place)
      : random_(*random), hashed_(hashed), place_(*place), bounds_{0, Limit()} {}

  std::string Add() {
    if (generation_ > 0 && random_() % 2 == 0) Split();
    const std::string name = absl::StrCat("c", generation_);
    const std::string folder = *MakeCheckpointFolder("/c", name, "5", &place_);
    v1::CheckpointManifest manifest;
    manifest.set_format(kCheckpointFormat);
    manifest.set_name(name);
    manifest.set_cluster_id("one");
    manifest.set_begun_unix_ms(1000 + generation_);
    v1::CheckpointTable& table = *manifest.add_tables();
    TableSpec spec;
    spec.name = "user";
    spec.id = 3;
    spec.hashed = hashed_;
    spec.rows = hashed_ ? 0 : kBoundedRows;
    spec.dim = kDim;
    spec.optimizer.kind = OptimizerKind::kSgd;
    *table.mutable_spec() = ToProto(spec);
    bool needs = false;
    for (size_t shard = 0; shard + 1 < bounds_.size(); ++shard) {
      // Now and then a shard does not go on from the one before.
      const bool whole = generation_ == 0 || random_() % 5 == 0;
      needs |= !whole;
      *table.add_shards() = WriteShard(folder, shard, whole);
    }
    if (needs) {
      manifest.set_parent(absl::StrCat("c", generation_ - 1));
      depth_ += 1;
    } else {
      depth_ = 0;
    }
    manifest.set_generation(depth_);
    manifest.set_format(FormatOf(manifest));
    EXPECT_TRUE(WriteManifest(folder, manifest, &place_).ok());
    EXPECT_TRUE(place_.Delete(folder, {kSavingFile}).ok());
    ++generation_;
    return folder;
  }
  const Rows& rows() const { return rows_; }
  uint32_t depth() const { return depth_; }

 private:
  uint64_t Limit() const { return hashed_ ? 65536 : kBoundedRows; }
  void Split() { bounds_.insert(1 + random_() % (Limit() - 1)); }
  uint64_t RandomPosition(const ShardRange& range) {
    // Few of them, so that rows are written again.
    const uint64_t first = range.first_position(hashed_), last = range.last_position(hashed_);
    const uint64_t width = last - first;
    return first + (width < 50 ? random_() % (width + 1) : random_() % 50 * (width / 50));
  }

  v1::CheckpointShard WriteShard(const std::string& folder, size_t index, bool whole) {
    auto bound = bounds_.begin();
    std::advance(bound, index);
    const ShardRange range = {*bound, *std::next(bound), 0, kDim};
    v1::CheckpointShard shard;
    shard.set_index(static_cast<uint32_t>(index));
    shard.set_range_first(range.first);
    shard.set_range_limit(range.limit);
    shard.set_column_limit(kDim);
    shard.set_lsn(100 + generation_);
    shard.set_file(absl::StrCat("3-", index, "-", generation_, ".rows"));
    if (!whole) shard.set_above_lsn(99 + generation_);
    const auto file =
        *RowsFileWriter::Create(absl::StrCat(folder, "/", shard.file()),
                                {hashed_, kRowBytes, kRowBytes, random_() % 2 == 0}, &place_);
    const int passes = 1 + static_cast<int>(random_() % 3);
    for (int pass = 0; pass < passes; ++pass) {
      file->BeginPass();
      for (uint64_t k = random_() % 20; k > 0; --k) Change(RandomPosition(range));
      WritePass(range, pass == 0 && whole, file.get());
    }
    shard.set_passes(passes);
    const std::string sessions = absl::StrCat("sessions ", generation_, " ", index);
    EXPECT_TRUE(file->AddSessions(sessions).ok());
    shard.set_sessions(1);
    EXPECT_TRUE(file->Finish().ok());
    shard.set_bytes(file->bytes());
    shard.set_rows(file->rows());
    shard.set_deleted(file->deleted());
    shard.set_index_crc(file->index_crc());
    return shard;
  }
  void Change(uint64_t position) {
    if (random_() % 4 == 0) {
      if (rows_.erase(position) > 0) gone_.insert(position);
      changed_.erase(position);
      return;
    }
    gone_.erase(position);
    std::vector<uint8_t>& row = rows_[position];
    row.resize(kRowBytes);
    for (uint8_t& byte : row) byte = static_cast<uint8_t>(random_());
    changed_.insert(position);
  }
  void WritePass(const ShardRange& range, bool all, RowsFileWriter* file) {
    std::vector<uint64_t> ids;
    std::vector<uint8_t> payloads;
    const auto flush = [&] {
      EXPECT_TRUE(file->AddRows(ids, payloads).ok());
      ids.clear();
      payloads.clear();
    };
    for (const auto& [position, row] : rows_) {
      if (position < range.first_position(hashed_) || position > range.last_position(hashed_)) {
        continue;
      }
      if (!all && !changed_.contains(position)) continue;
      changed_.erase(position);
      ids.push_back(hashed_ ? Unmix64(position) : position);
      payloads.insert(payloads.end(), row.begin(), row.end());
      if (ids.size() == 7) flush();
    }
    flush();
    for (auto it = gone_.begin(); it != gone_.end();) {
      const bool here = *it >= range.first_position(hashed_) && *it <= range.last_position(hashed_);
      if (here && !all) ids.push_back(hashed_ ? Unmix64(*it) : *it);
      it = here ? gone_.erase(it) : std::next(it);
    }
    EXPECT_TRUE(file->AddDeleted(ids).ok());
  }

  std::mt19937_64& random_;
  const bool hashed_;
  Place& place_;
  std::set<uint64_t> bounds_;
  uint32_t generation_ = 0;
  uint32_t depth_ = 0;
  Rows rows_;
  std::set<uint64_t> changed_;  // since they were written last
  std::set<uint64_t> gone_;     // likewise, deleted
};

// What the files of the one checkpoint have, which must have each row once.
Rows ReadAll(const std::string& folder, bool hashed, Place* place) {
  Rows rows;
  const v1::CheckpointManifest manifest = *ReadManifest(folder, place);
  EXPECT_EQ(manifest.parent(), "");
  for (const v1::CheckpointShard& shard : manifest.tables(0).shards()) {
    const auto file = *RowsFileReader::Open(absl::StrCat(folder, "/", shard.file()), shard.bytes(),
                                            shard.index_crc(), place);
    std::vector<uint64_t> ids;
    std::vector<uint8_t> payloads;
    for (const RowsFileEntry& entry : file->index()) {
      if (entry.kind != RowsFileBlock::kRows) continue;
      EXPECT_TRUE(file->ReadRows(entry, &ids, &payloads).ok());
      for (size_t k = 0; k < ids.size(); ++k) {
        const auto row = payloads.begin() + static_cast<int64_t>(k * kRowBytes);
        const uint64_t position = hashed ? Mix64(ids[k]) : ids[k];
        EXPECT_TRUE(rows.emplace(position, std::vector<uint8_t>(row, row + kRowBytes)).second);
      }
    }
  }
  return rows;
}

TEST(FoldTest, HasTheRowsOfTheWholeSeries) {
  const TestSeed seed(17);
  std::mt19937_64 random(seed.value());
  for (int round = 0; round < 40; ++round) {
    FaultFileSystem files(random());
    DirectoryPlace place(&files);
    const bool hashed = round % 2 == 0;
    Series series(&random, hashed, &place);
    std::string newest;
    for (uint64_t k = 1 + random() % 8; k > 0; --k) newest = series.Add();
    const v1::CheckpointManifest before = *ReadManifest(newest, &place);
    const auto folded = FoldCheckpoint(newest, {}, &place, Clock::Real());
    ASSERT_TRUE(folded.ok()) << folded.status();
    EXPECT_EQ(folded->checkpoints, series.depth() + 1);
    if (series.depth() == 0) {
      EXPECT_EQ(folded->path, newest);
      continue;
    }
    EXPECT_EQ(folded->path, newest + "-folded");
    EXPECT_EQ(ReadAll(folded->path, hashed, &place), series.rows());
    EXPECT_EQ(folded->rows, series.rows().size());
    const auto verified = VerifyCheckpoint(folded->path, &place, [](uint64_t, uint64_t) {});
    ASSERT_TRUE(verified.ok()) << verified.status();
    EXPECT_EQ(verified->checkpoints, 1u);
    // The rest is that of the newest.
    const v1::CheckpointManifest after = *ReadManifest(folded->path, &place);
    EXPECT_EQ(after.begun_unix_ms(), before.begun_unix_ms());
    EXPECT_TRUE(IsFoldOf(after, before));
    EXPECT_FALSE(IsFoldOf(before, before));
    v1::CheckpointManifest other = before;  // of the same name, with other rows
    other.mutable_tables(0)->mutable_shards(0)->set_lsn(before.tables(0).shards(0).lsn() + 1);
    EXPECT_FALSE(IsFoldOf(after, other));
    ASSERT_EQ(after.tables(0).shards_size(), before.tables(0).shards_size());
    for (int k = 0; k < after.tables(0).shards_size(); ++k) {
      const v1::CheckpointShard& shard = after.tables(0).shards(k);
      EXPECT_EQ(shard.lsn(), before.tables(0).shards(k).lsn());
      EXPECT_EQ(shard.range_limit(), before.tables(0).shards(k).range_limit());
      const auto file = *RowsFileReader::Open(absl::StrCat(folded->path, "/", shard.file()),
                                              shard.bytes(), shard.index_crc(), &place);
      EXPECT_EQ(*file->ReadSessions(), absl::StrCat("sessions ", before.name().substr(1), " ", k));
    }
    EXPECT_EQ(*FindCheckpoint("/c", &place), folded->path) << "it is the newest now";
    EXPECT_TRUE(absl::IsAlreadyExists(FoldCheckpoint(newest, {}, &place, Clock::Real()).status()));
    // Only the folded one is needed, and the others do not count as further ones.
    const auto pruned = PruneCheckpoints("/c", {.keep = 1}, &place);
    ASSERT_TRUE(pruned.ok()) << pruned.status();
    EXPECT_THAT(*files.List("/c"), testing::ElementsAre(before.name() + "-folded"));
    EXPECT_EQ(ReadAll(folded->path, hashed, &place), series.rows());
  }
}

TEST(FoldTest, OneThatBreaksOffIsNeverWholeAndHarmsNothing) {
  uint64_t bytes = 0;
  for (uint64_t free = 0; bytes == 0 || free <= bytes + 200; free += bytes == 0 ? 0 : 61) {
    std::mt19937_64 same(7);
    FaultFileSystem files(1);
    DirectoryPlace place(&files);
    Series series(&same, /*hashed=*/false, &place);
    std::string newest = series.Add();
    while (series.depth() < 2) newest = series.Add();
    if (bytes > 0) files.SetFreeBytes(free);
    const auto folded = FoldCheckpoint(newest, {}, &place, Clock::Real());
    if (bytes == 0) {
      ASSERT_TRUE(folded.ok()) << folded.status();
      bytes = folded->bytes + 2000;
      continue;
    }
    files.Crash();
    files.SetFreeBytes(UINT64_MAX);
    const auto listed = ListCheckpoints("/c", &place);
    ASSERT_TRUE(listed.ok());
    for (const CheckpointFolder& folder : *listed) {
      if (folder.whole) {
        EXPECT_TRUE(VerifyCheckpoint(folder.path, &place, [](uint64_t, uint64_t) {}).ok()) << free;
      } else {
        EXPECT_EQ(folder.path, newest + "-folded");
      }
    }
    EXPECT_EQ(folded.ok(), *FindCheckpoint("/c", &place) == newest + "-folded") << free;
  }
}

TEST(FoldTest, StopsWhenAskedAndKeepsToTheRate) {
  std::mt19937_64 random(3);
  FaultFileSystem files(1);
  DirectoryPlace place(&files);
  Series series(&random, /*hashed=*/true, &place);
  std::string newest = series.Add();
  while (series.depth() < 3) newest = series.Add();
  FoldOptions options;
  options.stop = [] { return true; };
  EXPECT_TRUE(absl::IsCancelled(FoldCheckpoint(newest, options, &place, Clock::Real()).status()));
  EXPECT_EQ(*FindCheckpoint("/c", &place), newest);
  EXPECT_FALSE(files.Exists(newest + "-folded")) << "nothing is left";
  ManualClock clock;
  const auto folded = FoldCheckpoint(newest, {.bytes_per_s = 100}, &place, &clock);
  ASSERT_TRUE(folded.ok()) << folded.status();
  const uint64_t row_bytes = folded->rows * (8 + kRowBytes);
  EXPECT_GE(clock.NowNs(), static_cast<int64_t>(row_bytes) * kSecondNs / 100);
}

}  // namespace fold_test
}  // namespace hotbed
