// The planted bugs of the shard core and of the simulated cluster under one roof, by name.
#ifndef HOTBED_TESTS_SIM_PLANTED_BUGS_H_
#define HOTBED_TESTS_SIM_PLANTED_BUGS_H_

#include <string>
#include <vector>

#include "server/protocol/core_mutant.h"
#include "tests/sim/sim_mutant.h"
#include "tests/sim/weather.h"

namespace hotbed::sim {

struct PlantedBug {
  const char* name;
  CoreMutant core;
  SimMutant sim;
  const char* weather;
  uint64_t first_seed;  // known to find it
  uint32_t seeds_max;   // one of so many from there on finds it
};

const std::vector<PlantedBug>& PlantedBugs();

// All simulations from now on have the bug; "": none. False: there is no such bug.
bool Plant(const std::string& name);

// Runs one seed in a process of its own, for a bug may break more than the simulation notices. What
// was violated, or how it died; empty: nothing.
std::string RunApart(uint64_t seed, const Weather& weather = Weathers().front());

}  // namespace hotbed::sim

#endif  // HOTBED_TESTS_SIM_PLANTED_BUGS_H_
