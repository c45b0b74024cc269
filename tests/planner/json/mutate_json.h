// Any bytes through the planner's readers, as the fuzz target and the random test drive them.
#ifndef HOTBED_TESTS_PLANNER_JSON_MUTATE_JSON_H_
#define HOTBED_TESTS_PLANNER_JSON_MUTATE_JSON_H_

#include <string>

#include "planner/compute_plan.h"
#include "planner/json/read_input.h"
#include "planner/json/read_plan.h"
#include "planner/json/write_plan.h"

namespace hotbed {

// The fault in how `text` is read, or "": a plan that reads must survive writing and reading, an
// error must have a message, and an input that passes validation must plan or be refused.
inline std::string ReaderFault(const std::string& text) {
  const PlanResult<PlannerOutput> plan = ReadPlan(text);
  if (plan.ok()) {
    const PlanResult<PlannerOutput> again = ReadPlan(WritePlan(plan.value()));
    if (!again.ok()) return "a plan that was read is not read again: " + again.error().message;
    if (!(again.value() == plan.value())) return "a plan that was read reads otherwise again";
  } else if (plan.error().message.empty()) {
    return "an error without a message";
  }
  const PlanResult<PlannerInput> input = ReadPlannerInput(text);
  if (!input.ok()) return input.error().message.empty() ? "an error without a message" : "";
  // Sizes that would only cost time are left to the benchmark.
  if (input.value().topology.servers.size() > 100 || input.value().tables.size() > 100) return "";
  const PlanResult<PlannerOutput> computed = ComputePlan(input.value());
  if (!computed.ok()) return computed.error().message.empty() ? "an error without a message" : "";
  return ReadPlan(WritePlan(computed.value())).ok() ? "" : "a computed plan does not read";
}

}  // namespace hotbed

#endif  // HOTBED_TESTS_PLANNER_JSON_MUTATE_JSON_H_
