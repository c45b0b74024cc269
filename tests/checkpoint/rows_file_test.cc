#include "checkpoint/rows_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <vector>

#include "row_math/position.h"
#include "tests/checkpoint/saved_checkpoint.h"
#include "tests/common/fault_file_system.h"

namespace hotbed {
namespace rows_file_test {

TEST(RowsFileTest, ReadsWhatItWrote) {
  FaultFileSystem files(1);
  DirectoryPlace place(&files);
  ASSERT_TRUE(files.MakeDir("/c").ok());
  const auto shard = SaveShard("/c", 3, 40, 100, &place);
  ASSERT_TRUE(shard.ok()) << shard.status();
  EXPECT_EQ(shard->rows(), 5u);
  const auto file =
      RowsFileReader::Open("/c/1-3-1.rows", shard->bytes(), shard->index_crc(), &place);
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ((*file)->header(), (RowsFileHeader{false, 8, 8}));
  EXPECT_EQ(*(*file)->ReadSessions(), "sessions");
  std::vector<std::vector<uint64_t>> blocks;
  std::vector<uint32_t> passes;
  std::vector<uint64_t> ids;
  std::vector<uint8_t> payloads;
  for (const RowsFileEntry& entry : (*file)->index()) {
    if (entry.kind != RowsFileBlock::kRows) continue;
    ASSERT_TRUE((*file)->ReadRows(entry, &ids, &payloads).ok());
    EXPECT_EQ(payloads, std::vector<uint8_t>(8 * ids.size(), 4));
    EXPECT_EQ(entry.first_position, ids.front());
    EXPECT_EQ(entry.last_position, ids.back());
    blocks.push_back(ids);
    passes.push_back(entry.pass);
  }
  EXPECT_EQ(blocks, (std::vector<std::vector<uint64_t>>{{40, 41}, {44, 99}, {41}}));
  EXPECT_EQ(passes, (std::vector<uint32_t>{1, 1, 2}));
}

TEST(RowsFileTest, TheIndexOfAHashedTableHasPositions) {
  FaultFileSystem files(1);
  DirectoryPlace place(&files);
  const auto writer = RowsFileWriter::Create("/rows", {true, 4, 4}, &place);
  ASSERT_TRUE(writer.ok()) << writer.status();
  const std::vector<uint64_t> ids = {Unmix64(5), Unmix64(~uint64_t{0})};
  ASSERT_TRUE((*writer)->AddRows(ids, std::vector<uint8_t>(8)).ok());
  ASSERT_TRUE((*writer)->Finish().ok());
  const auto file =
      RowsFileReader::Open("/rows", (*writer)->bytes(), (*writer)->index_crc(), &place);
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ((*file)->index()[0].first_position, 5u);
  EXPECT_EQ((*file)->index()[0].last_position, ~uint64_t{0});
  EXPECT_EQ(*(*file)->ReadSessions(), "");
}

TEST(RowsFileTest, EveryFlippedBitAndEveryCutIsFound) {
  FaultFileSystem files(1);
  DirectoryPlace place(&files);
  ASSERT_TRUE(files.MakeDir("/c").ok());
  const auto shard = SaveShard("/c", 0, 0, 40, &place);
  ASSERT_TRUE(shard.ok()) << shard.status();
  const std::string path = "/c/1-0-1.rows";
  const auto read = [&]() -> absl::Status {
    HOTBED_ASSIGN_OR_RETURN(const auto file,
                            RowsFileReader::Open(path, shard->bytes(), shard->index_crc(), &place));
    std::vector<uint64_t> ids;
    std::vector<uint8_t> payloads;
    for (const RowsFileEntry& entry : file->index()) {
      if (entry.kind != RowsFileBlock::kRows) continue;
      HOTBED_RETURN_IF_ERROR(file->ReadRows(entry, &ids, &payloads));
    }
    return file->ReadSessions().status();
  };
  ASSERT_TRUE(read().ok()) << read();
  for (uint64_t byte = 0; byte < shard->bytes(); ++byte) {
    const int bit = static_cast<int>(byte % 8);
    files.FlipBit(path, byte, bit);
    EXPECT_TRUE(absl::IsDataLoss(read())) << "byte " << byte << ": " << read();
    EXPECT_THAT(std::string(read().message()), testing::HasSubstr(path));
    files.FlipBit(path, byte, bit);
  }
  auto file = files.OpenAppend(path);
  ASSERT_TRUE(file.ok());
  for (uint64_t size = shard->bytes(); size-- > 0;) {
    ASSERT_TRUE((*file)->Truncate(size).ok());
    EXPECT_TRUE(absl::IsDataLoss(read())) << "cut at " << size << ": " << read();
  }
}

TEST(RowsFileTest, NeverReplacesAFile) {
  FaultFileSystem files(1);
  DirectoryPlace place(&files);
  ASSERT_TRUE(RowsFileWriter::Create("/rows", {}, &place).ok());
  EXPECT_TRUE(absl::IsAlreadyExists(RowsFileWriter::Create("/rows", {}, &place).status()));
}

}  // namespace rows_file_test
}  // namespace hotbed
