// Compares measurements with the roofs that bound them. Both run in turns, several times, and
// medians are compared, so that other load on the machine affects both alike. Prints a table or,
// with `-o json`, one JSON document. Thread-compatible.
#ifndef HOTBED_BENCH_RATIO_TABLE_H_
#define HOTBED_BENCH_RATIO_TABLE_H_

#include <time.h>

#include <algorithm>
#include <cstdio>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "bench/roofs/machine.h"

namespace hotbed::bench {

// The clock of a rate: of the wall, or the processor time of the calling thread, for work of that
// thread alone on a machine with other load.
enum class RateClock { kWall, kThread };

struct RatioRow {
  std::string name;
  std::string roof;
  std::string unit;
  double ours = 0;  // medians, in units per second
  double limit = 0;
  double bar = 0;  // required ratio; 0: none
  RateClock clock = RateClock::kWall;
};

// One run of a measurement: does its work and returns the number of units.
using Work = std::function<double()>;

inline double SecondsOf(RateClock clock) {
  timespec now;
  clock_gettime(clock == RateClock::kWall ? CLOCK_MONOTONIC : CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

inline double RatePerSecond(const Work& work, double seconds, RateClock clock = RateClock::kWall) {
  const double start = SecondsOf(clock);
  double units = 0;
  double elapsed = 0;
  do {
    units += work();
    elapsed = SecondsOf(clock) - start;
  } while (elapsed < seconds);
  return units / elapsed;
}

inline double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

class RatioTable {
 public:
  RatioTable(int rounds, double seconds) : rounds_(rounds), seconds_(seconds) {}

  void Measure(RatioRow row, const Work& ours, const Work& roof) {
    std::vector<double> a;
    std::vector<double> b;
    RatePerSecond(ours, seconds_ / 4, row.clock);  // warm
    RatePerSecond(roof, seconds_ / 4, row.clock);
    for (int r = 0; r < rounds_; ++r) {
      a.push_back(RatePerSecond(ours, seconds_, row.clock));
      b.push_back(RatePerSecond(roof, seconds_, row.clock));
    }
    row.ours = Median(a);
    row.limit = Median(b);
    rows_.push_back(std::move(row));
  }
  void Add(RatioRow row) { rows_.push_back(std::move(row)); }

  // As `-o` asks: "json", or else a table.
  void Print(const std::string& output = "") const {
    output == "json" ? PrintJson() : PrintTable();
  }

 private:
  void PrintTable() const {
    std::printf("machine  %s\nload average  %s\n\n", Machine().c_str(),
                LoadAverages(load_before_).c_str());
    std::printf("%-44s %14s %14s %7s %6s  %s\n", "measure", "ours /s", "roof /s", "ratio", "bar",
                "roof");
    for (const RatioRow& row : rows_) {
      std::printf("%-44s %14.0f %14.0f %7.2f %6.2f  %s (%s)\n", row.name.c_str(), row.ours,
                  row.limit, row.ours / row.limit, row.bar, row.roof.c_str(), row.unit.c_str());
    }
  }
  void PrintJson() const {
    std::printf(
        "{\"machine\": \"%s\", \"load_average\": {\"before\": %.2f, \"after\": %.2f}, "
        "\"rounds\": %d, \"rows\": [",
        Machine().c_str(), load_before_, LoadAverage(), rounds_);
    for (size_t i = 0; i < rows_.size(); ++i) {
      const RatioRow& row = rows_[i];
      std::printf(
          "%s\n  {\"measure\": \"%s\", \"unit\": \"%s\", \"ours_per_second\": %.1f, "
          "\"roof\": \"%s\", \"roof_per_second\": %.1f, \"ratio\": %.4f, \"bar\": %.2f}",
          i == 0 ? "" : ",", row.name.c_str(), row.unit.c_str(), row.ours, row.roof.c_str(),
          row.limit, row.ours / row.limit, row.bar);
    }
    std::printf("\n]}\n");
  }

  const int rounds_;
  const double seconds_;
  const double load_before_ = LoadAverage();
  std::vector<RatioRow> rows_;
};

}  // namespace hotbed::bench

#endif  // HOTBED_BENCH_RATIO_TABLE_H_
