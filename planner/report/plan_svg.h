// A plan as a picture: servers as bars, stacked by table. Pure; safe from any thread.
#ifndef HOTBED_PLANNER_REPORT_PLAN_SVG_H_
#define HOTBED_PLANNER_REPORT_PLAN_SVG_H_

#include <string>

#include "planner/model/planner_input.h"
#include "planner/model/planner_output.h"

namespace hotbed {

// An SVG document with a bar of bytes per server. In it each of the largest tables has a part and a
// colour of its own; the others share one grey part. With `input`, a line shows each server's
// host_bytes if that is within the scale. Names are escaped.
std::string PlanSvg(const PlannerOutput& plan, const PlannerInput* input);

// The servers before and after, with the two bars of a server next to each other. Servers are
// matched by name, in the order of `after`; servers that are gone come last.
std::string PlanDiffSvg(const PlannerOutput& before, const PlannerOutput& after);

}  // namespace hotbed

#endif  // HOTBED_PLANNER_REPORT_PLAN_SVG_H_
