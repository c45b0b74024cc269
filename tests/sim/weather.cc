#include "tests/sim/weather.h"

namespace hotbed::sim {
namespace {

using F = FaultKind;

// Leases that end while others still hold them: seen late, taken up again, counted from the wrong
// moment.
Weather Leases() {
  Weather weather;
  weather.name = "leases";
  weather.faults = {F::kFlap, F::kFlap, F::kMute, F::kMute, F::kDrain};
  weather.faults_more = -3;
  weather.pushes = 80;
  weather.eagerness = 0.3;
  weather.pull_rate = 0.5;
  weather.strict = 0.9;
  weather.stale_maps = 0.7;
  weather.news_late = 0.3;
  weather.store_late = 0.3;
  weather.answers_late = 0.3;
  return weather;
}

// Primaries that are heard of once more, while the write that replaces them is on its way.
Weather Revivals() {
  Weather weather = Leases();
  weather.name = "revivals";
  weather.faults = {F::kFlap, F::kFlap, F::kMute, F::kDrain};
  weather.revives = 0.7;
  return weather;
}

// Primaries of epochs that they never hear of, and epochs that never become active.
Weather Isolation() {
  Weather weather;
  weather.name = "isolation";
  weather.faults = {F::kMute, F::kDeaf, F::kFlap, F::kKill, F::kPause, F::kDrain, F::kDrain};
  weather.pull_rate = 0.5;
  weather.strict = 0.9;
  weather.stale_maps = 0.7;
  weather.isolates = 0.3;
  return weather;
}

// Replicas whose rows are far behind their logs, and many pulls of them.
Weather SlowRows() {
  Weather weather;
  weather.name = "rows";
  weather.faults = {F::kKill, F::kPause, F::kCut, F::kDrain, F::kDrain};
  weather.pushes = 80;
  weather.eagerness = 0.5;
  weather.pull_rate = 0.8;
  weather.read_replicas = 0.6;
  weather.strict = 0.4;
  weather.stale_maps = 0.05;
  weather.rows_at_once = 0.3;
  weather.rows_slow = 0.6;
  weather.rows_slow_time = 400 * kMs;
  weather.transfer_time = 40 * kMs;
  weather.reader = true;
  weather.primaries = 0.1;
  weather.watch = 0.5;
  return weather;
}

// Logs that end differently: servers that do not reach each other, and die and come back.
Weather Links() {
  Weather weather;
  weather.name = "links";
  weather.faults = {F::kLinks, F::kLinks, F::kTriangle, F::kTriangle, F::kKill, F::kDrain};
  weather.pushes = 80;
  weather.eagerness = 0.4;
  weather.cuts_activated = 0.4;
  weather.dies_young = 0.4;
  weather.log_time = 20 * kMs;
  weather.links_break = 0.01;
  return weather;
}

// Entries at the end of logs that are slow: some are replaced before the log has written them, and
// servers restart with others of which nobody knows yet whether they will be committed. Many pulls
// of such replicas.
Weather Ends() {
  Weather weather;
  weather.name = "ends";
  weather.faults = {F::kTriangle, F::kTriangle, F::kTriangle, F::kLinks, F::kKill, F::kDrain};
  weather.pushes = 80;
  weather.eagerness = 0.4;
  weather.pull_rate = 0.5;
  weather.strict = 0.1;
  weather.watch = 0.5;
  weather.primaries = 0.1;
  weather.cuts_activated = 0.4;
  weather.log_time = 150 * kMs;
  return weather;
}

// Primaries that are replaced all the time, up to an end that comes soon: what hangs then hangs for
// good.
Weather Switches() {
  Weather weather;
  weather.name = "switches";
  weather.faults = {F::kLinks, F::kDrain};
  weather.heal_time = 2 * kSecond;
  weather.faults_more = -3;
  weather.pushes = 60;
  weather.eagerness = 0.6;
  weather.cuts_activated = 0.7;
  weather.log_time = 20 * kMs;
  return weather;
}

// Logs that are slow and refuse appends.
Weather SlowLogs() {
  Weather weather;
  weather.name = "logs";
  weather.faults = {F::kKill, F::kKill, F::kDiskFull, F::kDiskFull, F::kLinks, F::kDrain};
  weather.faults_more = 8;
  weather.pushes = 80;
  weather.eagerness = 0.4;
  weather.log_time = 150 * kMs;
  weather.log_fails = 0.05;
  return weather;
}

// Replicas that are lost while their servers live.
Weather Damage() {
  Weather weather;
  weather.name = "damage";
  weather.faults = {F::kSpoil, F::kSpoil, F::kSpoil, F::kSpoil, F::kKill, F::kLinks, F::kDrain};
  weather.faults_more = 8;
  return weather;
}

// Members that do not hear of each other, for long or only as they think.
Weather Silence() {
  Weather weather;
  weather.name = "silence";
  weather.faults = {F::kLinks, F::kLinks, F::kDeaf, F::kKill, F::kDrain, F::kDrain, F::kDrain};
  weather.pull_rate = 0.5;
  weather.strict = 0.9;
  weather.stale_maps = 0.7;
  weather.news_late = 0.3;
  weather.silences = 0.2;
  weather.isolates = 0.15;
  return weather;
}

// Disks that lose the end of the log, all of it or everything, or come back late, while no member
// lives. One that has lost nothing is there always.
Weather Disks() {
  Weather weather;
  weather.name = "disks";
  weather.faults = {F::kDisks, F::kDisks, F::kDisks, F::kDisks, F::kKill, F::kDrain};
  weather.faults_more = 8;
  weather.pushes = 80;
  weather.eagerness = 0.4;
  return weather;
}

// Servers that are told to stop, one after the other, and some of them die of it.
Weather Stops() {
  Weather weather;
  weather.name = "stops";
  weather.faults = {F::kStop, F::kStop,  F::kStop, F::kStop,
                    F::kKill, F::kLinks, F::kFlap, F::kDrain};
  weather.faults_more = 6;
  weather.pushes = 60;
  weather.eagerness = 0.4;
  weather.pull_rate = 0.4;
  weather.strict = 0.8;
  weather.read_replicas = 0.4;
  weather.stale_maps = 0.5;
  weather.news_late = 0.2;
  return weather;
}

// Shards that are cut in two, while servers die, stop and do not hear of it.
Weather Cuts() {
  Weather weather;
  weather.name = "cuts";
  weather.faults = {F::kKill,          F::kKill,  F::kKill,
                    F::kKill,          F::kPause, F::kCut,
                    F::kStop,          F::kDrain, F::kStopCoordinator,
                    F::kCutCoordinator};
  weather.faults_more = 4;
  weather.pushes = 60;
  weather.eagerness = 0.4;
  weather.pull_rate = 0.4;
  weather.cuts_every = 700 * kMs;
  return weather;
}

// The same, and neighbours are merged again.
Weather Merges() {
  Weather weather = Cuts();
  weather.name = "merges";
  weather.cuts_every = 400 * kMs;
  weather.merges_every = 150 * kMs;
  weather.merges_end = 0.15;
  return weather;
}

// The same of shards of class checkpoint, whose servers die before and after the next checkpoint.
Weather Checkpoints() {
  Weather weather = Merges();
  weather.name = "checkpoints";
  weather.faults = {F::kKill, F::kKill, F::kKill, F::kKill, F::kStop, F::kDrain};
  weather.faults_more = 8;
  weather.checkpointed = 0.8;
  return weather;
}

// Rows that their shards delete, by the primaries' clocks and steps, while these change.
Weather Expiry() {
  Weather weather;
  weather.name = "expiry";
  weather.faults = {F::kKill,  F::kKill, F::kPause,    F::kCut,  F::kLinks,
                    F::kDrain, F::kFlap, F::kDiskFull, F::kStop, F::kDrain};
  weather.faults_more = 4;
  weather.pushes = 40;
  weather.expires = true;
  return weather;
}

Weather Mixed() {
  Weather weather;
  weather.name = "mixed";
  weather.faults = {F::kKill,     F::kKill, F::kKill, F::kPause,           F::kPause,
                    F::kCut,      F::kCut,  F::kCut,  F::kStopCoordinator, F::kCutCoordinator,
                    F::kDiskFull, F::kDeaf, F::kDrain};
  return weather;
}

}  // namespace

const std::vector<Weather>& Weathers() {
  static const std::vector<Weather>* const weathers =
      new std::vector<Weather>{Mixed(), Leases(),   Revivals(), Isolation(),   SlowRows(), Links(),
                               Ends(),  Switches(), SlowLogs(), Damage(),      Silence(),  Disks(),
                               Stops(), Cuts(),     Merges(),   Checkpoints(), Expiry()};
  return *weathers;
}

const Weather* FindWeather(const std::string& name) {
  for (const Weather& weather : Weathers()) {
    if (weather.name == name) return &weather;
  }
  return nullptr;
}

}  // namespace hotbed::sim
