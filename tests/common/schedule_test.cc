#include "common/schedule.h"

#include <gtest/gtest.h>

#include <cmath>

namespace hotbed {
namespace {

TEST(Schedule, ConstantIsTheRate) {
  const Schedule constant;
  for (const uint64_t step : {0ull, 1ull, 1000ull, ~0ull})
    EXPECT_EQ(constant.RateAt(0.3f, step), 0.3f);
}

TEST(Schedule, EveryKindWarmsUpInALine) {
  for (const ScheduleKind kind : {ScheduleKind::kConstant, ScheduleKind::kInverseSqrt,
                                  ScheduleKind::kCosine, ScheduleKind::kStep}) {
    Schedule schedule;
    schedule.kind = kind;
    schedule.warmup_steps = 8;
    schedule.warmup_from = 0.5f;
    schedule.total_steps = 100;
    schedule.step_size = 10;
    ASSERT_TRUE(ValidateSchedule(schedule).ok());
    EXPECT_EQ(schedule.RateAt(1.0f, 1), 0.5625f);
    EXPECT_EQ(schedule.RateAt(1.0f, 4), 0.75f);
    EXPECT_EQ(schedule.RateAt(1.0f, 7), 0.9375f);
    EXPECT_EQ(schedule.RateAt(1.0f, 8), 1.0f) << "the warm-up is over, the rest begins";
  }
}

TEST(Schedule, InverseSquareRoot) {
  Schedule schedule;
  schedule.kind = ScheduleKind::kInverseSqrt;
  schedule.warmup_steps = 100;
  EXPECT_EQ(schedule.RateAt(1.0f, 400), 0.5f);
  EXPECT_EQ(schedule.RateAt(1.0f, 10000), 0.1f);
  schedule.warmup_steps = 0;
  EXPECT_EQ(schedule.RateAt(1.0f, 0), 1.0f) << "step 0 counts as 1";
  EXPECT_EQ(schedule.RateAt(1.0f, 4), 0.5f);
}

TEST(Schedule, CosineGoesFromTheRateToItsPartAndStaysThere) {
  Schedule schedule;
  schedule.kind = ScheduleKind::kCosine;
  schedule.warmup_steps = 10;
  schedule.total_steps = 110;
  schedule.min_factor = 0.25f;
  EXPECT_EQ(schedule.RateAt(2.0f, 10), 2.0f);
  EXPECT_FLOAT_EQ(schedule.RateAt(2.0f, 60), 1.25f) << "half way";
  EXPECT_FLOAT_EQ(schedule.RateAt(2.0f, 35), 0.5f + 0.75f * (1 + std::sqrt(0.5f)));
  EXPECT_EQ(schedule.RateAt(2.0f, 110), 0.5f);
  EXPECT_EQ(schedule.RateAt(2.0f, 100000), 0.5f);
}

TEST(Schedule, StepsFallAtTheirSize) {
  Schedule schedule;
  schedule.kind = ScheduleKind::kStep;
  schedule.warmup_steps = 5;
  schedule.step_size = 10;
  schedule.gamma = 0.5f;
  EXPECT_EQ(schedule.RateAt(1.0f, 14), 1.0f);
  EXPECT_EQ(schedule.RateAt(1.0f, 15), 0.5f);
  EXPECT_EQ(schedule.RateAt(1.0f, 24), 0.5f);
  EXPECT_EQ(schedule.RateAt(1.0f, 25), 0.25f);
}

TEST(Schedule, TextNamesWhatTheKindHas) {
  Schedule schedule;
  schedule.total_steps = 7;
  EXPECT_EQ(schedule.ToText(), "constant");
  schedule.kind = ScheduleKind::kStep;
  schedule.step_size = 4;
  schedule.warmup_steps = 2;
  EXPECT_EQ(schedule.ToText(), "step warmup-steps=2 step-size=4 gamma=0.1");
  EXPECT_FALSE(schedule == Schedule());
}

}  // namespace
}  // namespace hotbed
