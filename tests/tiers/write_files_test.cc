// Write-back of many rows: they are gathered, and go to the disk as files of their own.
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <csignal>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <system_error>
#include <vector>

#include "absl/status/status.h"
#include "tests/common/number_of.h"
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
    for (uint64_t id = first; id < spec_.rows; id += step) ids.push_back(id);
    const std::vector<std::vector<float>> gradients(
        ids.size(), std::vector<float>(spec_.dim, 0.01f * static_cast<float>(++lsn_)));
    ASSERT_TRUE(ApplyNow(ids, gradients, lsn_).ok());
    store_->SetAppliedLsn(lsn_);
  }
  std::vector<float> Rows() {
    std::vector<uint64_t> ids(spec_.rows);
    for (uint64_t id = 0; id < ids.size(); ++id) ids[id] = id;
    std::vector<float> rows;
    std::vector<uint8_t> flags;
    EXPECT_TRUE(PullNow(ids, &rows, &flags).ok());
    return rows;
  }
  uint64_t MemtableBytes() { return host_->spill_store()->GetUsage().memtable_bytes; }
  // All files, with their sizes.
  std::map<std::string, uint64_t> Files() const {
    std::map<std::string, uint64_t> files;
    std::error_code error;  // of files that are deleted meanwhile
    std::filesystem::recursive_directory_iterator next(dir_, error);
    for (; !error && next != std::filesystem::end(next); next.increment(error)) {
      files[next->path().string()] = next->is_directory(error) ? 0 : next->file_size(error);
    }
    return files;
  }
  // The server is killed: what is on the disk now is all that the next start finds.
  void Kill() {
    const std::string copy = dir_ + "_killed";
    std::error_code error;
    std::map<std::string, uint64_t> before;
    do {  // until no compaction changes the files meanwhile
      before = Files();
      std::filesystem::remove_all(copy);
      std::filesystem::copy(dir_, copy, std::filesystem::copy_options::recursive, error);
    } while (error || Files() != before);
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

// A file that spans all rows would be compacted with all of them.
TEST_F(WriteFilesTest, RowsThinlyAmongOthersGoThroughTheMemtable) {
  CloseStore();
  host_ = nullptr;
  spec_.rows = 4 * kRows;
  options_.memtable_bytes = 64 << 20;
  OpenStore();
  Update(0, 1);
  ASSERT_TRUE(WriteBackNow(lsn_, "").ok());
  ASSERT_TRUE(host_->Flush().ok());
  EXPECT_LT(MemtableBytes(), 1u << 20);
  Update(1, 5);  // 9.8 MiB of 49
  const std::vector<float> rows = Rows();
  ASSERT_TRUE(WriteBackNow(lsn_, "").ok());
  EXPECT_GT(MemtableBytes(), 8u << 20);
  ASSERT_TRUE(host_->Flush().ok());
  Kill();
  EXPECT_TRUE(Rows() == rows);
}

// The disk has no room for the file: its rows go through the memtable, and the store is well.
TEST_F(WriteFilesTest, AFileThatFindsNoRoomGoesThroughTheMemtable) {
  CloseStore();
  host_ = nullptr;
  options_.memtable_bytes = 64 << 20;  // it is not flushed while the disk is full
  OpenStore();
  Update(0, 1);
  const std::vector<float> rows = Rows();
  const auto before = signal(SIGXFSZ, SIG_IGN);
  rlimit limit{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &limit), 0);
  const rlimit small{2 << 20, limit.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  const absl::Status written = WriteBackNow(lsn_, "written");
  const std::string error = host_->GetHealth().background_error;
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
  signal(SIGXFSZ, before);
  EXPECT_TRUE(written.ok()) << written;
  EXPECT_EQ(error, "");
  EXPECT_GT(MemtableBytes(), kRows * 4096);
  EXPECT_EQ(store_->Stats().rows_dirty, 0u);
  Update(0, 1);
  const std::vector<float> later = Rows();
  ASSERT_TRUE(WriteBackNow(lsn_, "later").ok());
  EXPECT_LT(MemtableBytes(), 1u << 20) << "with room it is a file again";
  ASSERT_TRUE(host_->Flush().ok());
  Kill();
  EXPECT_TRUE(Rows() == later);
  EXPECT_FALSE(later == rows);
}

TEST_F(WriteFilesTest, ShardsTogetherGatherInHalfOfTheBudget) {
  Update(0, 1);
  const ShardRange range = {0, kRows, 0, spec_.dim};
  std::unique_ptr<TieredStore> first = std::move(store_);
  const uint32_t id = spec_.id;
  spec_.id = 8;
  store_ = OpenShard(3, range);
  Update(0, 1);
  std::unique_ptr<TieredStore> second = std::move(store_);
  const uint64_t without = NumberOf(*host_, "hot_bytes");
  int finished = 0;
  for (TieredStore* const store : {first.get(), second.get()}) {
    store->WriteBackAll(lsn_, "", [&](absl::Status status) {
      EXPECT_TRUE(status.ok()) << status;
      ++finished;
    });
  }
  while (executor_.RunOne()) {
  }
  EXPECT_GT(NumberOf(*host_, "hot_bytes") - without, 8u << 20) << "more than without gathering";
  EXPECT_LE(NumberOf(*host_, "hot_bytes") - without, (16u << 20) + (2u << 20));
  RunAll();
  EXPECT_EQ(finished, 2);
  EXPECT_EQ(NumberOf(*host_, "hot_bytes"), without);
  first = nullptr;
  second = nullptr;
  spec_.id = id;
}

TEST_F(WriteFilesTest, AFullDiskIsToldAndLosesNoRow) {
  CloseStore();
  host_ = nullptr;
  options_.spill_bytes_max = 4 << 20;
  OpenStore();
  absl::Status status;
  // RocksDB notices only after a flush that it has exceeded the limit, and then tries to go on.
  for (int round = 0; status.ok() && round < 10; ++round) {
    Update(0, 1);
    status = WriteBackNow(lsn_, "");
    if (status.ok()) status = host_->Flush();
  }
  const std::vector<float> rows = Rows();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
  EXPECT_TRUE(Rows() == rows);
}

}  // namespace write_files_test
}  // namespace hotbed
