// A plan as a picture: servers as bars, stacked by table. Pure; safe from any thread.
#ifndef HOTBED_PLANNER_REPORT_PLAN_SVG_H_
#define HOTBED_PLANNER_REPORT_PLAN_SVG_H_

#include <string>

#include "planner/model/planner_input.h"
#include "planner/model/planner_output.h"

namespace hotbed {

// An SVG document: a bar of bytes for each server, in which each of the largest tables has a colour
// and a place of its own, the rest being one grey part. With `input`, a line shows each server's
// host_bytes where it is within the scale. Names are escaped.
std::string PlanSvg(const PlannerOutput& plan, const PlannerInput* input);

// The same servers before and after, the bars of a server beside each other. Servers are matched by
// name; the order is that of `after`, then those that are gone.
std::string PlanDiffSvg(const PlannerOutput& before, const PlannerOutput& after);

}  // namespace hotbed

#endif  // HOTBED_PLANNER_REPORT_PLAN_SVG_H_
