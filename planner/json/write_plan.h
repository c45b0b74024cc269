// Writes plans and errors as JSON text as docs/planner.md describes it. Deterministic to the byte:
// the order of keys is fixed, integers are decimal, doubles are the shortest text that reads back
// as the same value. Reading the text gives an equal value. Pure; safe from any thread.
#ifndef HOTBED_PLANNER_JSON_WRITE_PLAN_H_
#define HOTBED_PLANNER_JSON_WRITE_PLAN_H_

#include <string>

#include "planner/json/parse_json.h"
#include "planner/model/plan_error.h"
#include "planner/model/planner_output.h"

namespace hotbed {

PlanJson PlanToJson(const PlannerOutput& plan);
PlanJson ErrorToJson(const PlanError& error);

// The text ends with a newline.
std::string WritePlan(const PlannerOutput& plan);
std::string WritePlanError(const PlanError& error);

// `json` with values that fit into 180 columns on one line, and the rest indented by two; ends with
// a newline. Bytes that are not UTF-8 become the replacement character.
std::string PrettyJson(const PlanJson& json);

}  // namespace hotbed

#endif  // HOTBED_PLANNER_JSON_WRITE_PLAN_H_
