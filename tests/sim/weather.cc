#include "tests/sim/weather.h"

namespace hotbed::sim {
namespace {

using F = FaultKind;

// Leases that end while others still hold them: seen late, taken up again, counted from the wrong
// moment.
Weather Leases() {
  Weather weather;
  weather.name = "leases";
  weather.faults = {F::kFlap, F::kFlap, F::kFlap, F::kMute, F::kMute, F::kDeaf, F::kDrain};
  weather.faults_more = 6;
  weather.pull_rate = 0.5;
  weather.strict = 0.9;
  weather.stale_maps = 0.7;
  weather.isolates = 0.05;
  weather.news_late = 0.3;
  weather.store_late = 0.3;
  weather.answers_late = 0.3;
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

// Copies whose rows are far behind their logs, and many that read them.
Weather SlowRows() {
  Weather weather;
  weather.name = "rows";
  weather.faults = {F::kKill, F::kPause, F::kCut, F::kDrain, F::kDrain};
  weather.pull_rate = 0.8;
  weather.read_copies = 0.6;
  weather.strict = 0.4;
  weather.stale_maps = 0.05;
  weather.rows_at_once = 0.3;
  weather.rows_slow = 0.6;
  weather.rows_slow_time = 250 * kMs;
  return weather;
}

// Logs that end differently: servers that do not reach each other, and die and come back.
Weather Links() {
  Weather weather;
  weather.name = "links";
  weather.faults = {F::kLinks, F::kLinks, F::kLinks, F::kLinks, F::kKill, F::kKill, F::kDrain};
  weather.faults_more = 12;
  weather.links_break = 0.02;
  return weather;
}

// Logs that are slow and refuse what they were given.
Weather SlowLogs() {
  Weather weather;
  weather.name = "logs";
  weather.faults = {F::kKill, F::kKill, F::kDiskFull, F::kDiskFull, F::kLinks, F::kDrain};
  weather.faults_more = 8;
  weather.log_time = 40 * kMs;
  weather.log_fails = 0.02;
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
      new std::vector<Weather>{Mixed(), Leases(), Isolation(), SlowRows(), Links(), SlowLogs()};
  return *weathers;
}

const Weather* FindWeather(const std::string& name) {
  for (const Weather& weather : Weathers()) {
    if (weather.name == name) return &weather;
  }
  return nullptr;
}

}  // namespace hotbed::sim
