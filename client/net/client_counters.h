// Counters of one client since Connect, read by Client::Stats. Thread-safe.
#ifndef HOTBED_CLIENT_NET_CLIENT_COUNTERS_H_
#define HOTBED_CLIENT_NET_CLIENT_COUNTERS_H_

#include <atomic>
#include <cstdint>

namespace hotbed {

// The meaning of each is that of ClientStats (hotbed/client.h).
struct ClientCounters {
  std::atomic<uint64_t> ids_asked{0};
  std::atomic<uint64_t> ids_zeroed{0};
  std::atomic<uint64_t> rows_pulled{0};
  std::atomic<uint64_t> rows_pushed{0};
  std::atomic<uint64_t> retries{0};
  std::atomic<uint64_t> wrong_epoch{0};
  std::atomic<uint64_t> hedges{0};
  std::atomic<uint64_t> hedges_of_silent{0};
  std::atomic<uint64_t> hedges_won{0};
  std::atomic<uint64_t> rows_missing{0};
};

}  // namespace hotbed

#endif  // HOTBED_CLIENT_NET_CLIENT_COUNTERS_H_
