// Parses JSON text into a tree that is safe to read, also from a careless or hostile writer.
// Refuses text that is not JSON (RFC 8259, UTF-8), numbers that no double holds (1e400), duplicate
// keys in an object, and nesting deeper than kJsonDepthMax (the tree's destructor and printer
// recurse). Pure; safe from any thread; linear in the text.
#ifndef HOTBED_PLANNER_JSON_PARSE_JSON_H_
#define HOTBED_PLANNER_JSON_PARSE_JSON_H_

#include "absl/strings/string_view.h"
#include "nlohmann/json.hpp"
#include "planner/model/plan_error.h"

namespace hotbed {

using PlanJson = nlohmann::ordered_json;

constexpr int kJsonDepthMax = 32;  // a plan nests seven deep

// The tree, or an error of kind input with the position.
PlanResult<PlanJson> ParseJson(absl::string_view text);

}  // namespace hotbed

#endif  // HOTBED_PLANNER_JSON_PARSE_JSON_H_
