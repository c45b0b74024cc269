#include "checkpoint/restore_rules.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "tests/checkpoint/saved_checkpoint.h"

namespace hotbed {
namespace restore_rules_test {

TEST(RestoreRulesTest, NamePlacementDurabilityAndTypeMayDiffer) {
  TableSpec wanted = SavedTable();
  wanted.name = "other";
  wanted.durability = Durability::kReplicated;
  wanted.replicas = 2;
  wanted.weight_type = WeightType::kFp16;
  wanted.rows = 1000;
  wanted.optimizer.learning_rate = 0.5f;
  EXPECT_TRUE(CheckRestorable(SavedTable(), wanted).ok()) << CheckRestorable(SavedTable(), wanted);
}

TEST(RestoreRulesTest, WhatTheRowsDependOnMustBeEqual) {
  const std::vector<std::pair<std::string, std::function<void(TableSpec*)>>> cases = {
      {"hashed", [](TableSpec* t) { t->hashed = true; }},
      {"dim", [](TableSpec* t) { t->dim = 4; }},
      {"optimizer.kind", [](TableSpec* t) { t->optimizer.kind = OptimizerKind::kAdam; }},
      {"column_slices", [](TableSpec* t) { t->column_slices = 2; }},
      {"seed", [](TableSpec* t) { t->seed = 8; }},
      {"optimizer.touches", [](TableSpec* t) { t->optimizer.touches = true; }},
      {"rows is 99", [](TableSpec* t) { t->rows = 99; }},
  };
  for (const auto& [name, change] : cases) {
    TableSpec wanted = SavedTable();
    change(&wanted);
    const absl::Status checked = CheckRestorable(SavedTable(), wanted);
    EXPECT_TRUE(absl::IsInvalidArgument(checked)) << name;
    EXPECT_THAT(std::string(checked.message()), testing::HasSubstr(name));
  }
  TableSpec adagrad = SavedTable(), bf16 = adagrad;
  adagrad.optimizer.kind = bf16.optimizer.kind = OptimizerKind::kAdagrad;
  bf16.optimizer.state_type = StateType::kBf16;
  EXPECT_THAT(std::string(CheckRestorable(adagrad, bf16).message()),
              testing::HasSubstr("optimizer state"));
}

}  // namespace restore_rules_test
}  // namespace hotbed
