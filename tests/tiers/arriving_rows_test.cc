// The memory of rows that come from another server: whose it is, and when it is given back.
#include <gtest/gtest.h>

#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tests/common/number_of.h"
#include "tests/tiers/store_fixture.h"

namespace hotbed {
namespace arriving_rows_test {

constexpr ShardId kShard{7, 3};

uint64_t HotBytes(const TierHost& host) { return NumberOf(host, "hot_bytes"); }

class ArrivingRowsTest : public StoreFixture {
 protected:
  // A table of `rows` rows of 1 KiB, of which those of `wanted` exist, as blocks of a transfer.
  std::vector<std::string> BlocksOf(uint64_t rows, const std::function<bool(uint64_t)>& wanted) {
    spec_.rows = rows;
    spec_.dim = 256;
    OpenStore();
    std::vector<std::vector<float>> gradient(1, std::vector<float>(spec_.dim, 0.5f));
    for (uint64_t id = 0; id < rows; ++id) {
      if (!wanted(id)) continue;
      EXPECT_TRUE(ApplyNow({id}, gradient, ++lsn_).ok());
      store_->SetAppliedLsn(lsn_);
    }
    EXPECT_TRUE(WriteBackNow(lsn_, "sent").ok());
    std::vector<std::string> blocks;
    auto reader = host_->ReadShard(SpillShard(spec_, range_, kShard), /*above=*/0);
    for (;;) {
      auto block = (*reader)->Next(256 << 10);
      EXPECT_TRUE(block.ok()) << block.status();
      if (!block.ok() || block->empty()) break;
      blocks.push_back(*std::move(block));
    }
    reader->reset();
    std::vector<uint64_t> ids(rows);
    for (uint64_t id = 0; id < rows; ++id) ids[id] = id;
    EXPECT_TRUE(PullNow(ids, &rows_, &flags_).ok());
    CloseStore();
    host_ = nullptr;
    std::filesystem::remove_all(dir_);
    return blocks;
  }
  // A server with other options than the sender's gets the blocks.
  std::unique_ptr<ShardRowWriter> Receive(const std::vector<std::string>& blocks) {
    if (host_ == nullptr) OpenHost();
    auto writer = host_->ReceiveShard(spec_, range_, kShard, lsn_);
    EXPECT_TRUE(writer.ok()) << writer.status();
    for (const std::string& block : blocks) EXPECT_TRUE((*writer)->Write(block).ok());
    return *std::move(writer);
  }
  void Open() {
    OpenStore();
    store_->SetAppliedLsn(lsn_);
    store_->BeginReplay();
    EXPECT_TRUE(store_->TakeArrived());
    store_->EndReplay();
  }
  void CheckRows() {
    std::vector<uint64_t> ids(spec_.rows);
    for (uint64_t id = 0; id < spec_.rows; ++id) ids[id] = id;
    std::vector<float> rows;
    std::vector<uint8_t> flags;
    ASSERT_TRUE(PullNow(ids, &rows, &flags).ok());
    EXPECT_TRUE(rows == rows_);
    EXPECT_TRUE(flags == flags_);
  }

  Lsn lsn_ = 0;
  std::vector<float> rows_;  // as the sender answers them
  std::vector<uint8_t> flags_;
};

TEST_F(ArrivingRowsTest, NothingIsReadBack) {
  const auto blocks = BlocksOf(3000, [](uint64_t id) { return id % 3 != 0; });
  auto writer = Receive(blocks);
  for (const std::string& block : blocks) ASSERT_TRUE(writer->Write(block).ok());  // a second pass
  ASSERT_TRUE(writer->Finish("moved").ok());
  writer.reset();
  Open();
  EXPECT_EQ(store_->Stats().rows_resident, 2000u);
  EXPECT_EQ(store_->Stats().rows_dirty, 0u);
  CheckRows();
  EXPECT_EQ(store_->Stats().misses, 0u) << "a row that did not come exists nowhere";
}

TEST_F(ArrivingRowsTest, MemoryOfATransferThatEndsIsGivenBack) {
  const auto blocks = BlocksOf(1000, [](uint64_t) { return true; });
  OpenHost();
  const uint64_t before = HotBytes(*host_);
  auto writer = Receive(blocks);
  EXPECT_GE(HotBytes(*host_) - before, 1000u * 1024) << "the memory is counted as it is taken";
  writer.reset();  // given up halfway
  EXPECT_EQ(HotBytes(*host_), before);
  ASSERT_TRUE(Receive(blocks)->Finish("moved").ok());  // but the shard does not open
  EXPECT_GE(HotBytes(*host_) - before, 1000u * 1024);
  ASSERT_TRUE(host_->DeleteShard(SpillShard(spec_, range_, kShard)).ok());
  EXPECT_EQ(HotBytes(*host_), before);
  ASSERT_TRUE(Receive(blocks)->Finish("moved").ok());
  Open();
  CheckRows();
  CloseStore();
  EXPECT_EQ(HotBytes(*host_), before);
}

TEST_F(ArrivingRowsTest, RowsBeyondTheMemoryStayOnDisk) {
  const auto blocks = BlocksOf(1000, [](uint64_t) { return true; });
  options_.hot_bytes = 300 * RowCost();
  ASSERT_TRUE(Receive(blocks)->Finish("moved").ok());
  EXPECT_LE(HotBytes(*host_), options_.hot_bytes);
  Open();
  const uint64_t placed = store_->Stats().rows_resident;
  EXPECT_GT(placed, 100u);
  CloseStore();
  ASSERT_TRUE(host_->DeleteShard(SpillShard(spec_, range_, kShard)).ok());
  auto writer = Receive(blocks);
  ASSERT_TRUE(writer->Write(blocks[0]).ok());  // a second pass has rows that are in memory
  ASSERT_TRUE(writer->Finish("moved").ok());
  writer.reset();
  Open();
  EXPECT_EQ(store_->Stats().rows_resident, placed) << "rows of a later pass take their places";
  EXPECT_LT(store_->Stats().rows_resident, 300u);
  EXPECT_EQ(store_->Stats().evictions, 0u) << "no row makes room for one that arrives";
  CheckRows();
}

// Huge pages are paid for ahead of dense rows alone, and only where memory is plenty.
TEST_F(ArrivingRowsTest, PagesOfRowsThatDoNotComeAreNotPaidFor) {
  const auto dense = BlocksOf(6000, [](uint64_t) { return true; });
  options_.use_huge_pages = true;
  options_.hot_bytes = 64 << 20;
  auto writer = Receive({dense[0]});
  EXPECT_GE(HotBytes(*host_), 2u << 20) << "of which the rows so far are an eighth";
  for (size_t i = 1; i < dense.size(); ++i) ASSERT_TRUE(writer->Write(dense[i]).ok());
  ASSERT_TRUE(writer->Finish("moved").ok());
  writer.reset();
  EXPECT_LE(HotBytes(*host_), 6000u * RowCost() + (2 << 20));
  Open();
  CheckRows();
  CloseStore();
  host_ = nullptr;
  std::filesystem::remove_all(dir_);
  options_.use_huge_pages = false;
  const auto sparse = BlocksOf(6000, [](uint64_t id) { return id % 300 == 0; });
  options_.use_huge_pages = true;
  ASSERT_TRUE(Receive(sparse)->Finish("moved").ok());
  EXPECT_LE(HotBytes(*host_), 20u * 3 * 65536);
  Open();
  CheckRows();
}

}  // namespace arriving_rows_test
}  // namespace hotbed
