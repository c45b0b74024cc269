#include "common/tables/table_spec.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "row_math/position.h"

namespace hotbed {
namespace table_spec_test {

TableSpec Valid() {
  TableSpec spec;
  spec.name = "users";
  spec.rows = 100;
  spec.dim = 16;
  return spec;
}

TEST(TableSpec, AcceptsTheOrdinaryAndTheExtreme) {
  EXPECT_TRUE(ValidateTableSpec(Valid()).ok());
  TableSpec spec = Valid();
  spec.hashed = true;
  spec.rows = 0;
  spec.dim = kDimMax;
  spec.name = "_a/b-c.d9";
  EXPECT_TRUE(ValidateTableSpec(spec).ok());
}

TEST(TableSpec, RefusalNamesTableFieldValueAndLimit) {
  TableSpec spec = Valid();
  spec.dim = 9000;
  const absl::Status status = ValidateTableSpec(spec);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(status.message(), "table \"users\": dim is 9000, allowed: 1..8192");
}

TEST(TableSpec, OneOfTwoWaysToSayAThingIsKept) {
  TableSpec spec = Valid();
  spec.consistency = Consistency::kBounded;
  spec.padding_id = 7;  // without having a padding id
  MakeCanonical(&spec);
  EXPECT_EQ(spec.consistency, Consistency::kSync) << "a trainer no step ahead";
  EXPECT_EQ(spec.padding_id, 0u);
  spec.consistency = Consistency::kBounded;
  spec.staleness = 1;
  spec.has_padding_id = true;
  spec.padding_id = 7;
  MakeCanonical(&spec);
  EXPECT_EQ(spec.consistency, Consistency::kBounded);
  EXPECT_EQ(spec.padding_id, 7u);
}

TEST(TableSpec, FirstValuesAreScaledByTheDimUnlessAskedFor) {
  TableSpec spec = Valid();
  spec.dim = 64;
  const InitializerParams first = FirstValuesOf(spec);
  EXPECT_EQ(first.kind, InitializerKind::kUniform);
  EXPECT_EQ(first.a, -0.125f);
  EXPECT_EQ(first.b, 0.125f);
  spec.initializer = {InitializerKind::kZero};
  EXPECT_EQ(FirstValuesOf(spec).kind, InitializerKind::kZero);
}

// Part of the format: FNV-1a 64 through Mix64. The hashes of "" and "foobar" are from the FNV
// authors' test vectors.
TEST(TableSpec, SlicesOfColumnsJoinInOrderAndTheFirstAreWider) {
  for (const auto& [dim, slices] : {std::pair<uint32_t, uint32_t>{7, 3}, {64, 4}, {5, 5}, {9, 1}}) {
    uint32_t next = 0;
    for (uint32_t s = 0; s < slices; ++s) {
      const ColumnRange range = SliceColumns(dim, slices, s);
      EXPECT_EQ(range.first, next);
      EXPECT_EQ(range.columns(), dim / slices + (s < dim % slices ? 1 : 0));
      next = range.limit;
    }
    EXPECT_EQ(next, dim);
  }
}

TEST(TableSpec, ColumnSlicesHaveALimit) {
  TableSpec spec = Valid();
  spec.optimizer.kind = OptimizerKind::kSgd;
  spec.column_slices = 16;
  EXPECT_TRUE(ValidateTableSpec(spec).ok());
  for (uint32_t slices : {0u, 17u}) {
    spec.column_slices = slices;
    EXPECT_THAT(std::string(ValidateTableSpec(spec).message()),
                testing::HasSubstr("allowed: 1..16 (at most dim and 256)"));
  }
  spec.dim = kDimMax;
  spec.column_slices = kColumnSlicesMax;
  EXPECT_TRUE(ValidateTableSpec(spec).ok());
  spec.column_slices = kColumnSlicesMax + 1;
  EXPECT_FALSE(ValidateTableSpec(spec).ok());
}

// Optimizers that need the whole row allow slices only if each slice counts as a row of its own.
TEST(TableSpec, WholeRowStatisticsAreSlicedOnlyOnRequest) {
  const std::pair<const char*, std::function<void(TableSpec*)>> whole[] = {
      {"rowwise-adagrad", [](TableSpec* s) { s->optimizer.kind = OptimizerKind::kRowwiseAdagrad; }},
      {"partial-rowwise-adam",
       [](TableSpec* s) { s->optimizer.kind = OptimizerKind::kPartialRowwiseAdam; }},
      {"lamb", [](TableSpec* s) { s->optimizer.kind = OptimizerKind::kLamb; }},
      {"partial-rowwise-lamb",
       [](TableSpec* s) { s->optimizer.kind = OptimizerKind::kPartialRowwiseLamb; }},
      {"rowwise-rmsprop", [](TableSpec* s) { s->optimizer.kind = OptimizerKind::kRowwiseRmsProp; }},
      {"lars", [](TableSpec* s) { s->optimizer.kind = OptimizerKind::kLars; }},
      {"rowwise-adagrad-counter",
       [](TableSpec* s) { s->optimizer.kind = OptimizerKind::kRowwiseAdagradCounter; }},
      {"clip_row_norm", [](TableSpec* s) { s->optimizer.clip_row_norm = 1; }},
      {"max_norm", [](TableSpec* s) { s->optimizer.max_norm = 1; }},
      {"clip_row_norm",
       [](TableSpec* s) {
         s->changes = {{.at_step = 5, .has_clip_row_norm = true, .clip_row_norm = 2}};
       }},
  };
  for (const auto& [name, set] : whole) {
    TableSpec spec = Valid();
    spec.optimizer.kind = OptimizerKind::kSgd;
    set(&spec);
    EXPECT_TRUE(ValidateTableSpec(spec).ok()) << name;
    spec.column_slices = 2;
    const absl::Status status = ValidateTableSpec(spec);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << name;
    EXPECT_THAT(std::string(status.message()),
                testing::AllOf(testing::HasSubstr("column_slices is 2"), testing::HasSubstr(name),
                               testing::HasSubstr("row_statistics=slice")));
    spec.row_statistics = RowStatistics::kSlice;
    EXPECT_TRUE(ValidateTableSpec(spec).ok()) << name;
  }
  for (const OptimizerKind kind :
       {OptimizerKind::kSgd, OptimizerKind::kMomentumSgd, OptimizerKind::kAdagrad,
        OptimizerKind::kAdam, OptimizerKind::kAdamW, OptimizerKind::kFtrl, OptimizerKind::kRmsProp,
        OptimizerKind::kLion, OptimizerKind::kAdadelta, OptimizerKind::kAmsGrad,
        OptimizerKind::kNone}) {
    TableSpec spec = Valid();
    spec.optimizer.kind = kind;
    spec.column_slices = 2;
    EXPECT_TRUE(ValidateTableSpec(spec).ok()) << static_cast<int>(kind);
  }
}

TEST(TableSpec, DefaultSeedVectors) {
  EXPECT_EQ(DefaultTableSeed(""), Mix64(0xcbf29ce484222325u));
  EXPECT_EQ(DefaultTableSeed("foobar"), Mix64(0x85944171f73967e8u));
}

}  // namespace table_spec_test
}  // namespace hotbed
