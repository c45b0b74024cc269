// Random problems for the planner's property tests: small enough to be checked by hand where one
// fails.
#ifndef HOTBED_TESTS_PLANNER_RANDOM_INPUT_H_
#define HOTBED_TESTS_PLANNER_RANDOM_INPUT_H_

#include <cstdint>

#include "common/random.h"
#include "planner/model/planner_input.h"

namespace hotbed {

struct RandomInputLimits {
  uint32_t tables_max = 8;
  uint32_t servers_max = 5;
  uint64_t rows_max = 200000;
  // Room over what the tables need: from this up to 4 times as much more, split unevenly.
  double room_min = 1.0;
  bool constraints = true;
  bool replicas = true;
  bool drain = true;
};

PlannerInput RandomInput(Random& random, const RandomInputLimits& limits);

// An input with `servers` equal servers on hosts of their own, without tables.
PlannerInput EqualServers(uint32_t servers, uint64_t host_bytes, uint64_t spill_bytes);

// Adds a table that is read `reads` times per step, with a feature of its name; returns its index.
uint32_t AddTable(PlannerInput& input, const std::string& name, uint64_t rows, uint32_t dim,
                  double reads);

}  // namespace hotbed

#endif  // HOTBED_TESTS_PLANNER_RANDOM_INPUT_H_
