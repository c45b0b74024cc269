#include "server/catalog_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/fault_file_system.h"

namespace hotbed {
namespace {

Catalog Sample() {
  Catalog catalog;
  TableSpec table;
  table.id = 3;
  table.name = "clicks \xc3\xa9";
  table.hashed = true;
  table.rows = 1ull << 40;
  table.dim = 64;
  table.weight_type = WeightType::kBf16;
  table.optimizer.kind = OptimizerKind::kAdam;
  table.optimizer.beta2 = 0.95f;
  table.initializer = {InitializerKind::kTruncatedNormal, 0.5f, 0.25f};
  table.seed = 0xfedcba9876543210ull;
  table.durability = Durability::kCheckpoint;
  table.nan_policy = NanPolicy::kSkip;
  catalog.tables[3] = table;
  catalog.shards[{3, 0}] = {0, 100, 0, 64};
  catalog.shards[{3, 7}] = {100, 65536, 0, 64};
  return catalog;
}

TEST(CatalogFileTest, ReadsWhatItWrote) {
  FaultFileSystem files(1);
  ASSERT_TRUE(files.MakeDir("/d").ok());
  EXPECT_TRUE(Catalog::Load("/d/CATALOG", &files)->tables.empty());
  const Catalog catalog = Sample();
  ASSERT_TRUE(catalog.Save("/d/CATALOG", &files).ok());
  const auto loaded = Catalog::Load("/d/CATALOG", &files);
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  EXPECT_EQ(loaded->Serialize(), catalog.Serialize());
  const TableSpec& table = loaded->tables.at(3);
  EXPECT_EQ(table.name, "clicks \xc3\xa9");
  EXPECT_TRUE(table.hashed);
  EXPECT_EQ(table.optimizer.kind, OptimizerKind::kAdam);
  EXPECT_EQ(table.optimizer.beta2, 0.95f);
  EXPECT_EQ(table.initializer.b, 0.25f);
  EXPECT_EQ(table.nan_policy, NanPolicy::kSkip);
  EXPECT_EQ(table.durability, Durability::kCheckpoint);
  EXPECT_EQ((loaded->shards.at({3, 7}).limit), 65536u);
}

TEST(CatalogFileTest, DamageAndOtherVersionsAreRefused) {
  const std::string bytes = Sample().Serialize();
  for (size_t i = 0; i < bytes.size(); ++i) {
    std::string damaged = bytes;
    damaged[i] ^= 0x20;
    EXPECT_FALSE(Catalog::Parse(damaged).ok()) << "byte " << i;
    EXPECT_FALSE(Catalog::Parse(bytes.substr(0, i)).ok()) << "cut at " << i;
  }
}

}  // namespace
}  // namespace hotbed
