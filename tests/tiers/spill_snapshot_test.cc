// Copies of whole shards from one spill tier into another, in files that the store takes over.
#include "server/tiers/spill/spill_snapshot.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "common/random.h"
#include "tests/common/test_seed.h"

namespace hotbed {
namespace spill_snapshot_test {

constexpr uint64_t kRows = 600;

class SpillSnapshotTest : public ::testing::Test {
 protected:
  SpillSnapshotTest() : random_(seed_.value()) {
    dir_ = ::testing::TempDir() + "/spill_snapshot_" +
           ::testing::UnitTest::GetInstance()->current_test_info()->name();
    std::filesystem::remove_all(dir_);
    spec_.id = 7;
    spec_.rows = 3 * kRows;
    spec_.dim = 5;
    Open();
  }
  ~SpillSnapshotTest() override {
    tier_ = nullptr;
    std::filesystem::remove_all(dir_);
  }
  void Open() {
    tier_ = nullptr;
    KvOptions options;
    options.wal = false;
    options.memtable_bytes = 1 << 20;
    options.block_cache_bytes = 1 << 20;
    auto tier = SpillTier::Open(dir_, options);
    ASSERT_TRUE(tier.ok()) << tier.status();
    tier_ = *std::move(tier);
  }
  // Adjacent shards; number 1 is transferred.
  SpillShard Shard(uint32_t index) const {
    return SpillShard(spec_, {index * kRows, (index + 1) * kRows, 0, spec_.dim}, {spec_.id, index});
  }
  std::string Record(const SpillShard& shard, uint64_t position, Lsn lsn) {
    std::string record(shard.record_bytes(), '\0');
    for (char& c : record) c = static_cast<char>(random_.Uniform(256));
    CompleteRecord(shard, SpillRowKey(shard, position), lsn, /*deleted=*/false,
                   reinterpret_cast<uint8_t*>(record.data()));
    return record;
  }
  std::unique_ptr<ShardRowWriter> Writer(uint64_t file_bytes_min = 1) {
    auto writer = tier_->NewWriter(Shard(1), file_bytes_min);
    EXPECT_TRUE(writer.ok()) << writer.status();
    return *std::move(writer);
  }
  // Rows of `positions`, each with a new record that the twin has too, in blocks of any size.
  absl::Status WritePass(ShardRowWriter* writer, const std::vector<uint64_t>& positions, Lsn lsn) {
    const SpillShard shard = Shard(1);
    for (size_t next = 0; next < positions.size();) {
      RowBlockWriter block(shard.record_bytes());
      const size_t end = std::min(positions.size(), next + 1 + random_.Uniform(100));
      for (; next < end; ++next) {
        twin_[positions[next]] = Record(shard, positions[next], lsn);
        block.Add(positions[next], twin_[positions[next]]);
      }
      if (absl::Status s = writer->Write(block.Finish()); !s.ok()) return s;
    }
    return absl::OkStatus();
  }
  std::vector<uint64_t> Some(uint64_t one_in) {
    std::vector<uint64_t> positions;
    for (uint64_t p = kRows; p < 2 * kRows; ++p) {
      if (random_.OneIn(one_in)) positions.push_back(p);
    }
    return positions;
  }
  // Written as a shard that is open writes.
  void WriteOpen(const SpillShard& shard, uint64_t position, Lsn lsn) {
    std::string record = Record(shard, position, lsn);
    const SpillRows rows{&position, reinterpret_cast<uint8_t*>(record.data()), 1, lsn};
    ASSERT_TRUE(tier_->Write(shard, {&rows, 1}, lsn).ok());
    if (shard.shard.index == 1) twin_[position] = record;
  }
  std::map<uint64_t, std::string> RowsOf(uint32_t index) {
    std::map<uint64_t, std::string> rows;
    auto reader = tier_->Read(Shard(index), 0);
    EXPECT_TRUE(reader.ok()) << reader.status();
    for (;;) {
      auto bytes = (*reader)->Next(10'000);
      EXPECT_TRUE(bytes.ok()) << bytes.status();
      if (!bytes.ok() || bytes->empty()) return rows;
      auto block = RowBlock::Parse(*bytes, Shard(index).record_bytes());
      EXPECT_TRUE(block.ok()) << block.status();
      for (uint32_t row = 0; row < block->rows(); ++row) {
        rows[block->position(row)] = std::string(block->record(row));
      }
    }
  }

  const TestSeed seed_{42};
  Random random_;
  std::string dir_;
  TableSpec spec_;
  std::unique_ptr<SpillTier> tier_;
  std::map<uint64_t, std::string> twin_;
};

// Transfer after transfer, each of some passes, with pushes to the open shard and its neighbours in
// between, restarts, and deletions: the rows are those of a map.
TEST_F(SpillSnapshotTest, IsWhatAMapWouldBe) {
  const SpillShard shard = Shard(1);
  Lsn lsn = 0;
  for (int pass = 0; pass < 12; ++pass) {
    SCOPED_TRACE(::testing::Message() << "pass " << pass);
    ASSERT_TRUE(tier_->Delete(shard).ok());
    twin_.clear();
    ASSERT_TRUE(RowsOf(1).empty());
    {
      const auto writer = Writer(random_.OneIn(2) ? 1 : 1500);
      const int passes = 1 + static_cast<int>(random_.Uniform(4));
      for (int pass = 0; pass < passes; ++pass) {
        ASSERT_TRUE(
            WritePass(writer.get(), Some(pass == 0 ? 1 : 1 + random_.Uniform(9)), ++lsn).ok());
        if (random_.OneIn(2)) WriteOpen(Shard(2 * random_.Uniform(2)), 0, lsn);
      }
      ASSERT_TRUE(writer->Finish("meta").ok());
    }
    if (random_.OneIn(2)) Open();
    EXPECT_EQ(RowsOf(1), twin_);
    EXPECT_EQ(*tier_->ReadMeta(shard), "meta");
    EXPECT_EQ(*tier_->HighestLsn(shard), lsn);
    const uint64_t updates = random_.OneIn(3) ? 0 : random_.Uniform(200);
    for (uint64_t i = 0; i < updates; ++i) WriteOpen(shard, kRows + random_.Uniform(kRows), ++lsn);
    if (random_.OneIn(2)) {
      ASSERT_TRUE(tier_->Flush().ok());
    }
    EXPECT_EQ(RowsOf(1), twin_);
  }
}

TEST_F(SpillSnapshotTest, ACallEndsSoonWhereFewRowsAreWanted) {
  spec_.dim = 8192;  // 18 MiB or more
  const SpillShard shard = Shard(1);
  {
    const auto writer = Writer();
    ASSERT_TRUE(WritePass(writer.get(), Some(1), 1).ok());
    ASSERT_TRUE(WritePass(writer.get(), {2 * kRows - 1}, 2).ok());
    ASSERT_TRUE(writer->Finish("meta").ok());
  }
  auto reader = tier_->Read(shard, /*above=*/1);
  ASSERT_TRUE(reader.ok()) << reader.status();
  std::vector<uint64_t> rows;
  int without = 0;
  for (bool ended = false; !ended;) {
    auto bytes = (*reader)->Next(10'000);
    ASSERT_TRUE(bytes.ok()) << bytes.status();
    ended = bytes->empty();
    if (ended) break;
    auto block = RowBlock::Parse(*bytes, shard.record_bytes());
    ASSERT_TRUE(block.ok()) << block.status();
    without += block->rows() == 0 ? 1 : 0;
    for (uint32_t row = 0; row < block->rows(); ++row) rows.push_back(block->position(row));
  }
  EXPECT_GE(without, 2);
  EXPECT_EQ(rows, std::vector<uint64_t>{2 * kRows - 1});
}

TEST_F(SpillSnapshotTest, NeighboursStayAsTheyAre) {
  for (const uint32_t index : {0u, 2u}) {
    for (uint64_t p = index * kRows; p < (index + 1) * kRows; ++p) WriteOpen(Shard(index), p, 5);
  }
  ASSERT_TRUE(tier_->Flush().ok());
  const auto before = RowsOf(0);
  const auto after = RowsOf(2);
  ASSERT_EQ(before.size(), kRows);
  for (int i = 0; i < 3; ++i) {
    const auto writer = Writer();
    ASSERT_TRUE(WritePass(writer.get(), Some(1), 6).ok());
    ASSERT_TRUE(writer->Finish("meta").ok());
    EXPECT_EQ(RowsOf(1), twin_);
    ASSERT_TRUE(tier_->Delete(Shard(1)).ok());
    EXPECT_TRUE(RowsOf(1).empty());
    EXPECT_EQ(*tier_->ReadMeta(Shard(1)), "");
  }
  Open();
  EXPECT_EQ(RowsOf(0), before);
  EXPECT_EQ(RowsOf(2), after);
}

// The files that a transfer leaves: moves there and back then compact nothing.
TEST_F(SpillSnapshotTest, ADeletedReplicaGivesItsFilesBackAtOnce) {
  spec_.dim = 2000;
  const auto writer = Writer();
  ASSERT_TRUE(WritePass(writer.get(), Some(1), 1).ok());
  ASSERT_TRUE(writer->Finish("meta").ok());
  EXPECT_GT(tier_->GetUsage().disk_bytes, kRows * spec_.dim * 4);
  ASSERT_TRUE(tier_->Delete(Shard(1)).ok());
  EXPECT_LT(tier_->GetUsage().disk_bytes, kRows * spec_.dim / 10);
}

// After a kill, or an abandoned transfer, at any point, the part that the tier has is deleted as
// the catalog says, and no file stays on the disk.
TEST_F(SpillSnapshotTest, AHalfReplicaIsDeletedWhole) {
  spec_.dim = 2000;
  for (const bool killed : {false, true}) {
    SCOPED_TRACE(killed);
    {
      const auto writer = Writer();
      ASSERT_TRUE(WritePass(writer.get(), Some(1), 1).ok());
      ASSERT_TRUE(WritePass(writer.get(), Some(2), 2).ok());
      if (killed) {
        // A kill leaves a file that was not ingested.
        const std::string incoming = dir_ + "/rows/incoming";
        ASSERT_FALSE(std::filesystem::is_empty(incoming));
        std::filesystem::copy(incoming, dir_ + "/kept");
      }
    }
    if (killed) {
      tier_ = nullptr;
      std::filesystem::copy(dir_ + "/kept", dir_ + "/rows/incoming",
                            std::filesystem::copy_options::overwrite_existing);
      Open();
    }
    EXPECT_FALSE(RowsOf(1).empty()) << "the first pass was taken over";
    ASSERT_TRUE(tier_->Delete(Shard(1)).ok());
    ASSERT_TRUE(tier_->Flush().ok());
    EXPECT_TRUE(RowsOf(1).empty());
    std::error_code none;
    const std::filesystem::directory_iterator left(dir_ + "/rows/incoming", none);
    EXPECT_EQ(left, std::filesystem::directory_iterator());
    twin_.clear();
    const auto again = Writer();
    ASSERT_TRUE(WritePass(again.get(), Some(3), 3).ok());
    ASSERT_TRUE(again->Finish("meta").ok());
    EXPECT_EQ(RowsOf(1), twin_);
    ASSERT_TRUE(tier_->Delete(Shard(1)).ok());
  }
}

TEST_F(SpillSnapshotTest, RowsOutOfOrderAreRefused) {
  const SpillShard shard = Shard(1);
  for (const uint64_t second : {kRows + 7, kRows + 6}) {
    RowBlockWriter block(shard.record_bytes());
    block.Add(kRows + 7, Record(shard, kRows + 7, 1));
    block.Add(second, Record(shard, second, 1));
    EXPECT_EQ(Writer()->Write(block.Finish()).code(), absl::StatusCode::kInvalidArgument);
  }
}

}  // namespace spill_snapshot_test
}  // namespace hotbed
