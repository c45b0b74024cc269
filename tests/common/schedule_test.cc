// Schedules against their formulas, and every refusal by field.
#include "common/schedule.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <string>

namespace hotbed {
namespace schedule_test {

using testing::AllOf;
using testing::HasSubstr;

constexpr double kPi = 3.14159265358979323846;

// fairseq's inverse_sqrt of the column-slicing source: adam, lr 5e-4, 4000 steps from 1e-7.
TEST(ScheduleTest, WarmUpThenInverseSquareRoot) {
  Schedule s;
  s.kind = ScheduleKind::kInverseSqrt;
  s.warmup_steps = 4000;
  s.warmup_from = 1e-7f;
  const double base = 5e-4f, from = 1e-7f;
  EXPECT_FLOAT_EQ(s.RateAt(5e-4f, 1), static_cast<float>(from + (base - from) / 4000));
  EXPECT_FLOAT_EQ(s.RateAt(5e-4f, 2000), static_cast<float>((from + base) / 2));
  EXPECT_FLOAT_EQ(s.RateAt(5e-4f, 3999), static_cast<float>(from + (base - from) * 3999 / 4000));
  EXPECT_FLOAT_EQ(s.RateAt(5e-4f, 4000), 5e-4f);
  EXPECT_FLOAT_EQ(s.RateAt(5e-4f, 16000), 2.5e-4f);
  EXPECT_FLOAT_EQ(s.RateAt(5e-4f, 400000), 5e-5f);
  for (uint64_t t = 2; t < 4000; ++t) ASSERT_GT(s.RateAt(5e-4f, t), s.RateAt(5e-4f, t - 1));
  for (uint64_t t = 4001; t < 9000; ++t) ASSERT_LT(s.RateAt(5e-4f, t), s.RateAt(5e-4f, t - 1));
  s.warmup_steps = 0;
  EXPECT_FLOAT_EQ(s.RateAt(1, 1), 1);
  EXPECT_FLOAT_EQ(s.RateAt(1, 4), 0.5f);
  EXPECT_FLOAT_EQ(s.RateAt(1, 0), 1) << "steps count from 1";
}

TEST(ScheduleTest, ConstantAfterItsWarmUp) {
  Schedule s;
  EXPECT_EQ(s.RateAt(0.1f, 0), 0.1f);
  EXPECT_EQ(s.RateAt(0.1f, std::numeric_limits<uint64_t>::max()), 0.1f);
  s.warmup_steps = 10;
  EXPECT_FLOAT_EQ(s.RateAt(0.1f, 5), 0.05f);
  EXPECT_EQ(s.RateAt(0.1f, 10), 0.1f);
}

TEST(ScheduleTest, CosineFallsToItsFloor) {
  Schedule s;
  s.kind = ScheduleKind::kCosine;
  s.warmup_steps = 100;
  s.total_steps = 1100;
  s.min_factor = 0.1f;
  const double low = 0.1f * 2.0;
  for (uint64_t t : {100, 101, 350, 600, 850, 1099}) {
    const double part = (static_cast<double>(t) - 100) / 1000;
    EXPECT_FLOAT_EQ(s.RateAt(2, t),
                    static_cast<float>(low + (2 - low) * (1 + std::cos(kPi * part)) / 2));
  }
  EXPECT_FLOAT_EQ(s.RateAt(2, 600), static_cast<float>((2 + low) / 2));
  EXPECT_FLOAT_EQ(s.RateAt(2, 1100), 0.2f);
  EXPECT_FLOAT_EQ(s.RateAt(2, 1000000), 0.2f);
}

TEST(ScheduleTest, StepsFallByGamma) {
  Schedule s;
  s.kind = ScheduleKind::kStep;
  s.warmup_steps = 5;
  s.step_size = 10;
  s.gamma = 0.5f;
  EXPECT_FLOAT_EQ(s.RateAt(8, 5), 8);
  EXPECT_FLOAT_EQ(s.RateAt(8, 14), 8);
  EXPECT_FLOAT_EQ(s.RateAt(8, 15), 4);
  EXPECT_FLOAT_EQ(s.RateAt(8, 24), 4);
  EXPECT_FLOAT_EQ(s.RateAt(8, 35), 1);
}

TEST(ScheduleTest, RefusalsNameTheFieldAndItsRange) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float inf = std::numeric_limits<float>::infinity();
  const auto refusal = [](const std::function<void(Schedule*)>& change) {
    Schedule s;
    change(&s);
    const absl::Status status = ValidateSchedule(s);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    return std::string(status.message());
  };
  EXPECT_TRUE(ValidateSchedule(Schedule()).ok());
  EXPECT_THAT(refusal([](Schedule* s) { s->kind = static_cast<ScheduleKind>(4); }),
              AllOf(HasSubstr("schedule.kind is 4"), HasSubstr("0..3")));
  for (float bad : {-1e-7f, nan, inf}) {
    EXPECT_THAT(refusal([=](Schedule* s) { s->warmup_from = bad; }),
                AllOf(HasSubstr("schedule.warmup_from"), HasSubstr(">= 0")));
  }
  EXPECT_THAT(refusal([](Schedule* s) {
                s->kind = ScheduleKind::kCosine;
                s->warmup_steps = s->total_steps = 7;
              }),
              AllOf(HasSubstr("schedule.total_steps is 7"), HasSubstr("warmup_steps = 7")));
  for (float bad : {-0.1f, 1.1f, nan}) {
    EXPECT_THAT(refusal([=](Schedule* s) { s->min_factor = bad; }),
                AllOf(HasSubstr("schedule.min_factor"), HasSubstr("[0, 1]")));
  }
  EXPECT_THAT(refusal([](Schedule* s) { s->kind = ScheduleKind::kStep; }),
              HasSubstr("schedule.step_size is 0"));
  for (float bad : {0.0f, -1.0f, 1.1f, nan}) {
    EXPECT_THAT(refusal([=](Schedule* s) { s->gamma = bad; }),
                AllOf(HasSubstr("schedule.gamma"), HasSubstr("(0, 1]")));
  }
}

TEST(ScheduleTest, EqualityLooksAtEveryField) {
  const Schedule base;
  const std::vector<std::function<void(Schedule*)>> changes = {
      [](Schedule* s) { s->kind = ScheduleKind::kStep; },
      [](Schedule* s) { s->warmup_steps = 1; },
      [](Schedule* s) { s->warmup_from = 1; },
      [](Schedule* s) { s->total_steps = 1; },
      [](Schedule* s) { s->min_factor = 1; },
      [](Schedule* s) { s->step_size = 1; },
      [](Schedule* s) { s->gamma = 1; }};
  for (const auto& change : changes) {
    Schedule other = base;
    EXPECT_TRUE(base == other);
    change(&other);
    EXPECT_FALSE(base == other);
  }
}

}  // namespace schedule_test
}  // namespace hotbed
