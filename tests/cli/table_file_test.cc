#include "cli/tables/table_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "cli/tables/table_option.h"
#include "cli/tables/table_text.h"
#include "proto/convert.h"

namespace hotbed {
namespace table_file_test {

using ::testing::HasSubstr;

std::string ErrorOf(const std::string& text) {
  const auto tables = ReadTableFile(text);
  return tables.ok() ? "accepted" : std::string(tables.status().message());
}

TEST(TableFile, EveryKey) {
  const auto tables = ReadTableFile(R"([
      {"name": "user", "dim": 64, "rows": 1000000},
      {"name": "query", "dim": 8, "hashed": true, "rows": 5, "optimizer": "adam", "lr": 0.5,
       "eps": 0.25, "beta1": 0.5, "beta2": 0.75, "weight-decay": 0.125, "initial_accumulator": 2,
       "init": "truncated_normal:0,0.5", "weight_type": "bf16", "durability": "checkpoint",
       "nan": "skip", "seed": 7, "shards": 16}])");
  ASSERT_TRUE(tables.ok()) << tables.status();
  ASSERT_EQ(tables->size(), 2u);
  const TableSpec& user = (*tables)[0].spec;
  EXPECT_EQ(user.name, "user");
  EXPECT_EQ(user.rows, 1000000u);
  EXPECT_EQ(user.optimizer.kind, OptimizerKind::kRowwiseAdagrad) << "the flag's default";
  EXPECT_EQ(user.durability, Durability::kLog);
  EXPECT_EQ((*tables)[0].shards, 0u);
  const TableSpec& query = (*tables)[1].spec;
  EXPECT_TRUE(query.hashed);
  EXPECT_EQ(query.rows, 5u);
  EXPECT_EQ(query.optimizer.kind, OptimizerKind::kAdam);
  EXPECT_EQ(query.optimizer.learning_rate, 0.5f);
  EXPECT_EQ(query.optimizer.epsilon, 0.25f);
  EXPECT_EQ(query.optimizer.beta1, 0.5f);
  EXPECT_EQ(query.optimizer.beta2, 0.75f);
  EXPECT_EQ(query.optimizer.weight_decay, 0.125f);
  EXPECT_EQ(query.optimizer.initial_accumulator, 2.0f);
  EXPECT_EQ(query.initializer.kind, InitializerKind::kTruncatedNormal);
  EXPECT_EQ(query.weight_type, WeightType::kBf16);
  EXPECT_EQ(query.durability, Durability::kCheckpoint);
  EXPECT_EQ(query.nan_policy, NanPolicy::kSkip);
  EXPECT_EQ(query.seed, 7u);
  EXPECT_EQ((*tables)[1].shards, 16u);
}

// Every option at a value other than its default, in the form of describe.
// Options that go with none of the others.
const std::vector<std::string>& LeftOut() {
  static const auto* const names =
      new std::vector<std::string>{"hashed",       "row-bias-correction",
                                   "counter-mode", "average-rate",
                                   "touches",      "ttl-s",
                                   "ttl-steps",    "rows-max",
                                   "bytes-max",    "evict-by",
                                   "admit-after",  "admit-probability",
                                   "admit-zeros",  "admit-by",
                                   "admit-ids",    "admit-false-positives",
                                   "compose",      "combine",
                                   "pool-first",   "buckets",
                                   "block-dims",   "shows",
                                   "show-decay",   "show-period-s",
                                   "score-show",   "score-click",
                                   "score-least",  "vocabulary"};
  return *names;
}

TEST(TableFile, WhatIsWrittenOfATableIsReadBack) {
  TableSpec spec;
  spec.id = 9;
  spec.name = "all";
  spec.dim = 12;
  spec.rows = 100;
  spec.weight_type = WeightType::kBf16;
  spec.optimizer = {.kind = OptimizerKind::kAdagrad,
                    .learning_rate = 0.1f,
                    .epsilon = 0.3f,
                    .beta1 = 0.7f,
                    .beta2 = 0.77f,
                    .weight_decay = 1e-7f,
                    .initial_accumulator = 0.1f,
                    .momentum = 0.33f,
                    .trust_coefficient = 0.2f,
                    .l1 = 1.0f / 3,
                    .l2 = 2.0f / 3,
                    .ftrl_beta = 0.9f,
                    .clip_value = 16777217.0f,
                    .clip_row_norm = 1e30f,
                    .max_norm = 1.1f,
                    .max_norm_type = 3.0f,
                    .decay_mode = DecayMode::kDecoupled,
                    .lazy_decay = true,
                    .lazy_decay_least = 0.3f,
                    .stochastic_rounding = true,
                    .state_type = StateType::kBf16,
                    .counter = {CounterMode::kDecay, 0.1f, 11, 0.2f, 0.3f, 0.4f, 0.6f, 0.7f},
                    .average = {0, 7, 40}};
  spec.initializer = {InitializerKind::kUniform, -1.0f / 3, 0.1f};
  spec.seed = (uint64_t{1} << 63) + 1;
  spec.memory_share_min = 0.1f;
  spec.memory_share_max = 0.7f;
  spec.durability = Durability::kReplicated;
  spec.replicas = 3;
  spec.data_parallel = true;
  spec.nan_policy = NanPolicy::kSkip;
  spec.column_slices = 3;
  spec.row_statistics = RowStatistics::kSlice;
  spec.has_padding_id = true;
  spec.padding_id = 99;
  spec.bounds_mode = BoundsMode::kModulo;
  spec.gradient_reduction = GradientReduction::kMean;
  spec.consistency = Consistency::kBounded;
  spec.staleness = 4;
  spec.clip_slice_norm = 0.1f;
  spec.schedule = {ScheduleKind::kStep, (uint64_t{1} << 60) + 1, 0.1f, 7, 0.2f, 9, 0.3f};
  spec.changes = {{.at_step = 5, .has_learning_rate = true, .learning_rate = 0.7f},
                  {.at_step = 6,
                   .has_clip_value = true,
                   .clip_value = 0,
                   .has_clip_row_norm = true,
                   .clip_row_norm = 0.1f,
                   .has_schedule = true,
                   .schedule = {ScheduleKind::kCosine, 3, 0, 12, 0.5f}}};
  const TableSpec defaults = DefaultTableSpec();
  for (const TableOption& option : TableOptionList()) {
    const bool left = absl::c_linear_search(LeftOut(), option.name);
    EXPECT_EQ(option.print(spec) == option.print(defaults), left)
        << option.name << " is at its default: give it another value above";
  }
  const auto read = ReadTableFile(TableJson(spec).dump());
  ASSERT_TRUE(read.ok()) << read.status();
  spec.id = 0;
  EXPECT_EQ(ToProto((*read)[0].spec).DebugString(), ToProto(spec).DebugString());
}

TEST(TableFile, ACompositionIsReadBack) {
  TableSpec spec;
  spec.name = "user";
  spec.rows = 100;
  spec.dim = 8;
  std::vector<Composition> compositions(2);
  compositions[0].form = ComposeForm::kQuotientRemainder;
  compositions[0].combine = Combine::kAdd;
  compositions[0].pool_first = true;
  compositions[0].buckets = 7;
  compositions[1].form = ComposeForm::kBlock;
  compositions[1].block_dims = {8, 2};
  for (const Composition& composition : compositions) {
    spec.composition = composition;
    const auto read = ReadTableFile(TableJson(spec).dump());
    ASSERT_TRUE(read.ok()) << read.status();
    EXPECT_EQ((*read)[0].spec.composition, composition);
  }
  spec.composition.table = "users";  // a part
  const auto part = ReadTableFile(TableJson(spec).dump());
  EXPECT_TRUE(absl::StrContains(part.status().message(), "list that one")) << part.status();
}

TEST(TableFile, AnAverageIsReadBack) {  // not with column slices, which the table above has
  TableSpec spec = DefaultTableSpec();
  spec.name = "average";
  spec.dim = 12;
  spec.rows = 100;
  spec.optimizer.average = {0.25f, 7, 40};
  const auto read = ReadTableFile(TableJson(spec).dump());
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ((*read)[0].spec.optimizer.average.rate, 0.25f);
  EXPECT_EQ((*read)[0].spec.optimizer.average.every, 7u);
}

TEST(TableFile, PoliciesAreReadBack) {  // of hashed tables, which the table above is not
  TableSpec spec = DefaultTableSpec();
  spec.name = "living";
  spec.dim = 12;
  spec.hashed = true;
  spec.optimizer.touches = true;
  spec.optimizer.shows = {true, 0.5f, 60};
  spec.life = {1, 2, 3, 4, EvictBy::kScore, {0.5f, 2.0f, 0.25f}, {5, 1.0f, true}};
  const auto read = ReadTableFile(TableJson(spec).dump());
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_TRUE((*read)[0].spec.optimizer.touches);
  EXPECT_EQ((*read)[0].spec.optimizer.shows.period_s, 60u);
  EXPECT_TRUE((*read)[0].spec.life == spec.life);
}

TEST(TableFile, OptionsOfOtherTablesAreReadBack) {
  const auto hashed = ReadTableFile(
      R"([{"name": "h", "dim": 4, "hashed": true, "padding_id": -1, "optimizer": "adam",
           "row_bias_correction": true},
          {"name": "c", "dim": 4, "rows": 4, "optimizer": "rowwise-adagrad-counter",
           "counter_mode": "tail-increase"}])");
  ASSERT_TRUE(hashed.ok()) << hashed.status();
  EXPECT_EQ((*hashed)[0].spec.padding_id, ~uint64_t{0});
  EXPECT_TRUE((*hashed)[0].spec.optimizer.row_bias_correction);
  EXPECT_EQ((*hashed)[1].spec.optimizer.counter.mode, CounterMode::kTailIncrease);
}

TEST(TableFile, ErrorsNameEntryFieldAndValue) {
  const auto second = [](const std::string& fields) {
    return ErrorOf("[{\"name\": \"a\", \"dim\": 4, \"rows\": 5}, {" + fields + "}]");
  };
  EXPECT_EQ(second(R"("name": "b", "rows": 5)"), "tables[1].dim: missing");
  EXPECT_EQ(second(R"("name": "b", "dim": 4)"), "tables[1].rows: missing");
  EXPECT_EQ(second(R"("name": "b", "dmi": 4, "rows": 5)"),
            "tables[1].dmi: unknown key 'dmi'; the nearest known one is 'dim'");
  EXPECT_THAT(
      second(R"("name": "b", "dim": 9000, "rows": 5)"),
      testing::AllOf(HasSubstr("tables[1]: "), HasSubstr("dim is 9000"), HasSubstr("8192")));
  EXPECT_THAT(second(R"("name": "b", "dim": "wide", "rows": 5)"), HasSubstr("tables[1].dim: "));
  EXPECT_EQ(second(R"("name": "b", "dim": 4, "rows": 5, "optimizer": "adamw2")"),
            "tables[1].optimizer: 'adamw2' is not one of sgd, adagrad, rowwise-adagrad, adam, "
            "momentum-sgd, adamw, partial-rowwise-adam, lamb, partial-rowwise-lamb, lars, ftrl, "
            "rmsprop, none, rowwise-rmsprop, lion, adadelta, amsgrad, "
            "rowwise-adagrad-counter; did you mean 'adamw'?");
  EXPECT_THAT(second(R"("name": "b", "dim": 4, "rows": 5, "init": "unifrm:1,2")"),
              HasSubstr("tables[1].init: 'unifrm:1,2' is not one of"));
  EXPECT_EQ(second(R"("name": "a", "dim": 4, "rows": 5)"),
            "tables[1].name: 'a' is the name of tables[0] too");
  EXPECT_THAT(second(R"("name": "b", "dim": 4, "rows": 5, "weight-decay": 1, "weight_decay": 2)"),
              HasSubstr("tables[1].weight_decay: given twice, as 'weight-decay' too"));
  EXPECT_THAT(second(R"("name": "b", "dim": 4, "rows": 5, "lr": 1, "learning_rate": 2)"),
              HasSubstr("given twice"));
  EXPECT_THAT(
      second(R"("name": "b", "dim": 4, "rows": 5, "optimizer": {"kind": "adam", "bta1": 0})"),
      HasSubstr("tables[1].optimizer.bta1: unknown key"));
  EXPECT_THAT(second(R"("name": "b", "dim": 4, "rows": 5, "optimizer": {"rows": 7})"),
              HasSubstr("tables[1].optimizer.rows: unknown key"));
  EXPECT_THAT(second(R"("name": "b", "dim": 4.5, "rows": 5)"),
              HasSubstr("tables[1].dim: expected a whole number, found 4.5"));
  EXPECT_THAT(second(R"("name": "b", "dim": 4, "rows": 5, "lr": "0.1")"),
              HasSubstr("tables[1].lr: expected a number"));
  EXPECT_THAT(second(R"("name": "b", "dim": 4, "rows": 5, "lazy-decay": 1)"),
              HasSubstr("tables[1].lazy-decay: expected true or false"));
  EXPECT_THAT(second(R"("name": "b", "dim": 4, "rows": 5, "changes": [{"at_step": 4, "dim": 8}])"),
              HasSubstr("tables[1].changes[0].dim: unknown key"));
  EXPECT_THAT(ErrorOf("{}"), HasSubstr("tables[0].name: missing"));
  EXPECT_THAT(ErrorOf("[]"), HasSubstr("an empty one"));
  EXPECT_NE(ErrorOf("[5]"), "accepted");
  EXPECT_NE(ErrorOf("["), "accepted");
}

}  // namespace table_file_test
}  // namespace hotbed
