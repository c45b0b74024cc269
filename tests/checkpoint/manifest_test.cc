#include "checkpoint/manifest.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "common/files/crc32c.h"
#include "tests/checkpoint/saved_checkpoint.h"

namespace hotbed {
namespace manifest_test {

v1::CheckpointManifest Sample() {
  v1::CheckpointManifest manifest;
  manifest.set_format(kCheckpointFormat);
  manifest.set_name("one");
  v1::CheckpointTable& table = *manifest.add_tables();
  *table.mutable_spec() = ToProto(SavedTable());
  table.mutable_spec()->set_seed(~uint64_t{0});
  table.mutable_spec()->mutable_optimizer()->set_learning_rate(0.1f);
  table.mutable_spec()->set_dim(3);
  for (uint32_t i = 0; i < 4; ++i) {  // two ranges of two slices
    v1::CheckpointShard& shard = *table.add_shards();
    shard.set_index(i);
    shard.set_range_first(i % 2 * 50);
    shard.set_range_limit(i % 2 * 50 + 50);
    shard.set_column_first(i < 2 ? 0 : 2);
    shard.set_column_limit(i < 2 ? 2 : 3);
    shard.set_lsn(1ull << 60);
  }
  return manifest;
}

TEST(ManifestTest, ReadsWhatItWrote) {
  const std::string text = ManifestText(Sample());
  const auto parsed = ParseManifest(text);
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ(parsed->SerializeAsString(), Sample().SerializeAsString());
  EXPECT_THAT(text, testing::HasSubstr("\"range_limit\": \"50\""));
  const auto found = FindTable(*parsed, "item");
  EXPECT_TRUE(absl::IsNotFound(found.status()));
  EXPECT_THAT(std::string(found.status().message()), testing::HasSubstr("it has: user"));
}

TEST(ManifestTest, DamageIsFound) {
  const std::string text = ManifestText(Sample());
  for (size_t i = 0; i < text.size(); i += 7) {
    std::string damaged = text;
    damaged[i] ^= 4;
    EXPECT_TRUE(absl::IsDataLoss(ParseManifest(damaged).status())) << "byte " << i;
    EXPECT_TRUE(absl::IsDataLoss(ParseManifest(text.substr(0, i)).status())) << "cut at " << i;
  }
}

TEST(ManifestTest, AnotherFormatIsRefused) {
  v1::CheckpointManifest other = Sample();
  other.set_format(2);
  const auto parsed = ParseManifest(ManifestText(other));
  EXPECT_TRUE(absl::IsFailedPrecondition(parsed.status())) << parsed.status();
  EXPECT_EQ(parsed.status().message(), "format 2, this program reads 1, 2 with zstd, 3 and 4");
}

TEST(ManifestTest, ShardsThatDoNotTileTheirTableAreRefused) {
  const std::vector<std::function<void(v1::CheckpointTable*)>> spoils = {
      [](v1::CheckpointTable* t) { t->mutable_shards()->RemoveLast(); },
      [](v1::CheckpointTable* t) { t->mutable_shards()->DeleteSubrange(0, 1); },
      [](v1::CheckpointTable* t) { t->mutable_shards()->DeleteSubrange(1, 1); },
      [](v1::CheckpointTable* t) { t->mutable_shards(1)->set_range_first(51); },
      [](v1::CheckpointTable* t) { t->mutable_shards(1)->set_range_limit(50); },
      [](v1::CheckpointTable* t) { t->mutable_shards(1)->set_range_limit(99); },
      [](v1::CheckpointTable* t) { t->mutable_shards(2)->set_column_first(1); },
      [](v1::CheckpointTable* t) { t->mutable_shards(3)->set_column_limit(4); },
      [](v1::CheckpointTable* t) { t->mutable_spec()->set_rows(101); },
      [](v1::CheckpointTable* t) { t->mutable_spec()->set_dim(4); },
      [](v1::CheckpointTable* t) { t->clear_shards(); },
  };
  for (size_t i = 0; i < spoils.size(); ++i) {
    v1::CheckpointManifest manifest = Sample();
    spoils[i](manifest.mutable_tables(0));
    EXPECT_TRUE(absl::IsDataLoss(ParseManifest(ManifestText(manifest)).status())) << "case " << i;
  }
}

}  // namespace manifest_test
}  // namespace hotbed
