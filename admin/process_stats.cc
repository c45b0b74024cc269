#include "admin/process_stats.h"

#include <dirent.h>
#include <sys/resource.h>
#include <unistd.h>

#include <fstream>
#include <sstream>
#include <string>

#include "common/clock.h"

namespace hotbed {
namespace {

std::string ReadFile(const char* path) {
  std::ifstream in(path);
  std::ostringstream out;
  out << in.rdbuf();
  return out.str();
}

uint64_t CountOpenFds() {
  DIR* dir = opendir("/proc/self/fd");
  if (dir == nullptr) return 0;
  uint64_t n = 0;
  while (const dirent* entry = readdir(dir)) {
    if (entry->d_name[0] != '.') ++n;
  }
  closedir(dir);
  return n > 0 ? n - 1 : 0;  // without the descriptor that lists them
}

// The time at which the machine started, in seconds since 1970.
double BootTime() {
  std::istringstream in(ReadFile("/proc/stat"));
  std::string word;
  while (in >> word) {
    double value = 0;
    if (word == "btime" && in >> value) return value;
  }
  return 0;
}

}  // namespace

void AddProcessMetrics(std::vector<MetricSample>* samples) {
  const std::string text = ReadFile("/proc/self/stat");
  // The second field is the program's name in parentheses and may hold blanks: count from the last
  // parenthesis.
  const size_t close = text.rfind(')');
  if (close == std::string::npos) return;
  std::istringstream in(text.substr(close + 1));
  const double ticks = static_cast<double>(sysconf(_SC_CLK_TCK));
  std::string state;
  in >> state;
  // Fields 4 to 24 of proc(5).
  double field[25] = {};
  for (int i = 4; i <= 24 && in >> field[i]; ++i) {
  }
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  const auto add = [samples](const char* name, const char* help, double value) {
    AddSample(name, help, {}, value, samples);
  };
  add("process_cpu_seconds_total", "User and system CPU time of the process.",
      (field[14] + field[15]) / ticks);
  add("process_clock_seconds", "The process's clock when it was asked, in seconds since 1970.",
      static_cast<double>(Clock::Real()->WallUs()) * 1e-6);
  add("process_max_fds", "Most file descriptors the process may have open.",
      static_cast<double>(limit.rlim_cur));
  add("process_open_fds", "File descriptors the process has open.",
      static_cast<double>(CountOpenFds()));
  add("process_resident_memory_bytes", "Resident memory of the process.",
      field[24] * static_cast<double>(sysconf(_SC_PAGESIZE)));
  add("process_start_time_seconds", "Start of the process, in seconds since 1970.",
      BootTime() + field[22] / ticks);
  add("process_virtual_memory_bytes", "Virtual memory of the process.", field[23]);
}

}  // namespace hotbed
