#include "planner/coordinator/state/checkpoint_schedule.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>

namespace hotbed {
namespace checkpoint_schedule_test {

constexpr int64_t kHour = 3'600'000;
constexpr int64_t kNow = 1'000 * kHour;

v1::CheckpointSchedule Hourly(int64_t begun, int64_t ended, uint32_t failures) {
  v1::CheckpointSchedule schedule;
  schedule.set_every_ms(kHour);
  schedule.set_begun_unix_ms(begun);
  schedule.set_ended_unix_ms(ended);
  schedule.set_failures(failures);
  return schedule;
}

TEST(CheckpointScheduleTest, TheFirstSaveBeginsAtOnce) {
  EXPECT_EQ(NextSaveUnixMs(Hourly(0, 0, 0), kNow), kNow);
}

TEST(CheckpointScheduleTest, EveryCountsFromTheBeginOfAGoodSave) {
  EXPECT_EQ(NextSaveUnixMs(Hourly(kNow, kNow + 7, 0), kNow + 8), kNow + kHour);
  // One that took longer than that is followed by the next at once.
  EXPECT_LE(NextSaveUnixMs(Hourly(kNow, kNow + 2 * kHour, 0), kNow + 2 * kHour), kNow + 2 * kHour);
}

TEST(CheckpointScheduleTest, FailuresWaitLongerEachTimeAndNeverLongerThanEvery) {
  const int64_t ended = kNow + 5'000;
  int64_t waited = 60'000;
  for (uint32_t failures = 1; failures < 40; ++failures) {
    EXPECT_EQ(NextSaveUnixMs(Hourly(kNow, ended, failures), ended), ended + waited) << failures;
    waited = std::min(2 * waited, kHour);
  }
  v1::CheckpointSchedule quick = Hourly(kNow, ended, 3);
  quick.set_every_ms(1'000);
  EXPECT_EQ(NextSaveUnixMs(quick, ended), ended + 1'000);
}

TEST(CheckpointScheduleTest, ASaveWhoseCoordinatorDiedIsMadeAgainAfterAMinute) {
  EXPECT_EQ(NextSaveUnixMs(Hourly(kNow, kNow - kHour, 0), kNow + 1), kNow + 60'000);
  // After two failures, that counts as the second wait.
  EXPECT_EQ(NextSaveUnixMs(Hourly(kNow, kNow - kHour, 2), kNow + 1), kNow + 120'000);
}

TEST(CheckpointScheduleTest, AClockThatWasSetBackDoesNotStopTheSaves) {
  const int64_t set_back = kNow - 500 * kHour;
  EXPECT_EQ(NextSaveUnixMs(Hourly(kNow, kNow + 7, 0), set_back), set_back + kHour);
}

}  // namespace checkpoint_schedule_test
}  // namespace hotbed
