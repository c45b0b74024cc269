// The kernel's statistics of this process, read from /proc at each call. Fields stay 0 where there
// is no /proc. Thread-safe.
#ifndef HOTBED_ADMIN_PROCESS_STATS_H_
#define HOTBED_ADMIN_PROCESS_STATS_H_

#include <cstdint>

namespace hotbed {

struct ProcessStats {
  uint64_t resident_bytes = 0;
  uint64_t virtual_bytes = 0;
  double cpu_seconds = 0;         // user and system, all threads
  double start_time_seconds = 0;  // since 1970
  double uptime_seconds = 0;
  uint64_t open_fds = 0;
  uint64_t max_fds = 0;
  uint64_t threads = 0;
};

ProcessStats ReadProcessStats();

}  // namespace hotbed

#endif  // HOTBED_ADMIN_PROCESS_STATS_H_
