// A name for the input of a plan. Two inputs that differ in more than their current plan have
// different names, except with probability 2^-64; the name is the same on every machine and in
// every build. Pure; safe from any thread.
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
