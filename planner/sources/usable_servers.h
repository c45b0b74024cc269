// The servers that the sources' strategies place on: those that are not draining, in the input's
// order. The sources only know workers that are all alike. Pure; safe from any thread.
#ifndef HOTBED_PLANNER_SOURCES_USABLE_SERVERS_H_
#define HOTBED_PLANNER_SOURCES_USABLE_SERVERS_H_

#include <cstdint>
#include <vector>

#include "planner/model/plan_error.h"
#include "planner/model/planner_input.h"

namespace hotbed {

// Indices into the topology's servers; strict_constraints when all of them drain.
PlanResult<std::vector<uint32_t>> UsableServers(const PlannerInput& input);

}  // namespace hotbed

#endif  // HOTBED_PLANNER_SOURCES_USABLE_SERVERS_H_
