#include "server/host/catalog_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/files/byte_reader.h"
#include "common/files/crc32c.h"
#include "tests/common/fault_file_system.h"

namespace hotbed {
namespace catalog_file_test {

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
  table.optimizer.max_norm_type = 1.0f;
  table.optimizer.counter = {.mode = CounterMode::kCowClip, .clip_least = 0.5f};
  table.optimizer.average = {0.25f, 7, 40};
  table.initializer = {InitializerKind::kTruncatedNormal, 0.5f, 0.25f};
  table.seed = 0xfedcba9876543210ull;
  table.durability = Durability::kCheckpoint;
  table.nan_policy = NanPolicy::kSkip;
  table.padding_id = 5;
  table.has_padding_id = true;
  table.schedule.gamma = 0.75f;
  table.optimizer.touches = true;
  table.life = {.ttl_s = 60, .rows_max = 1'000'000, .evict_by = EvictBy::kLfu};
  table.life.admission.after = 3;
  table.life.score = {.show = 0.5f, .click = 3, .least = 0.25f};
  table.optimizer.shows = {true, 0.75f, 3600};
  table.vocabulary = 77;
  table.life.admission.by = AdmitBy::kBloom;
  table.life.admission.ids = 77;
  table.life.admission.false_positives = 0.25f;
  table.changes.push_back({.at_step = 9, .has_clip_value = true, .clip_value = 2});
  table.changes.push_back({.at_step = 12, .has_schedule = true, .schedule = {.step_size = 4}});
  table.changes.push_back({.at_step = 15, .has_life = true, .life = {.ttl_s = 4, .bytes_max = 5}});
  table.changes.back().life.score.least = 0.125f;
  catalog.tables[3] = table;
  catalog.shards[{3, 0}] = {0, 100, 0, 64};
  catalog.shards[{3, 7}] = {100, 65536, 0, 64};
  return catalog;
}

// A server that is upgraded finds what an earlier version has written.
TEST(CatalogFileTest, ReadsTheFormatWithoutCutsMergesAndLives) {
  Catalog catalog = Sample();
  TableSpec& old = catalog.tables.at(3);
  old.optimizer.touches = false;
  old.optimizer.shows = ShowParams();
  old.life = LifeParams();
  old.vocabulary = 0;
  old.changes.pop_back();
  const std::string bytes = catalog.Serialize();
  constexpr size_t kPolicyBytes = 4 * 8 + 1 + 4 + 4 + 1;
  constexpr size_t kScoreBytes = 3 * 4 + (1 + 8 + 4);  // with the filter
  constexpr size_t kStatisticsBytes = 8 + 1 + 4 + 4 + kScoreBytes;
  constexpr size_t kLifeBytes =
      1 + kPolicyBytes + kStatisticsBytes + 2 * (1 + kPolicyBytes + kScoreBytes);
  constexpr size_t kCountBytes = 3 * sizeof(uint32_t);  // of cuts, merges and lanes
  std::string older = bytes.substr(0, bytes.size() - sizeof(uint32_t) - kLifeBytes - kCountBytes);
  older[std::string("HOTBDCAT").size()] = 6;
  AppendLittle<uint32_t>(Crc32c(older.data(), older.size()), &older);
  const auto parsed = Catalog::Parse(older);
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ(parsed->Serialize(), bytes);
  for (const char version : {5, 12}) {
    older.resize(older.size() - sizeof(uint32_t));
    older[std::string("HOTBDCAT").size()] = version;
    AppendLittle<uint32_t>(Crc32c(older.data(), older.size()), &older);
    EXPECT_EQ(Catalog::Parse(older).status().code(), absl::StatusCode::kFailedPrecondition);
  }
}

TEST(CatalogFileTest, ReadsWhatItWrote) {
  FaultFileSystem files(1);
  ASSERT_TRUE(files.MakeDir("/d").ok());
  KeptFile file("/d/CATALOG", &files, {});
  EXPECT_EQ(Catalog::Load(&file).status().code(), absl::StatusCode::kNotFound);
  Catalog catalog = Sample();
  catalog.installing.insert({3, 0});
  catalog.merges[{3, 7}] = {{3, 8}, 200, {4, 17}, {{7, 9, 7, 100, 200}, {8, 10, 8, 200, 65536}}};
  ASSERT_TRUE(catalog.Save(&file).ok());
  const auto loaded = Catalog::Load(&file);
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  EXPECT_EQ(loaded->Serialize(), catalog.Serialize());
  EXPECT_EQ(loaded->installing, catalog.installing);
  const Catalog::Merge& merge = loaded->merges.at({3, 7});
  EXPECT_EQ(merge.with, (ShardId{3, 8}));
  EXPECT_EQ(merge.boundary, 200u);
  EXPECT_EQ(merge.base, (LogEnd{4, 17}));
  EXPECT_EQ(merge.lanes, catalog.merges.at({3, 7}).lanes);
  const TableSpec& table = loaded->tables.at(3);
  EXPECT_EQ(table.name, "clicks \xc3\xa9");
  EXPECT_TRUE(table.hashed);
  EXPECT_EQ(table.optimizer.kind, OptimizerKind::kAdam);
  EXPECT_EQ(table.optimizer.beta2, 0.95f);
  EXPECT_EQ(table.optimizer.max_norm_type, 1.0f);
  EXPECT_EQ(table.optimizer.counter.mode, CounterMode::kCowClip);
  EXPECT_EQ(table.optimizer.counter.clip_least, 0.5f);
  EXPECT_EQ(table.optimizer.average.rate, 0.25f);
  EXPECT_EQ(table.optimizer.average.every, 7u);
  EXPECT_EQ(table.optimizer.average.from_step, 40u);
  EXPECT_EQ(table.initializer.b, 0.25f);
  EXPECT_EQ(table.nan_policy, NanPolicy::kSkip);
  EXPECT_EQ(table.durability, Durability::kCheckpoint);
  EXPECT_EQ(table.padding_id, 5u);
  EXPECT_EQ(table.schedule.gamma, 0.75f);
  EXPECT_EQ(table.changes, catalog.tables.at(3).changes);
  EXPECT_TRUE(table.optimizer.touches);
  EXPECT_EQ(table.life.ttl_s, 60u);
  EXPECT_EQ(table.life.rows_max, 1'000'000u);
  EXPECT_EQ(table.life.evict_by, EvictBy::kLfu);
  EXPECT_EQ(table.life.admission.after, 3u);
  EXPECT_EQ(table.life, catalog.tables.at(3).life);
  EXPECT_EQ(table.vocabulary, 77u);
  EXPECT_TRUE(table.optimizer.shows.kept);
  EXPECT_EQ(table.optimizer.shows.decay, 0.75f);
  EXPECT_EQ(table.optimizer.shows.period_s, 3600u);
  EXPECT_EQ((loaded->shards.at({3, 7}).limit), 65536u);
}

// Sizes of all fields, and the empty list of changes: a field that is added to a table and not to
// the file changes one side only. Servers do not keep `composition`: clients use it.
TEST(CatalogFileTest, EveryFieldOfATableIsInTheFile) {
  [[maybe_unused]] const auto& [id, name, hashed, rows, vocabulary, dim, weight_type, optimizer,
                                initializer, seed, durability, replicas, data_parallel, nan_policy,
                                column_slices, row_statistics, has_padding_id, padding_id,
                                bounds_mode, gradient_reduction, consistency, staleness,
                                clip_slice_norm, schedule, memory_share_min, memory_share_max, life,
                                restored_from, composition, changes] = TableSpec();
  [[maybe_unused]] const auto& [ttl_s, ttl_steps, rows_max, bytes_max, evict_by, score, admission] =
      life;
  [[maybe_unused]] const auto& [show, click, least] = score;
  [[maybe_unused]] const auto& [after, probability, zeros, by, ids, false_positives] = admission;
  [[maybe_unused]] const auto& [kind, learning_rate, epsilon, beta1, beta2, weight_decay,
                                initial_accumulator, momentum, trust_coefficient, l1, l2, ftrl_beta,
                                clip_value, clip_row_norm, max_norm, max_norm_type, decay_mode,
                                lazy_decay, lazy_decay_least, row_bias_correction,
                                stochastic_rounding, touches, shows, state_type, counter, average] =
      optimizer;
  [[maybe_unused]] const auto& [kept, decay, period_s] = shows;
  [[maybe_unused]] const auto& [mode, half_life, from_step, threshold, most, power,
                                clip_coefficient, clip_least] = counter;
  [[maybe_unused]] const auto& [checkpoint, restored_table, sessions] = restored_from;
  [[maybe_unused]] const auto& [rate, every, average_from_step] = average;
  Catalog empty, one;
  one.tables[1].id = 1;
  const size_t initializer_bytes = 1 + 4 + 4;
  const size_t counter_bytes = 1 + 8 + 6 * 4;
  const size_t average_bytes = 4 + 8 + 8;
  const size_t optimizer_bytes = 1 + 16 * 4 + 5 + counter_bytes + average_bytes;
  const size_t schedule_bytes = 1 + 3 * 8 + 3 * 4;
  EXPECT_EQ(one.Serialize().size() - empty.Serialize().size(),
            4 + 4 + 1 + 8 + 4 + 1 + optimizer_bytes + initializer_bytes + 8 + 1 + 4 + 1 + 1 + 4 +
                1 + 1 + 8 + 1 + 1 + 1 + 4 + 4 + schedule_bytes + 4 + 4 + (4 + 4 + 1) + 4 +
                (1 + 4 * 8 + 1 + 4 + 4 + 1) + (8 + 1 + 4 + 4 + 3 * 4 + (1 + 8 + 4)));
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

}  // namespace catalog_file_test
}  // namespace hotbed
