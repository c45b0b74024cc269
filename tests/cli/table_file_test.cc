#include "cli/table_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace hotbed {
namespace {

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
  EXPECT_EQ(second(R"("name": "b", "dim": 4, "rows": 5, "optimizer": "adamw")"),
            "tables[1].optimizer: 'adamw' is not one of sgd, adagrad, rowwise-adagrad, adam");
  EXPECT_THAT(second(R"("name": "b", "dim": 4, "rows": 5, "init": "unifrm:1,2")"),
              HasSubstr("tables[1].init: --init 'unifrm:1,2' is not one of"));
  EXPECT_EQ(second(R"("name": "a", "dim": 4, "rows": 5)"),
            "tables[1].name: 'a' is the name of tables[0] too");
  EXPECT_THAT(second(R"("name": "b", "dim": 4, "rows": 5, "weight-decay": 1, "weight_decay": 2)"),
              HasSubstr("tables[1].weight_decay: unknown key 'weight_decay'"));
  EXPECT_THAT(ErrorOf("{}"), HasSubstr("expected a list of tables"));
  EXPECT_THAT(ErrorOf("[]"), HasSubstr("an empty one"));
  EXPECT_NE(ErrorOf("[5]"), "accepted");
  EXPECT_NE(ErrorOf("["), "accepted");
}

}  // namespace
}  // namespace hotbed
