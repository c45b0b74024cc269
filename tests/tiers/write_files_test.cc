// Write-back of many rows: they are gathered, and go to the disk as files of their own.
#include <gtest/gtest.h>

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "tests/tiers/store_fixture.h"

namespace hotbed {
namespace write_files_test {

constexpr uint64_t kRows = 3000;  // of 4 KiB and more: 12 MiB

class WriteFilesTest : public StoreFixture {
 protected:
  WriteFilesTest() {
    spec_.rows = kRows;
    spec_.dim = 1024;
    spec_.optimizer.kind = OptimizerKind::kSgd;
    options_.hot_bytes = 1ull << 30;  // so that 16 MiB may be gathered
    OpenStore();
  }
  // `step`: every so manyth row.
  void Update(uint64_t first, uint64_t step) {
    std::vector<uint64_t> ids;
    for (uint64_t id = first; id < kRows; id += step) ids.push_back(id);
    const std::vector<std::vector<float>> gradients(
        ids.size(), std::vector<float>(spec_.dim, 0.01f * static_cast<float>(++lsn_)));
    ASSERT_TRUE(ApplyNow(ids, gradients, lsn_).ok());
    store_->SetAppliedLsn(lsn_);
  }
  std::vector<float> Rows() {
    std::vector<uint64_t> ids(kRows);
    for (uint64_t id = 0; id < kRows; ++id) ids[id] = id;
    std::vector<float> rows;
    std::vector<uint8_t> flags;
    EXPECT_TRUE(PullNow(ids, &rows, &flags).ok());
    return rows;
  }
  uint64_t MemtableBytes() { return host_->spill_store()->GetUsage().memtable_bytes; }
  // The server is killed: what is on the disk now is all that the next start finds.
  void Kill() {
    const std::string copy = dir_ + "_killed";
    std::filesystem::remove_all(copy);
    std::filesystem::copy(dir_, copy, std::filesystem::copy_options::recursive);
    CloseStore();
    host_ = nullptr;
    std::filesystem::remove_all(dir_);
    std::filesystem::rename(copy, dir_);
    OpenStore();
  }

  Lsn lsn_ = 0;
};

TEST_F(WriteFilesTest, NoRowPassesThroughTheMemtable) {
  Update(0, 1);
  const std::vector<float> rows = Rows();
  ASSERT_TRUE(WriteBackNow(lsn_, "written").ok());
  EXPECT_EQ(store_->Stats().rows_dirty, 0u);
  EXPECT_EQ(store_->Stats().writebacks, kRows);
  EXPECT_LT(MemtableBytes(), 1u << 20);
  Kill();
  EXPECT_EQ(store_->meta(), "") << "it was in the memtable";
  EXPECT_GE(store_->highest_lsn(), lsn_) << "a row is ahead of what the shard knows";
  EXPECT_TRUE(Rows() == rows);
}

TEST_F(WriteFilesTest, LaterRowsReplaceEarlierOnes) {
  Update(0, 1);
  ASSERT_TRUE(WriteBackNow(lsn_, "").ok());
  Update(3, 50);  // few: they go through the memtable
  ASSERT_TRUE(WriteBackNow(lsn_, "").ok());
  const Lsn few = lsn_;
  Update(0, 1);
  ASSERT_TRUE(WriteBackNow(lsn_, "").ok());
  Update(7, 50);
  ASSERT_TRUE(WriteBackNow(lsn_, "").ok());
  const std::vector<float> rows = Rows();
  // The journal names all rows of the file.
  auto reader = host_->ReadShard(SpillShard(spec_, range_, {spec_.id, 3}), few);
  ASSERT_TRUE(reader.ok()) << reader.status();
  uint64_t changed = 0;
  for (;;) {
    const auto block = (*reader)->Next(1 << 20);
    ASSERT_TRUE(block.ok()) << block.status();
    if (block->empty()) break;
    ASSERT_TRUE(
        VisitRows(SpillShard(spec_, range_, {spec_.id, 3}), *block, [&](uint64_t, const uint8_t*) {
          ++changed;
        }).ok());
  }
  EXPECT_EQ(changed, kRows);
  reader->reset();
  ASSERT_TRUE(host_->Flush().ok());
  Kill();
  EXPECT_TRUE(Rows() == rows);
}

TEST_F(WriteFilesTest, UpdatesGoOnWhileRowsAreGathered) {
  const uint64_t seed = SeedFromEnvironment(20261128);
  SCOPED_TRACE(Replay(seed));
  Random random(seed);
  Update(0, 1);
  absl::Status written;
  bool finished = false;
  store_->WriteBackAll(lsn_, "first", [&](absl::Status status) {
    written = std::move(status);
    finished = true;
  });
  while (!finished) {
    if (random.OneIn(3)) Update(random.Uniform(100), 300);
    Step(random);
  }
  RunAll();
  ASSERT_TRUE(written.ok()) << written;
  const std::vector<float> rows = Rows();
  ASSERT_TRUE(WriteBackNow(lsn_, "second").ok());
  ASSERT_TRUE(host_->Flush().ok());
  Kill();
  EXPECT_EQ(store_->meta(), "second");
  EXPECT_TRUE(Rows() == rows);
}

TEST_F(WriteFilesTest, AWriteThatFailedIsRepeated) {
  Update(0, 1);
  const std::vector<float> rows = Rows();
  before_write_back_ = absl::UnavailableError("the log cannot be synced");
  EXPECT_FALSE(WriteBackNow(lsn_, "").ok());
  Update(5, 700);
  Update(5, 700);
  before_write_back_ = absl::OkStatus();
  const std::vector<float> later = Rows();
  ASSERT_TRUE(WriteBackNow(lsn_, "").ok());
  ASSERT_TRUE(host_->Flush().ok());
  Kill();
  EXPECT_TRUE(Rows() == later);
  EXPECT_FALSE(later == rows);
}

TEST_F(WriteFilesTest, AFullDiskIsToldAndLosesNoRow) {
  CloseStore();
  host_ = nullptr;
  options_.spill_bytes_max = 4 << 20;
  OpenStore();
  Update(0, 1);
  const std::vector<float> rows = Rows();
  absl::Status status = WriteBackNow(lsn_, "");
  if (status.ok()) status = host_->Flush();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
  EXPECT_FALSE(host_->GetHealth().background_error.empty());
  EXPECT_TRUE(Rows() == rows);
}

}  // namespace write_files_test
}  // namespace hotbed
