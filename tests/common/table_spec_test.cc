#include "common/table_spec.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

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

TEST(TableSpec, OneOfTwoWaysToSayAThingIsKept) {
  TableSpec spec = Valid();
  spec.consistency = Consistency::kBounded;
  spec.padding_id = 7;  // and has none
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

// Part of the format: FNV-1a 64 through Mix64. The hashes of "" and "foobar" are from the FNV
// authors' test vectors.
TEST(TableSpec, DefaultSeedVectors) {
  EXPECT_EQ(DefaultTableSeed(""), Mix64(0xcbf29ce484222325u));
  EXPECT_EQ(DefaultTableSeed("foobar"), Mix64(0x85944171f73967e8u));
}

}  // namespace
}  // namespace hotbed
