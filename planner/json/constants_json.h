// The cost model's constants as JSON: one object with the names of CostConstants; those left out
// have their defaults. As strict as read_input.h: an unknown key is an error that names the nearest
// known one, times are 0 or more, bandwidths above 0. A key `about` may hold an object of remarks,
// which is ignored. Pure; safe from any thread.
#ifndef HOTBED_PLANNER_JSON_CONSTANTS_JSON_H_
#define HOTBED_PLANNER_JSON_CONSTANTS_JSON_H_

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "planner/json/json_fields.h"
#include "planner/json/parse_json.h"
#include "planner/model/cost_constants.h"
#include "planner/model/plan_error.h"

namespace hotbed {

// Reads the file that `hotbed plan calibrate` writes.
PlanResult<CostConstants> ReadConstants(absl::string_view text);

// The same from a tree; paths begin with `path`.
void ReadConstantsJson(const PlanJson& json, const std::string& path, FieldFailure* failure,
                       CostConstants* constants);

// Reads back as the same value.
PlanJson ConstantsToJson(const CostConstants& constants);

}  // namespace hotbed

#endif  // HOTBED_PLANNER_JSON_CONSTANTS_JSON_H_
