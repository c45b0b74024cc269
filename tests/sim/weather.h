// The faults of a simulated world: which, how often, how long. The mixed weather has a little of
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
  kStop,      // is told to stop: it hands over, ends with everything written back, and starts again
  kMute,      // is not heard by the coordinators, and hears them, for a while or throughout
  kFlap,      // loses its lease, comes back for a moment, and is cut off from coordinators again
  kLinks,     // servers from each other
  kTriangle,  // two of three members do not reach each other; the third restarts, the primary dies
  kDisks,     // all members of a shard die, and disks of some of them lose much or are away
  kSpoil,     // a replica is found to be damaged, or to have diverged
};

struct Weather {
  std::string name;
  std::vector<FaultKind> faults;  // each is as likely
  Time heal_time = 10 * kSecond;  // all is well from then on
  int faults_more = 0;            // beyond 7 to 12
  int pushes = 30;                // per client and shard; trainers make their steps
  double eagerness = 0.17;        // to make one, at a tick
  double pull_rate = 0;           // per client, shard and tick; 0: the seed decides
  double read_replicas = 0.15;    // of shards
  double strict = 0.6;            // of pulls
  double stale_maps = 0.4;        // of strict pulls
  double watch = 0.03;            // per client and tick: it gets a newer map
  bool reader = false;            // the first client only pulls
  double primaries = 1;           // bounded pulls that may go to them, else only to others
  double cuts_activated = 0;      // a primary that was recorded active from other servers
  double dies_young = 0;          // and then
  double isolates = 0;            // of servers whose record was just written, from the coordinators
  double news_late = 0.05;        // of datagrams of coordinators
  double store_late = 0.04;       // of requests to the store
  double answers_late = 0.02;     // of the store
  double rows_at_once = 0.8;      // of entries applied
  double rows_slow = 0.1;         // of the others
  Time rows_slow_time = 80 * kMs;
  Time transfer_time = 15 * kMs;  // between parts of a snapshot transfer
  Time log_time = 3 * kMs;
  double log_fails = 0.003;
  double links_break = 0.003;  // at a message
  double revives = 0;          // servers that come alive while they are replaced as dead
  Time cuts_every = 0;         // from a shard that is to be cut to the next; 0: none is
  Time merges_every = 0;       // the same of two shards that are to be merged
  double merges_end = 0;       // of merges, at whose commit all members die
  double checkpointed = 0.1;   // of shards, that are of class checkpoint
  bool expires = false;        // rows that were not touched for a second, or a step, are deleted
  double silences = 0;         // heartbeats in which a primary says that it hears of nobody
};

// The mixed one first.
const std::vector<Weather>& Weathers();
const Weather* FindWeather(const std::string& name);  // null: there is none

}  // namespace hotbed::sim

#endif  // HOTBED_TESTS_SIM_WEATHER_H_
