// The saves of the schedule as the coordinator makes them: by its own map, and the servers' calls.
#ifndef HOTBED_PLANNER_COORDINATOR_SHELL_SCHEDULED_SAVES_H_
#define HOTBED_PLANNER_COORDINATOR_SHELL_SCHEDULED_SAVES_H_

#include "planner/coordinator/shell/checkpoint_scheduler.h"
#include "planner/coordinator/shell/coordinator.h"
#include "security/identity.h"

namespace hotbed {

// `coordinator` outlives the result. `identity` is shown to servers.
CheckpointScheduler::Hands HandsOf(Coordinator* coordinator, const ClientIdentity& identity);

}  // namespace hotbed

#endif  // HOTBED_PLANNER_COORDINATOR_SHELL_SCHEDULED_SAVES_H_
