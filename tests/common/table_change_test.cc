// Changes of a table's options: which may follow which, and their effect on a push of a step.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/tables/table_spec.h"

namespace hotbed {
namespace table_change_test {

using ::testing::HasSubstr;

TableSpec Valid() {
  TableSpec spec;
  spec.name = "users";
  spec.rows = 100;
  spec.dim = 16;
  spec.optimizer.kind = OptimizerKind::kSgd;
  spec.optimizer.learning_rate = 1;
  return spec;
}

TableChange Rate(uint64_t at_step, float rate) {
  return {.at_step = at_step, .has_learning_rate = true, .learning_rate = rate};
}

float RateAt(const TableSpec& spec, uint64_t step) {
  return ResolvePush(spec, false, 0, step).learning_rate;
}

TEST(TableChange, HoldsFromItsStepOn) {
  TableSpec spec = Valid();
  ASSERT_TRUE(AddTableChange(Rate(10, 0.5f), &spec).ok());
  ASSERT_TRUE(AddTableChange(Rate(20, 0.25f), &spec).ok());
  EXPECT_EQ(RateAt(spec, 1), 1.0f);
  EXPECT_EQ(RateAt(spec, 9), 1.0f);
  EXPECT_EQ(RateAt(spec, 10), 0.5f);
  EXPECT_EQ(RateAt(spec, 19), 0.5f);
  EXPECT_EQ(RateAt(spec, 20), 0.25f);
  EXPECT_EQ(RateAt(spec, kTrainingStepMax), 0.25f);
  EXPECT_EQ(ResolvePush(spec, true, 4.0f, 20).learning_rate, 4.0f) << "a push's own goes first";
}

TEST(TableChange, WhatItDoesNotNameStays) {
  TableSpec spec = Valid();
  spec.optimizer.clip_value = 8;
  ASSERT_TRUE(
      AddTableChange({.at_step = 5, .has_clip_row_norm = true, .clip_row_norm = 2}, &spec).ok());
  ASSERT_TRUE(AddTableChange(Rate(7, 0.5f), &spec).ok());
  ASSERT_TRUE(AddTableChange({.at_step = 9,
                              .has_clip_value = true,
                              .clip_value = 0,
                              .has_schedule = true,
                              .schedule = {.kind = ScheduleKind::kStep, .step_size = 10}},
                             &spec)
                  .ok());
  const UpdateScalars at8 = ResolvePush(spec, false, 0, 8);
  EXPECT_EQ(at8.clip_value, 8.0f);
  EXPECT_EQ(at8.clip_row_norm, 2.0f);
  EXPECT_EQ(at8.learning_rate, 0.5f);
  const UpdateScalars at20 = ResolvePush(spec, false, 0, 20);
  EXPECT_EQ(at20.clip_value, 0.0f) << "switched off";
  EXPECT_EQ(at20.clip_row_norm, 2.0f);
  EXPECT_FLOAT_EQ(at20.learning_rate, 0.005f) << "the new schedule counts from step 0";
}

TEST(TableChange, OfTheLastStepAddsAndReplaces) {
  TableSpec spec = Valid();
  ASSERT_TRUE(AddTableChange(Rate(10, 0.5f), &spec).ok());
  ASSERT_TRUE(AddTableChange({.at_step = 10, .has_clip_value = true, .clip_value = 3}, &spec).ok());
  ASSERT_TRUE(AddTableChange(Rate(10, 0.125f), &spec).ok());
  ASSERT_EQ(spec.changes.size(), 1u);
  EXPECT_EQ(RateAt(spec, 10), 0.125f);
  EXPECT_EQ(ResolvePush(spec, false, 0, 10).clip_value, 3.0f);
}

TEST(TableChange, OfAnEarlierStepIsRefusedAndChangesNothing) {
  TableSpec spec = Valid();
  ASSERT_TRUE(AddTableChange(Rate(10, 0.5f), &spec).ok());
  const absl::Status early = AddTableChange(Rate(9, 0.25f), &spec);
  EXPECT_EQ(early.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(early.message()),
              HasSubstr("table \"users\": at_step is 9, allowed: 10"));
  EXPECT_FALSE(AddTableChange(Rate(11, -1.0f), &spec).ok());
  EXPECT_FALSE(AddTableChange({.at_step = 11}, &spec).ok()) << "nothing in it";
  ASSERT_EQ(spec.changes.size(), 1u);
  EXPECT_EQ(RateAt(spec, 100), 0.5f);
}

TEST(TableChange, TextNamesWhatIsInIt) {
  EXPECT_EQ(ChangeText(Rate(3, 0.5f)), "learning_rate=0.5");
  EXPECT_EQ(ChangeText({.at_step = 3,
                        .has_clip_value = true,
                        .clip_value = 0,
                        .has_clip_row_norm = true,
                        .clip_row_norm = 2,
                        .has_schedule = true,
                        .schedule = {.kind = ScheduleKind::kCosine,
                                     .warmup_steps = 5,
                                     .total_steps = 50,
                                     .min_factor = 0.25f}}),
            "clip_value=off clip_row_norm=2 schedule=cosine warmup-steps=5 total-steps=50 "
            "min-factor=0.25");
}

TEST(TableChange, StepZeroIsNoStep) {
  TableSpec spec = Valid();
  EXPECT_THAT(std::string(AddTableChange(Rate(0, 0.5f), &spec).message()),
              HasSubstr("at_step is 0, allowed: 1.."));
}

TEST(TableChange, ThereIsAnEndToThem) {
  TableSpec spec = Valid();
  for (uint64_t step = 1; step <= kTableChangesMax; ++step) {
    ASSERT_TRUE(AddTableChange(Rate(step, 0.5f), &spec).ok());
  }
  EXPECT_THAT(std::string(AddTableChange(Rate(1000, 0.5f), &spec).message()),
              HasSubstr("changes is 257, allowed: at most 256"));
  EXPECT_TRUE(AddTableChange(Rate(kTableChangesMax, 0.25f), &spec).ok()) << "the last may be again";
}

TEST(TableChange, PoliciesHoldAtOnceAndAdmissionStays) {
  TableSpec spec = Valid();
  spec.hashed = true;
  spec.optimizer.touches = true;
  spec.life = {.ttl_s = 60, .rows_max = 1000};
  spec.life.admission.after = 3;
  LifeParams life = {.ttl_s = 5, .evict_by = EvictBy::kLru};
  life.admission.after = 9;
  ASSERT_TRUE(AddTableChange({.at_step = 8, .has_life = true, .life = life}, &spec).ok());
  EXPECT_EQ(LifeOf(spec).ttl_s, 5u);
  EXPECT_EQ(RowsMaxOf(spec), 0u);
  EXPECT_EQ(LifeOf(spec).admission.after, 3u) << "replicas would not agree from when on";
  EXPECT_THAT(ChangeText(spec.changes[0]), HasSubstr("ttl_s=5 ttl_steps=0 rows_max=0"));
  const absl::Status refused =
      AddTableChange({.at_step = 8, .has_life = true, .life = {.evict_by = EvictBy::kLfu}}, &spec);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("life.evict_by is lfu, allowed: lru"));
  EXPECT_EQ(LifeOf(spec).ttl_s, 5u);
}

}  // namespace table_change_test
}  // namespace hotbed
