// How a simulated world goes wrong: how often, how long, and what. The mixed one has a little of
// everything; the others have much of what certain bugs need at once, which mixed seeds bring
// together once in hundreds of thousands.
#ifndef HOTBED_TESTS_SIM_WEATHER_H_
#define HOTBED_TESTS_SIM_WEATHER_H_

#include <string>
#include <vector>

#include "tests/sim/cluster_types.h"

namespace hotbed::sim {

enum class FaultKind : uint8_t {
  kKill,
  kPause,
  kCut,              // a server from some or all, one way or both
  kStopCoordinator,  // or pause it
  kCutCoordinator,   // from the store
  kDiskFull,
  kDeaf,  // hears no coordinator, and is heard
  kDrain,
  kMute,   // hears the coordinators, and is not heard
  kFlap,   // loses its lease, comes back for a moment, and is cut off from coordinators again
  kLinks,  // servers from each other
};

struct Weather {
  std::string name;
  std::vector<FaultKind> faults;  // each is as likely
  int faults_more = 0;            // beyond 7 to 12
  double pull_rate = 0;           // of a client, shard and tick; 0: as the seed has it
  double read_copies = 0.15;      // of shards
  double strict = 0.6;            // of pulls
  double stale_maps = 0.4;        // of strict pulls
  double isolates = 0;            // whose record was written just now, from the coordinators
  double news_late = 0.05;        // of datagrams of coordinators
  double store_late = 0.04;       // of requests to the store
  double answers_late = 0.02;     // of the store
  double rows_at_once = 0.8;      // of entries applied
  double rows_slow = 0.1;         // of the others
  Time rows_slow_time = 80 * kMs;
  Time log_time = 3 * kMs;
  double log_fails = 0.003;
  double links_break = 0.003;  // at a message
};

// The mixed one first.
const std::vector<Weather>& Weathers();
const Weather* FindWeather(const std::string& name);  // null: there is none

}  // namespace hotbed::sim

#endif  // HOTBED_TESTS_SIM_WEATHER_H_
