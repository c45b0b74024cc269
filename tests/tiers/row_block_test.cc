// Copies of a shard's rows: one tier's blocks written into another's.
#include "server/tiers/spill/row_block.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "common/files/byte_order.h"
#include "tests/tiers/store_fixture.h"

namespace hotbed {
namespace row_block_test {

constexpr uint64_t kBlockBytes = 1000;

class RowBlockTest : public StoreFixture {
 protected:
  // Every row once at LSN 1, each third again at LSN 2; all in the spill tier.
  void Fill() {
    OpenStore();
    Random random(5);
    for (Lsn lsn = 1; lsn <= 2; ++lsn) {
      std::vector<uint64_t> ids;
      std::vector<std::vector<float>> gradients;
      for (uint64_t id = 0; id < spec_.rows; id += lsn == 1 ? 1 : 3) {
        ids.push_back(id);
        gradients.emplace_back();
        for (uint32_t c = 0; c < spec_.dim; ++c) {
          gradients.back().push_back(static_cast<float>(random.Double() - 0.5));
        }
      }
      ASSERT_TRUE(ApplyNow(ids, gradients, lsn).ok());
      ASSERT_TRUE(WriteBackNow(lsn, absl::StrCat("meta ", lsn)).ok());
    }
  }
  std::unique_ptr<ShardRowReader> Reader(Lsn above = 0) {
    auto reader = host_->ReadShard(SpillShard(spec_, range_, {spec_.id, 3}), above);
    EXPECT_TRUE(reader.ok()) << reader.status();
    return *std::move(reader);
  }
  static std::vector<std::string> Blocks(ShardRowReader* reader) {
    std::vector<std::string> blocks;
    for (;;) {
      auto block = reader->Next(kBlockBytes);
      EXPECT_TRUE(block.ok()) << block.status();
      if (!block.ok() || block->empty()) return blocks;
      blocks.push_back(*std::move(block));
    }
  }
  std::unique_ptr<ShardRowWriter> Writer() { return Writer(spec_, range_, 3); }
  std::unique_ptr<ShardRowWriter> Writer(const TableSpec& spec, const ShardRange& range,
                                         uint32_t index) {
    auto writer = host_->WriteShard(SpillShard(spec, range, {spec.id, index}));
    EXPECT_TRUE(writer.ok()) << writer.status();
    return *std::move(writer);
  }
  std::vector<float> AllRows() {
    std::vector<uint64_t> ids;
    for (uint64_t id = 0; id < spec_.rows; ++id) ids.push_back(id);
    std::vector<float> rows;
    std::vector<uint8_t> flags;
    EXPECT_TRUE(PullNow(ids, &rows, &flags).ok());
    return rows;
  }
};

// Without checksums, and so for nobody else.
TEST_F(RowBlockTest, ABlockThatStaysHereHasTheSameRows) {
  Fill();
  const SpillShard shard(spec_, range_, {spec_.id, 3});
  const auto sent = Blocks(Reader().get());
  const auto here = Reader();
  here->StayHere();
  const auto kept = Blocks(here.get());
  ASSERT_EQ(kept.size(), sent.size());
  for (size_t i = 0; i < kept.size(); ++i) {
    std::map<uint64_t, std::string> rows[2];
    for (int k = 0; k < 2; ++k) {
      ASSERT_TRUE(VisitRows(shard, k == 0 ? sent[i] : kept[i],
                            [&](uint64_t position, const uint8_t* payload) {
                              rows[k][position].assign(payload, payload + shard.payload_bytes);
                            })
                      .ok());
    }
    EXPECT_EQ(rows[0], rows[1]);
    EXPECT_FALSE(rows[0].empty());
    EXPECT_TRUE(absl::IsDataLoss(Writer()->Write(kept[i])));
  }
}

TEST_F(RowBlockTest, AnotherServersTierTakesTheRows) {
  spec_.optimizer.kind = OptimizerKind::kAdam;
  Fill();
  const std::vector<float> rows = AllRows();
  const std::vector<std::string> blocks = Blocks(Reader().get());
  ASSERT_GT(blocks.size(), 3u);
  for (const std::string& block : blocks) EXPECT_LE(block.size(), kBlockBytes + 16);
  CloseStore();
  host_ = nullptr;
  options_.spill_dir = dir_ + "/other";
  OpenHost();
  const auto writer = Writer();
  for (const std::string& block : blocks) ASSERT_TRUE(writer->Write(block).ok());
  ASSERT_TRUE(writer->Finish("meta of the snapshot").ok());
  OpenStore();
  EXPECT_EQ(store_->meta(), "meta of the snapshot");
  EXPECT_EQ(store_->highest_lsn(), 2u);
  EXPECT_EQ(AllRows(), rows);
  EXPECT_EQ(Blocks(Reader().get()), blocks) << "state and LSNs too";
}

TEST_F(RowBlockTest, AReaderSeesTheMomentAtWhichItBegan) {
  Fill();
  const std::vector<std::string> before = Blocks(Reader().get());
  auto reader = Reader();
  const auto first = reader->Next(kBlockBytes);
  ASSERT_TRUE(first.ok());
  ASSERT_TRUE(ApplyNow({1, spec_.rows - 1},
                       {std::vector<float>(spec_.dim, 1.0f), std::vector<float>(spec_.dim, 1.0f)},
                       3)
                  .ok());
  ASSERT_TRUE(WriteBackNow(3, "later").ok());
  ASSERT_TRUE(host_->Flush().ok());
  std::vector<std::string> all = {*first};
  for (std::string& block : Blocks(reader.get())) all.push_back(std::move(block));
  EXPECT_EQ(all, before);
  EXPECT_NE(Blocks(Reader().get()), before);
}

TEST_F(RowBlockTest, AFurtherPassBringsTheRowsThatHaveChanged) {
  Fill();
  const auto positions = [this](Lsn above) {
    std::vector<uint64_t> found;
    for (const std::string& bytes : Blocks(Reader(above).get())) {
      const auto record_bytes = SpillShard(spec_, range_, {spec_.id, 3}).record_bytes();
      const auto block = RowBlock::Parse(bytes, record_bytes);
      EXPECT_TRUE(block.ok()) << block.status();
      for (uint32_t row = 0; row < block->rows(); ++row) found.push_back(block->position(row));
    }
    return found;
  };
  std::vector<uint64_t> thirds;
  for (uint64_t id = 0; id < spec_.rows; id += 3) thirds.push_back(id);
  EXPECT_EQ(positions(0).size(), spec_.rows);
  EXPECT_EQ(positions(1), thirds);
  EXPECT_TRUE(positions(2).empty());
  const std::vector<float> ones(spec_.dim, 1.0f);
  ASSERT_TRUE(ApplyNow({1, 3, spec_.rows - 1}, {ones, ones, ones}, 3).ok());
  ASSERT_TRUE(WriteBackNow(3, "later").ok());
  EXPECT_EQ(positions(2), (std::vector<uint64_t>{1, 3, spec_.rows - 1}));
}

TEST_F(RowBlockTest, ATierBeginsAnewWhenNobodyUsesIt) {
  Fill();
  const std::string block = *Reader()->Next(kBlockBytes);
  EXPECT_EQ(host_->Renew().code(), absl::StatusCode::kFailedPrecondition) << "a shard is open";
  auto reader = Reader();
  CloseStore();
  EXPECT_EQ(host_->Renew().code(), absl::StatusCode::kUnavailable) << "rows are being read";
  EXPECT_FALSE(Blocks(reader.get()).empty()) << "which goes on";
  reader = nullptr;
  ASSERT_TRUE(host_->Renew().ok());
  EXPECT_TRUE(Blocks(Reader().get()).empty());
  ASSERT_TRUE(Writer()->Write(block).ok()) << "and it takes rows";
  EXPECT_FALSE(Blocks(Reader().get()).empty());
  OpenStore();
  EXPECT_EQ(store_->meta(), "") << "nothing is left of the shard";
}

TEST_F(RowBlockTest, DamageIsNeverWritten) {
  Fill();
  const std::string block = *Reader()->Next(kBlockBytes);
  CloseStore();
  const auto writer = Writer();
  for (size_t at = 0; at < block.size(); at += 7) {
    std::string damaged = block;
    damaged[at] = static_cast<char>(damaged[at] ^ 0x10);
    EXPECT_EQ(writer->Write(damaged).code(), absl::StatusCode::kDataLoss) << "byte " << at;
  }
  EXPECT_EQ(writer->Write(block.substr(0, block.size() - 1)).code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(writer->Write("").code(), absl::StatusCode::kDataLoss);
  EXPECT_TRUE(writer->Write(block).ok());
}

TEST_F(RowBlockTest, RowsOfAnotherShardOrSizeAreRefused) {
  Fill();
  const std::string block = *Reader()->Next(kBlockBytes);
  CloseStore();
  const ShardRange upper = {spec_.rows / 2, spec_.rows, 0, spec_.dim};
  EXPECT_EQ(Writer(spec_, upper, 4)->Write(block).code(), absl::StatusCode::kInvalidArgument);
  TableSpec wider = spec_;
  wider.dim += 1;
  EXPECT_EQ(Writer(wider, {0, spec_.rows, 0, wider.dim}, 3)->Write(block).code(),
            absl::StatusCode::kInvalidArgument);
  TableSpec other = spec_;
  other.id += 1;
  EXPECT_EQ(Writer(other, range_, 3)->Write(block).code(), absl::StatusCode::kDataLoss)
      << "the records' checksums cover the table";
}

TEST_F(RowBlockTest, ADamagedRowEndsTheReading) {
  Fill();
  KvStore* const kv = host_->spill_store();
  std::string key;
  std::string value;
  std::string limit(14, '\xff');
  ASSERT_TRUE(kv->Scan("", limit, [&](absl::string_view k, absl::string_view v) {
                  key = std::string(k);
                  value = std::string(v);
                  return LoadBig64(k.data() + 6) < 100;
                }).ok());
  value[value.size() / 2] ^= 1;
  auto batch = kv->NewBatch();
  batch->Put(key, value);
  ASSERT_TRUE(kv->Write(batch.get()).ok());
  auto reader = Reader();
  absl::Status status;
  for (int i = 0; i < 1000 && status.ok(); ++i) status = reader->Next(kBlockBytes).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(status.message()), testing::HasSubstr("id 100"));
}

}  // namespace row_block_test
}  // namespace hotbed
