#include "server/shard/staged_rows.h"

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "common/random.h"
#include "tests/common/test_seed.h"

namespace hotbed {
namespace staged_rows_test {

constexpr uint32_t kDim = 3;

RecordHeader Header(Lsn lsn, uint64_t step, uint32_t rows) {
  RecordHeader header;
  header.shard = {1, 2};
  header.lsn = lsn;
  header.session = 7;
  header.seq = step << 20 | 1;
  header.staged = true;
  header.id_count = rows;
  header.dim = kDim;
  return header;
}

void Add(StagedRows* staged, const RecordHeader& header, const std::vector<uint64_t>& ids,
         const std::vector<float>& gradients) {
  std::vector<const uint8_t*> rows;
  for (size_t i = 0; i < ids.size(); ++i) {
    rows.push_back(reinterpret_cast<const uint8_t*>(gradients.data() + i * kDim));
  }
  staged->Add(header, ids.data(), rows.data());
}

TEST(StagedRowsTest, SumsInTheOrderGiven) {
  const TestSeed seed(11);
  Random random(seed.value());
  StagedRows staged(nullptr);
  std::map<Lsn, std::pair<std::vector<uint64_t>, std::vector<float>>> pushes;
  for (Lsn lsn = 1; lsn <= 5; ++lsn) {
    auto& [ids, gradients] = pushes[lsn];
    for (uint64_t id = 0; id < 40; ++id) {
      if (random.Double() < 0.5) continue;
      ids.push_back(id);
      for (uint32_t c = 0; c < kDim; ++c) {
        gradients.push_back(static_cast<float>(random.Double() - 0.5));
      }
    }
    Add(&staged, Header(lsn, 9, static_cast<uint32_t>(ids.size())), ids, gradients);
  }
  const std::vector<Lsn> order = {4, 1, 5, 2};
  // The dumb twin.
  std::map<uint64_t, std::vector<float>> expected;
  for (const Lsn lsn : order) {
    const auto& [ids, gradients] = pushes[lsn];
    for (size_t i = 0; i < ids.size(); ++i) {
      const bool first = !expected.contains(ids[i]);
      std::vector<float>& row = expected[ids[i]];
      row.resize(kDim);
      for (uint32_t c = 0; c < kDim; ++c) {
        row[c] = first ? gradients[i * kDim + c] : row[c] + gradients[i * kDim + c];
      }
    }
  }
  const SummedRows sum = staged.Sum(order, kDim);
  ASSERT_EQ(sum.ids.size(), expected.size());
  for (size_t i = 0; i < sum.ids.size(); ++i) {
    const auto* row = reinterpret_cast<const float*>(sum.pointers[i]);
    EXPECT_EQ(std::vector<float>(row, row + kDim), expected.at(sum.ids[i])) << sum.ids[i];
  }
}

TEST(StagedRowsTest, NarrowGradientsAreWidened) {
  StagedRows staged(nullptr);
  RecordHeader header = Header(1, 2, 1);
  header.gradient_type = RowType::kBf16;
  const uint16_t bf16[kDim] = {0x3f80, 0xc000, 0x3e80};  // 1, -2, 0.25
  const auto* row = reinterpret_cast<const uint8_t*>(bf16);
  const uint64_t id = 5;
  staged.Add(header, &id, &row);
  header.lsn = 2;
  header.gradient_type = RowType::kFp16;
  const uint16_t fp16[kDim] = {0x3c00, 0x4000, 0x3800};  // 1, 2, 0.5
  row = reinterpret_cast<const uint8_t*>(fp16);
  staged.Add(header, &id, &row);
  const SummedRows sum = staged.Sum({1, 2}, kDim);
  EXPECT_EQ(sum.gradients, (std::vector<float>{2.0f, 0.0f, 0.75f}));
}

TEST(StagedRowsTest, CutsDropsAndCounts) {
  const auto host = std::make_shared<std::atomic<int64_t>>(100);
  {
    StagedRows staged(host);
    for (Lsn lsn = 1; lsn <= 6; ++lsn) {
      Add(&staged, Header(lsn, lsn <= 4 ? 8 : 9, 1), {lsn}, {1, 2, 3});
    }
    EXPECT_EQ(host->load(), 100 + static_cast<int64_t>(staged.bytes()));
    EXPECT_EQ(staged.bytes(), 6 * StagedRows::BytesOf(Header(1, 8, 1)));
    staged.CutFrom(6);
    EXPECT_FALSE(staged.contains(6));
    staged.DropThrough(8, 4);
    EXPECT_FALSE(staged.contains(3));
    EXPECT_TRUE(staged.contains(4)) << "staged behind the commit";
    EXPECT_TRUE(staged.contains(5)) << "of a later step";
    EXPECT_EQ(staged.AnyOf(9)->lsn, 5u);
    EXPECT_EQ(staged.AnyOf(10), nullptr);
  }
  EXPECT_EQ(host->load(), 100);
}

TEST(StagedRowsTest, SurvivesSerialisation) {
  StagedRows staged(nullptr);
  RecordHeader header = Header(3, 8, 2);
  header.scalars.learning_rate = 0.25f;
  Add(&staged, header, {~0ull, 4}, {1, 2, 3, 4, 5, 6});
  const std::string bytes = staged.Serialize(3);
  StagedRows again(nullptr);
  ASSERT_TRUE(again.Restore(bytes, [](uint64_t) { return true; }).ok());
  EXPECT_EQ(again.header(3).scalars.learning_rate, 0.25f);
  EXPECT_EQ(again.header(3).scalars.step, 8u);
  EXPECT_EQ(again.Sum({3}, kDim).ids, (std::vector<uint64_t>{~0ull, 4}));
  EXPECT_EQ(again.Sum({3}, kDim).gradients, (std::vector<float>{1, 2, 3, 4, 5, 6}));
  for (size_t i = 0; i < bytes.size(); ++i) {
    std::string damaged = bytes;
    damaged[i] ^= 0x40;
    EXPECT_FALSE(StagedRows(nullptr).Restore(damaged, [](uint64_t) { return true; }).ok())
        << "byte " << i;
  }
  EXPECT_FALSE(
      StagedRows(nullptr).Restore(bytes.substr(0, 64), [](uint64_t) { return true; }).ok());
}

}  // namespace staged_rows_test
}  // namespace hotbed
