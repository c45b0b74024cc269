// Reads a plan from JSON as write_plan.h writes it: the current plan of an input, or a file to show
// or compare. As strict as read_input.h. Pure; safe from any thread.
//
// Required are the tables with the server, rows and columns of each shard. Without `servers`, the
// servers are those that the shards name, in that order; with it, shards may name no others.
#ifndef HOTBED_PLANNER_JSON_READ_PLAN_H_
#define HOTBED_PLANNER_JSON_READ_PLAN_H_

#include <string>

#include "absl/strings/string_view.h"
#include "planner/json/json_fields.h"
#include "planner/json/parse_json.h"
#include "planner/model/plan_error.h"
#include "planner/model/planner_output.h"

namespace hotbed {

PlanResult<PlannerOutput> ReadPlan(absl::string_view text);

// The same from a tree; paths begin with `path`.
void ReadPlanJson(const PlanJson& json, const std::string& path, FieldFailure* failure,
                  PlannerOutput* plan);

}  // namespace hotbed

#endif  // HOTBED_PLANNER_JSON_READ_PLAN_H_
