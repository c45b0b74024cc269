#include "checkpoint/rows_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "checkpoint/block_packer.h"
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

std::string BytesVisited(RowsFileReader* file) {
  std::string all;
  const absl::Status visited = file->VisitBytes([&all](absl::string_view bytes) {
    absl::StrAppend(&all, bytes);
    return absl::OkStatus();
  });
  return visited.ok() ? all : "";
}

TEST(RowsFileTest, VisitsAllBytesAndNoneThatWereChanged) {
  FaultFileSystem files(1);
  DirectoryPlace place(&files);
  ASSERT_TRUE(files.MakeDir("/c").ok());
  const auto shard = SaveShard("/c", 3, 40, 100, &place);
  ASSERT_TRUE(shard.ok()) << shard.status();
  const std::string path = "/c/1-3-1.rows";
  const std::string whole = *files.ReadAll(path);
  const auto file = RowsFileReader::Open(path, shard->bytes(), shard->index_crc(), &place);
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(BytesVisited(file->get()), whole);
  // A byte that changes before or after the file is opened.
  for (size_t i = 0; i < whole.size(); ++i) {
    ASSERT_TRUE(files.WriteAtomically(path, whole).ok());
    const auto before = RowsFileReader::Open(path, shard->bytes(), shard->index_crc(), &place);
    ASSERT_TRUE(before.ok()) << before.status();
    std::string changed = whole;
    changed[i] = static_cast<char>(changed[i] ^ 0x10);
    ASSERT_TRUE(files.WriteAtomically(path, changed).ok());
    const auto after = RowsFileReader::Open(path, shard->bytes(), shard->index_crc(), &place);
    EXPECT_FALSE(after.ok() && !BytesVisited(after->get()).empty()) << i;
    const std::string visited = BytesVisited(before->get());
    EXPECT_TRUE(visited.empty() || visited == whole) << i;
  }
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

// Blocks of rows that shrink and of such that do not, with payloads of any size.
TEST(RowsFileTest, CompressedBlocksAreReadAsTheyWere) {
  for (const uint64_t seed : {1, 2, 3, 4, 5, 6, 7, 8}) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    std::mt19937_64 random(seed);
    FaultFileSystem files(1);
    DirectoryPlace place(&files);
    const auto payload_bytes = static_cast<uint32_t>(1 + random() % 70);
    const auto writer = RowsFileWriter::Create("/rows", {false, 1, payload_bytes, true}, &place);
    ASSERT_TRUE(writer.ok()) << writer.status();
    struct Block {
      std::vector<uint64_t> ids;
      std::vector<uint8_t> payloads;
    };
    std::vector<Block> blocks(6);
    uint64_t plain_bytes = 0;
    uint64_t id = 0;
    for (size_t k = 0; k < blocks.size(); ++k) {
      (*writer)->BeginPass();
      blocks[k].ids.resize(1 + random() % 500);
      blocks[k].payloads.resize(blocks[k].ids.size() * payload_bytes);
      for (uint64_t& one : blocks[k].ids) one = id += 1 + (k % 2 == 0 ? 0 : random() >> 20);
      for (uint8_t& byte : blocks[k].payloads)
        byte = static_cast<uint8_t>(k % 2 == 0 ? 7 : random());
      plain_bytes += 16 + blocks[k].ids.size() * (8 + payload_bytes);
      ASSERT_TRUE((*writer)->AddRows(blocks[k].ids, blocks[k].payloads).ok());
    }
    ASSERT_TRUE((*writer)->AddSessions("sessions").ok());
    ASSERT_TRUE((*writer)->Finish().ok());
    EXPECT_LT((*writer)->bytes(), plain_bytes);
    const auto file =
        RowsFileReader::Open("/rows", (*writer)->bytes(), (*writer)->index_crc(), &place);
    ASSERT_TRUE(file.ok()) << file.status();
    EXPECT_EQ(*(*file)->ReadSessions(), "sessions");
    for (size_t k = blocks.size(); k-- > 0;) {  // each by itself
      Block read;
      const absl::Status status = (*file)->ReadRows((*file)->index()[k], &read.ids, &read.payloads);
      ASSERT_TRUE(status.ok()) << status;
      EXPECT_EQ(read.ids, blocks[k].ids);
      EXPECT_EQ(read.payloads, blocks[k].payloads);
    }
  }
}

TEST(RowsFileTest, EveryFlippedBitOfACompressedFileIsFound) {
  FaultFileSystem files(1);
  DirectoryPlace place(&files);
  const auto writer = RowsFileWriter::Create("/rows", {false, 8, 8, true}, &place);
  ASSERT_TRUE(writer.ok()) << writer.status();
  std::vector<uint64_t> ids(64);
  std::iota(ids.begin(), ids.end(), 0);
  ASSERT_TRUE((*writer)->AddRows(ids, std::vector<uint8_t>(512, 3)).ok());
  ASSERT_TRUE((*writer)->Finish().ok());
  for (uint64_t byte = 0; byte < (*writer)->bytes(); ++byte) {
    files.FlipBit("/rows", byte, static_cast<int>(byte % 8));
    const auto file =
        RowsFileReader::Open("/rows", (*writer)->bytes(), (*writer)->index_crc(), &place);
    std::vector<uint64_t> read;
    std::vector<uint8_t> payloads;
    const absl::Status status =
        file.ok() ? (*file)->ReadRows((*file)->index()[0], &read, &payloads) : file.status();
    EXPECT_TRUE(absl::IsDataLoss(status)) << "byte " << byte << ": " << status;
    files.FlipBit("/rows", byte, static_cast<int>(byte % 8));
  }
}

// The checksums do not vouch for what another program has packed.
TEST(BlockPackerTest, OnlyAFrameOfTheRightSizeIsUnpacked) {
  BlockPacker packer;
  const std::string packed(packer.Pack(std::string(80, 'i'), std::string(803, 'p')));
  ASSERT_FALSE(packed.empty());
  std::string out(883, '\0');
  ASSERT_TRUE(UnpackBlock(packed, absl::MakeSpan(out)));
  EXPECT_EQ(out, std::string(80, 'i') + std::string(803, 'p'));
  for (const size_t size : {0, 882, 884}) {
    out.resize(size);
    EXPECT_FALSE(UnpackBlock(packed, absl::MakeSpan(out))) << size;
  }
  out.resize(883);
  for (size_t size = 0; size < packed.size(); ++size) {
    EXPECT_FALSE(UnpackBlock(packed.substr(0, size), absl::MakeSpan(out))) << size;
  }
  EXPECT_FALSE(UnpackBlock("rows", absl::MakeSpan(out)));
  EXPECT_EQ(CheckCompression("gzip").message(), "compress is \"gzip\"; allowed: zstd, or nothing");
}

TEST(RowsFileTest, NeverReplacesAFile) {
  FaultFileSystem files(1);
  DirectoryPlace place(&files);
  ASSERT_TRUE(RowsFileWriter::Create("/rows", {}, &place).ok());
  EXPECT_TRUE(absl::IsAlreadyExists(RowsFileWriter::Create("/rows", {}, &place).status()));
}

}  // namespace rows_file_test
}  // namespace hotbed
