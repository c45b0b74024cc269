#include "common/table_spec.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>

#include "row_math/position.h"

namespace hotbed {
namespace {

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

TEST(TableSpec, RefusesEachBadField) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const std::pair<const char*, std::function<void(TableSpec*)>> cases[] = {
      {"name", [](TableSpec* s) { s->name = ""; }},
      {"name", [](TableSpec* s) { s->name = "a b"; }},
      {"name", [](TableSpec* s) { s->name = std::string(201, 'a'); }},
      {"dim", [](TableSpec* s) { s->dim = 0; }},
      {"rows", [](TableSpec* s) { s->rows = 0; }},
      {"rows", [](TableSpec* s) { s->rows = ~uint64_t{0}; }},
      {"weight_type", [](TableSpec* s) { s->weight_type = static_cast<WeightType>(9); }},
      {"optimizer.kind", [](TableSpec* s) { s->optimizer.kind = static_cast<OptimizerKind>(9); }},
      {"optimizer.epsilon", [](TableSpec* s) { s->optimizer.epsilon = 0; }},
      {"optimizer.beta1", [](TableSpec* s) { s->optimizer.beta1 = 1; }},
      {"optimizer.beta2", [nan](TableSpec* s) { s->optimizer.beta2 = nan; }},
      {"optimizer.learning_rate", [nan](TableSpec* s) { s->optimizer.learning_rate = nan; }},
      {"optimizer.weight_decay", [](TableSpec* s) { s->optimizer.weight_decay = -1; }},
      {"initializer.a", [nan](TableSpec* s) { s->initializer.a = nan; }},
      {"initializer.a",
       [](TableSpec* s) {
         s->initializer = {InitializerKind::kUniform, 1.0f, 0.5f};
       }},
      {"initializer.b",
       [](TableSpec* s) {
         s->initializer = {InitializerKind::kNormal, 0.0f, -1.0f};
       }},
      {"durability", [](TableSpec* s) { s->durability = static_cast<Durability>(9); }},
      {"nan_policy", [](TableSpec* s) { s->nan_policy = static_cast<NanPolicy>(9); }},
  };
  for (const auto& [field, spoil] : cases) {
    TableSpec spec = Valid();
    spoil(&spec);
    EXPECT_THAT(std::string(ValidateTableSpec(spec).message()), testing::HasSubstr(field));
  }
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

// What needs the whole row is sliced only where a slice is what it means by a row (DECISIONS P5).
TEST(TableSpec, WholeRowStatisticsAreSlicedOnlyOnRequest) {
  const std::pair<const char*, std::function<void(TableSpec*)>> whole[] = {
      {"rowwise-adagrad", [](TableSpec* s) { s->optimizer.kind = OptimizerKind::kRowwiseAdagrad; }},
      {"partial-rowwise-adam",
       [](TableSpec* s) { s->optimizer.kind = OptimizerKind::kPartialRowwiseAdam; }},
      {"lamb", [](TableSpec* s) { s->optimizer.kind = OptimizerKind::kLamb; }},
      {"partial-rowwise-lamb",
       [](TableSpec* s) { s->optimizer.kind = OptimizerKind::kPartialRowwiseLamb; }},
      {"lars", [](TableSpec* s) { s->optimizer.kind = OptimizerKind::kLars; }},
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

}  // namespace
}  // namespace hotbed
