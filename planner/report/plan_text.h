// A plan for people, as text of lines of at most 100 columns. Pure; safe from any thread.
#ifndef HOTBED_PLANNER_REPORT_PLAN_TEXT_H_
#define HOTBED_PLANNER_REPORT_PLAN_TEXT_H_

#include <cstddef>
#include <string>

#include "planner/model/plan_error.h"
#include "planner/model/planner_input.h"
#include "planner/model/planner_output.h"

namespace hotbed {

// - of each server: bytes by tier (with how full it is, where `input` is given), elements, shards,
//   and milliseconds by term where the strategy has a cost model;
// - of each table: sharding, shards, servers, bytes, hotness, cost;
// - what binds, the cost and its distance to the bound, the critical path;
// - the imbalance of elements, bytes and milliseconds (imbalance.h);
// - moves, each with its reason.
// Of more than `rows_max` servers, tables or moves, the largest are shown (moves: the first), and
// the rest is counted. `input` may be null: then nothing is said of capacities and hotness.
std::string PlanText(const PlannerOutput& plan, const PlannerInput* input, size_t rows_max = 60);

// Kind, table, limit and missing bytes of an error, and its message, wrapped.
std::string PlanErrorText(const PlanError& error);

// Two lines: what moves; from where to where, its bytes and why.
std::string MoveLine(const PlannedMove& move);

}  // namespace hotbed

#endif  // HOTBED_PLANNER_REPORT_PLAN_TEXT_H_
