#include "common/tables/table_size.h"

#include <gtest/gtest.h>

namespace hotbed {
namespace table_size_test {

TableSpec Table(uint64_t rows, uint32_t dim, OptimizerKind kind) {
  TableSpec spec;
  spec.rows = rows;
  spec.dim = dim;
  spec.optimizer.kind = kind;
  return spec;
}

TEST(TableSizeTest, RowsTimesDimTimesBytes) {
  // A vocabulary of 5,000 rows of 3,072 fp32 weights in two shards.
  const TableSpec plain = Table(5000, 3072, OptimizerKind::kSgd);
  EXPECT_EQ(SizeOfTable(plain, 5000).bytes(), 61'440'000u);
  EXPECT_EQ(SizeOfRows(plain, 2500, 3072).bytes(), 30'720'000u);
  const TableSpec adam = Table(5000, 3072, OptimizerKind::kAdam);
  EXPECT_EQ(SizeOfRows(adam, 2500, 3072).weight_bytes, 30'720'000u);
  EXPECT_EQ(SizeOfRows(adam, 2500, 3072).bytes(), 92'160'000u);  // two moments
  // The sizes of matrices in MiB: 2048 x 4096, 4096 x 8192, 2048 x 8192.
  const uint64_t matrices[][3] = {{2048, 4096, 32}, {4096, 8192, 128}, {2048, 8192, 64}};
  for (const auto& [rows, dim, mib] : matrices) {
    const TableSpec matrix = Table(rows, static_cast<uint32_t>(dim), OptimizerKind::kSgd);
    EXPECT_EQ(SizeOfTable(matrix, rows).bytes(), mib << 20);
  }
  // A cache of 500,000 lines of 256 floats: 0.4768 GiB.
  EXPECT_DOUBLE_EQ(
      static_cast<double>(SizeOfTable(Table(500'000, 256, OptimizerKind::kSgd), 500'000).bytes()) /
          (1 << 30),
      .476837158203125);
}

TEST(TableSizeTest, LowRank) {
  constexpr uint64_t kRows = 1'048'576, kDim = 512;
  // rows (dim - b) - b dim saved
  EXPECT_EQ(kRows * kDim - BlockElements(kRows, kDim, 128, 1), 402'587'648u);
  // Over four devices, each with rows of a fourth of the dim and a matrix of its own.
  EXPECT_EQ(kRows * kDim - BlockElements(kRows, kDim, kDim / 4, 4), 402'391'040u);
  EXPECT_EQ(BlockElements(kRows, kDim, kDim, 1), kRows * kDim);
}

TEST(TableSizeTest, QuotientAndRemainder) {
  constexpr uint64_t kRows = 1'048'576, kDim = 512;
  EXPECT_EQ(UsualQuotient(kRows), 1024u);
  EXPECT_EQ(UsualQuotient(5253), 73u);
  EXPECT_EQ(UsualQuotient(873'199), 935u);
  EXPECT_EQ(UsualQuotient(1), 1u);
  EXPECT_EQ(UsualQuotient(~uint64_t{0}), uint64_t{1} << 32);
  EXPECT_EQ(kRows * kDim - QuotientRemainderElements(kRows, kDim, 1024), 535'822'336u);
  EXPECT_EQ(QuotientRows(10, 4), 3u);
}

}  // namespace table_size_test
}  // namespace hotbed
