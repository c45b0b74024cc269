// When the coordinator saves a checkpoint by itself. Pure.
#ifndef HOTBED_PLANNER_COORDINATOR_STATE_CHECKPOINT_SCHEDULE_H_
#define HOTBED_PLANNER_COORDINATOR_STATE_CHECKPOINT_SCHEDULE_H_

#include <cstdint>

#include "proto/control.pb.h"

namespace hotbed {

inline constexpr int64_t kScheduleEveryMsMin = 1'000;
inline constexpr int64_t kScheduleEveryMsMax = 366ll * 86'400'000;
inline constexpr int64_t kScheduleRetryMs = 60'000;
inline constexpr uint32_t kScheduleKeepMax = 100'000;

// When the next save is to begin: at once if none has, and `every` after the begin of the last good
// one. After a failure, and after a save that its coordinator did not live to end, a minute later,
// doubled for each further failure; never later than `every`. A clock that was set back does not
// stop the saves.
int64_t NextSaveUnixMs(const v1::CheckpointSchedule& schedule, int64_t now_unix_ms);

}  // namespace hotbed

#endif  // HOTBED_PLANNER_COORDINATOR_STATE_CHECKPOINT_SCHEDULE_H_
