// Composed tables as values: their parts, dims and parameters by the published formulas.
#include "common/tables/composition.h"

#include <gtest/gtest.h>

#include <vector>

#include "absl/strings/match.h"

namespace hotbed {
namespace composition_test {

TableSpec Composed(ComposeForm form, uint64_t rows, uint32_t dim) {
  TableSpec spec;
  spec.name = "user";
  spec.rows = rows;
  spec.dim = dim;
  spec.composition.form = form;
  return spec;
}

TableSpec Blocks(uint64_t rows, uint32_t dim, std::vector<uint32_t> dims,
                 ComposeForm form = ComposeForm::kBlock) {
  TableSpec spec = Composed(form, rows, dim);
  spec.composition.block_dims = std::move(dims);
  return spec;
}

int64_t Saved(const TableSpec& spec) {
  const auto parts = PartsOf(spec);
  EXPECT_TRUE(parts.ok()) << parts.status();
  return parts.ok() ? ParametersOf(spec, *parts).saved() : 0;
}

TEST(Composition, QuotientRemainderSavesAllButTwoTablesOfTheRoot) {
  EXPECT_EQ(DefaultBuckets(1'048'576), 1024u);
  EXPECT_EQ(DefaultBuckets(5253), 73u);
  EXPECT_EQ(DefaultBuckets(873'199), 935u);
  EXPECT_EQ(DefaultBuckets(1), 1u);
  EXPECT_EQ(DefaultBuckets(uint64_t{1} << 62), uint64_t{1} << 31);
  // V * E - 2 * n * E.
  EXPECT_EQ(Saved(Composed(ComposeForm::kQuotientRemainder, 1'048'576, 512)), 535'822'336);
  const auto parts = PartsOf(Composed(ComposeForm::kQuotientRemainder, 5253, 8));
  ASSERT_TRUE(parts.ok()) << parts.status();
  ASSERT_EQ(parts->size(), 2u);
  EXPECT_EQ((*parts)[0].name, "user/quotient");
  EXPECT_EQ((*parts)[0].rows, 73u);
  EXPECT_EQ((*parts)[1].name, "user/remainder");
  EXPECT_EQ((*parts)[1].rows, 73u);
  EXPECT_EQ((*parts)[1].composition.buckets, 73u);
}

TEST(Composition, FewBucketsNeedMoreQuotients) {
  TableSpec spec = Composed(ComposeForm::kQuotientRemainder, 100, 6);
  spec.composition.buckets = 7;
  spec.composition.combine = Combine::kConcatenate;
  const auto parts = PartsOf(spec);
  ASSERT_TRUE(parts.ok()) << parts.status();
  EXPECT_EQ((*parts)[0].rows, 15u);
  EXPECT_EQ((*parts)[1].rows, 7u);
  EXPECT_EQ((*parts)[0].dim, 3u);
  EXPECT_EQ((*parts)[1].dim, 3u);
}

TEST(Composition, BlocksSaveRowsTimesTheMissingElements) {
  // V * (E - b) - b * E.
  EXPECT_EQ(Saved(Blocks(1'048'576, 512, {128})), 402'587'648);
  // (V/w * E - V/w * E/w - E/w * E) * w.
  EXPECT_EQ(Saved(Blocks(1'048'576, 512, {128, 128, 128, 128})), 402'391'040);
  const auto parts = PartsOf(Blocks(10, 8, {8, 2, 4}));
  ASSERT_TRUE(parts.ok()) << parts.status();
  std::vector<std::string> names;
  for (const TableSpec& part : *parts) names.push_back(part.name);
  EXPECT_EQ(names, (std::vector<std::string>{"user/block0", "user/block1", "user/map1",
                                             "user/block2", "user/map2"}));
  EXPECT_EQ((*parts)[3].rows, 4u);  // the last has the rest
  EXPECT_EQ((*parts)[4].rows, 8u);
  EXPECT_EQ((*parts)[4].dim, 4u);
}

TEST(Composition, BlocksBeginAsXavierNormal) {
  const auto parts = PartsOf(Blocks(1000, 24, {8}));
  ASSERT_TRUE(parts.ok()) << parts.status();
  EXPECT_EQ((*parts)[0].initializer.kind, InitializerKind::kNormal);
  EXPECT_FLOAT_EQ((*parts)[0].initializer.b, 0.044543542f);  // sqrt(2 / 1008)
  EXPECT_FLOAT_EQ((*parts)[1].initializer.b, 0.25f);         // sqrt(2 / 32)
}

TEST(Composition, DimsOfBlocksAreHalvedByTheirParts) {
  EXPECT_EQ(BlockDim(128, 21'014, 5'253), 32u);
  const uint64_t all = 3'434'402 + 5'223 + 45'582 + 7'589;
  EXPECT_EQ(BlockDim(128, all, 3'434'402), 128u);
  EXPECT_EQ(BlockDim(128, all, 5'223), 2u);
  EXPECT_EQ(BlockDim(128, all, 45'582), 2u);
  EXPECT_EQ(BlockDim(128, all, 7'589), 2u);
  EXPECT_EQ(DefaultBuckets(3'434'402), 1854u);
  EXPECT_EQ(DefaultBuckets(45'582), 214u);
  EXPECT_EQ(DefaultBuckets(7'589), 88u);
  EXPECT_EQ(BlockDim(128, 5, 0), 2u);
  EXPECT_EQ(BlockDim(1, 5, 0), 1u);
}

TEST(Composition, FrequentIdsComeFirst) {
  const auto order = OrderByFrequency(std::vector<uint64_t>{1, 40, 1, 0, 8, 50}, 64, 3);
  ASSERT_TRUE(order.ok()) << order.status();
  EXPECT_EQ(order->ids, (std::vector<uint32_t>{5, 1, 4, 0, 2, 3}));
  EXPECT_EQ(order->block_dims, (std::vector<uint32_t>{64, 8, 2}));  // 90, 9 and 1 of 100
  const auto even = OrderByFrequency(std::vector<uint64_t>(1 << 12, 3), 512, 4);
  ASSERT_TRUE(even.ok()) << even.status();
  EXPECT_EQ(even->block_dims, (std::vector<uint32_t>{128, 128, 128, 128}));
  for (const uint32_t blocks : {0u, 7u, kBlocksMax + 1}) {
    const auto bad = OrderByFrequency(std::vector<uint64_t>(6, 1), 64, blocks);
    EXPECT_TRUE(absl::StrContains(bad.status().message(), "allowed: 1..6")) << bad.status();
  }
}

void ExpectRefused(const absl::Status& status, const std::string& field,
                   const std::string& allowed) {
  EXPECT_TRUE(absl::StrContains(status.message(), field)) << status;
  EXPECT_TRUE(absl::StrContains(status.message(), allowed)) << status;
}

TEST(Composition, PartsThatDoNotFitAreRefusedByName) {
  TableSpec spec = Blocks(100, 8, {2});
  spec.optimizer.kind = OptimizerKind::kSgd;
  spec.column_slices = 4;
  ExpectRefused(PartsOf(spec).status(), "\"user/block0\": column_slices is 4", "1..2");
  ExpectRefused(PartsOf(Blocks(100, 8, {9})).status(), "block_dims is 9", "1..8 each");
  ExpectRefused(PartsOf(Blocks(100, 8, {})).status(), "block_dims is of 0 blocks", "1..14 blocks");
  ExpectRefused(PartsOf(Blocks(2, 8, {1, 1, 1})).status(), "of 3 blocks", "1..2 blocks");
  spec = Composed(ComposeForm::kQuotientRemainder, 100, 5);
  spec.composition.combine = Combine::kConcatenate;
  ExpectRefused(PartsOf(spec).status(), "dim is 5", "even");
  spec = Composed(ComposeForm::kQuotientRemainder, 100, 4);
  spec.composition.buckets = 101;
  ExpectRefused(PartsOf(spec).status(), "buckets is 101", "1..100");
  spec = Composed(ComposeForm::kQuotientRemainder, 100, 4);
  spec.hashed = true;
  ExpectRefused(PartsOf(spec).status(), "hashed is true", "ids are 0..rows-1");
  spec = Composed(ComposeForm::kNone, 100, 4);
  spec.composition.buckets = 3;
  ExpectRefused(ValidateTableSpec(spec), "compose is none", "quotient-remainder");
}

TEST(Composition, GroupsOfPartsAreWhole) {
  auto parts = PartsOf(Blocks(100, 8, {2, 4}));
  ASSERT_TRUE(parts.ok()) << parts.status();
  EXPECT_TRUE(CheckParts(*parts).ok()) << CheckParts(*parts);
  EXPECT_EQ(PartsByName(*parts, "user").size(), 4u);
  EXPECT_TRUE(PartsByName(*parts, "item").empty());
  const TableSpec back = ComposedOf(*parts);
  EXPECT_EQ(back.name, "user");
  EXPECT_EQ(back.rows, 100u);
  EXPECT_EQ(back.dim, 8u);
  EXPECT_EQ(back.composition, Blocks(100, 8, {2, 4}).composition);

  std::vector<TableSpec> lacking(parts->begin() + 1, parts->end());
  ExpectRefused(CheckParts(lacking), "needs part \"user/block0\" of 50 rows and dim 2", "together");
  EXPECT_TRUE(PartsByName(lacking, "user").empty());
  std::vector<TableSpec> other = *parts;
  other[2].rows = 49;
  ExpectRefused(CheckParts(other), "needs part \"user/block1\" of 50 rows", "together");
  other = *parts;
  other.emplace_back().name = "user";
  ExpectRefused(CheckParts(other), "\"user\" has the name of a composed table", "plain tables");
  ExpectRefused(CheckParts({Blocks(100, 8, {2})}), "table \"user\" is composed", "its parts");
}

TEST(Composition, NegativePaddingIdsCountFromTheEnd) {
  TableSpec spec = Composed(ComposeForm::kQuotientRemainder, 100, 4);
  spec.has_padding_id = true;
  spec.padding_id = static_cast<uint64_t>(int64_t{-1});
  const auto parts = PartsOf(spec);
  ASSERT_TRUE(parts.ok()) << parts.status();
  EXPECT_EQ((*parts)[0].composition.padding_id, 99u);
  EXPECT_FALSE((*parts)[0].has_padding_id);
  EXPECT_EQ(ComposedOf(*parts).padding_id, 99u);
  spec.padding_id = static_cast<uint64_t>(int64_t{-101});
  ExpectRefused(ValidateTableSpec(spec), "padding_id is -101", "-100..-1");
}

}  // namespace composition_test
}  // namespace hotbed
