#include "admin/process_stats.h"

#include <dirent.h>
#include <sys/resource.h>
#include <unistd.h>

#include <fstream>
#include <sstream>
#include <string>

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

ProcessStats ReadProcessStats() {
  ProcessStats stats;
  const std::string text = ReadFile("/proc/self/stat");
  // The second field is the program's name in parentheses and may hold blanks: count from the last
  // parenthesis.
  const size_t close = text.rfind(')');
  if (close == std::string::npos) return stats;
  std::istringstream in(text.substr(close + 1));
  const double ticks = static_cast<double>(sysconf(_SC_CLK_TCK));
  std::string state;
  in >> state;
  // Fields 4 to 24 of proc(5).
  double field[25] = {};
  for (int i = 4; i <= 24 && in >> field[i]; ++i) {
  }
  stats.cpu_seconds = (field[14] + field[15]) / ticks;
  stats.threads = static_cast<uint64_t>(field[20]);
  stats.virtual_bytes = static_cast<uint64_t>(field[23]);
  stats.resident_bytes =
      static_cast<uint64_t>(field[24]) * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  const double since_boot = field[22] / ticks;
  stats.start_time_seconds = BootTime() + since_boot;
  double machine_uptime = 0;
  std::istringstream(ReadFile("/proc/uptime")) >> machine_uptime;
  if (machine_uptime > since_boot) stats.uptime_seconds = machine_uptime - since_boot;
  stats.open_fds = CountOpenFds();
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) == 0) stats.max_fds = limit.rlim_cur;
  return stats;
}

}  // namespace hotbed
