// A name for what a plan was made for: two inputs that differ in anything but their current plan
// have different names (but for 2^-64), on every machine and in every build alike. Pure; safe from
// any thread.
#ifndef HOTBED_PLANNER_MODEL_CONTEXT_HASH_H_
#define HOTBED_PLANNER_MODEL_CONTEXT_HASH_H_

#include <string>

#include "planner/model/planner_input.h"

namespace hotbed {

// 16 hexadecimal digits: FNV-1a (64 bits; Fowler, Noll, Vo) over every field in the order of
// planner_input.h, strings and lists after their length, doubles by their bits, -0 as 0.
std::string ContextHash(const PlannerInput& input);

}  // namespace hotbed

#endif  // HOTBED_PLANNER_MODEL_CONTEXT_HASH_H_
