// The machine on which a benchmark runs, and how busy it was: the load average before and after.
// For the heads of all benchmarks.
#ifndef HOTBED_BENCH_ROOFS_MACHINE_H_
#define HOTBED_BENCH_ROOFS_MACHINE_H_

#include <stdlib.h>
#include <sys/utsname.h>

#include <cstdio>
#include <fstream>
#include <string>
#include <thread>

#include "absl/strings/str_cat.h"

namespace hotbed::bench {

// The name alone does not tell generations of a virtual machine's processor apart; family and model
// do. "AMD EPYC, family 26 model 2".
inline std::string Processor() {
  std::string name = "unknown processor", family, model;
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line) && !line.empty();) {
    const size_t colon = line.find(": ");
    if (colon == std::string::npos) continue;
    const std::string key = line.substr(0, line.find_first_of("\t:"));
    const std::string value = line.substr(colon + 2);
    if (key == "model name") name = value;
    if (key == "cpu family") family = value;
    if (key == "model") model = value;
  }
  if (family.empty()) return name;
  return absl::StrCat(name, ", family ", family, " model ", model);
}

inline std::string Machine() {
  utsname name = {};
  uname(&name);
  return absl::StrCat(Processor(), ", ", std::thread::hardware_concurrency(), " cores, ",
                      name.sysname, " ", name.release);
}

// The mean number of runnable processes over the last minute; negative: unknown.
inline double LoadAverage() {
  double last_minute = 0;
  return getloadavg(&last_minute, 1) == 1 ? last_minute : -1;
}

// "1.40 before, 2.10 after".
inline std::string LoadAverages(double before) {
  char text[64];
  std::snprintf(text, sizeof text, "%.2f before, %.2f after", before, LoadAverage());
  return text;
}

// Tells machine and load average on stderr when it ends: for programs that print as they measure.
class MachineNote {
 public:
  MachineNote() = default;
  MachineNote(const MachineNote&) = delete;
  MachineNote& operator=(const MachineNote&) = delete;
  ~MachineNote() {
    std::fprintf(stderr, "machine  %s\nload average  %s\n", Machine().c_str(),
                 LoadAverages(before_).c_str());
  }

 private:
  const double before_ = LoadAverage();
};

}  // namespace hotbed::bench

#endif  // HOTBED_BENCH_ROOFS_MACHINE_H_
