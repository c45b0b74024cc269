// What the engines of one client share. Owned by ClientImpl, which outlives them.
#ifndef HOTBED_CLIENT_CLIENT_CONTEXT_H_
#define HOTBED_CLIENT_CLIENT_CONTEXT_H_

#include <algorithm>
#include <atomic>
#include <cstdint>

#include "absl/time/time.h"
#include "client/cluster_map.h"
#include "client/map_follower.h"
#include "client/retry.h"
#include "client/timer.h"
#include "client/transport.h"
#include "common/clock.h"
#include "hotbed/client.h"

namespace hotbed {

struct ClientCounters {
  std::atomic<uint64_t> ids_asked{0};
  std::atomic<uint64_t> rows_pulled{0};
  std::atomic<uint64_t> rows_pushed{0};
  std::atomic<uint64_t> retries{0};
  std::atomic<uint64_t> wrong_epoch{0};

  static void Add(std::atomic<uint64_t>* counter, uint64_t n) {
    counter->fetch_add(n, std::memory_order_relaxed);
  }
};

struct ClientContext {
  ClientOptions options;
  const void* owner = nullptr;  // marks the tables of this client
  const Clock* clock = nullptr;
  ClusterMapHolder* map = nullptr;
  MapFollower* follower = nullptr;
  Transport* transport = nullptr;
  Timer* timer = nullptr;
  RetryPolicy* retry = nullptr;
  ClientCounters counters;

  // When a call that begins now ends; zero: the client's own deadline.
  int64_t DeadlineNs(absl::Duration deadline) const {
    const absl::Duration d = deadline == absl::ZeroDuration() ? options.deadline : deadline;
    const int64_t ns = std::clamp<int64_t>(absl::ToInt64Nanoseconds(d), 0, int64_t{1} << 60);
    return clock->NowNs() + ns;
  }
};

// What a segment weighs in a message beside its rows and ids.
inline constexpr uint64_t kSegmentHeaderBytes = 48;

}  // namespace hotbed

#endif  // HOTBED_CLIENT_CLIENT_CONTEXT_H_
