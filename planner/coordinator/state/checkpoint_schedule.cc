#include "planner/coordinator/state/checkpoint_schedule.h"

#include <algorithm>

namespace hotbed {

int64_t NextSaveUnixMs(const v1::CheckpointSchedule& schedule, int64_t now_unix_ms) {
  const int64_t begun = schedule.begun_unix_ms();
  if (begun == 0) return now_unix_ms;
  const bool broken_off = schedule.ended_unix_ms() < begun;
  int64_t wait = schedule.every_ms();
  if (broken_off || schedule.failures() > 0) {
    const uint32_t doublings = std::min(std::max(schedule.failures(), 1u) - 1, 20u);
    wait = std::min(wait, kScheduleRetryMs << doublings);
  }
  const int64_t next =
      (schedule.failures() > 0 ? std::max(begun, schedule.ended_unix_ms()) : begun) + wait;
  return std::min(next, now_unix_ms + schedule.every_ms());
}

}  // namespace hotbed
