// What the engines of one client share, and what a message may be. Owned by ClientImpl, which
// outlives them.
#ifndef HOTBED_CLIENT_NET_CLIENT_CONTEXT_H_
#define HOTBED_CLIENT_NET_CLIENT_CONTEXT_H_

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "client/map/cluster_map.h"
#include "client/map/map_follower.h"
#include "client/map/read_choice.h"
#include "client/net/message_limits.h"
#include "client/net/retry.h"
#include "client/net/timer.h"
#include "client/net/transport.h"
#include "common/await_for.h"
#include "common/clock.h"
#include "hotbed/client.h"
#include "proto/convert.h"

namespace hotbed {

struct ClientCounters {
  std::atomic<uint64_t> ids_asked{0};
  std::atomic<uint64_t> ids_zeroed{0};
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
  ReadChoice* reads = nullptr;
  ClientCounters counters;

  // When a call that begins now ends; zero: the client's own deadline.
  int64_t DeadlineNs(absl::Duration deadline) const {
    const absl::Duration d = deadline == absl::ZeroDuration() ? options.deadline : deadline;
    const int64_t ns = std::clamp<int64_t>(absl::ToInt64Nanoseconds(d), 0, int64_t{1} << 60);
    return clock->NowNs() + ns;
  }

  // Sleeps until `condition` of `mu` holds; false if `deadline_ns` passes first. The network's work
  // goes on meanwhile.
  bool Await(absl::Mutex* mu, const absl::Condition& condition, int64_t deadline_ns) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu) {
    const std::shared_ptr<WaitDriver> driver = transport->driver();
    const int64_t left_ns = std::max<int64_t>(deadline_ns - clock->NowNs(), 0);
    if (driver != nullptr) driver->Sleeps(true);
    const bool holds = AwaitFor(mu, condition, absl::Nanoseconds(left_ns));
    if (driver != nullptr) driver->Sleeps(false);
    return holds;
  }

  // What the segments of a message and of its answer may weigh: the client's own limit or the least
  // of the servers', as the map and their hellos have it. One for all servers, because a part that
  // was cut for one may have to go to another.
  uint64_t MessageBytesMax(const ClusterMap& servers) const {
    uint64_t bytes_max = options.message_bytes_max;
    for (uint64_t theirs : {servers.message_bytes_max(), transport->MessageBytesMax()}) {
      if (theirs != 0) bytes_max = std::min(bytes_max, theirs);
    }
    return std::max(bytes_max, kMessageBytesFloor) - kMessageFrameBytes;
  }

  // The records that came with refusals, of a whole message at once: after a fail-over there may be
  // one in every segment.
  void TakeRecords(const Reply& reply) {
    std::vector<ShardRecord> records;
    for (uint32_t i = 0; i < reply.segment_count; ++i) {
      const v1::SegmentReply& segment =
          reply.view->header.segments(static_cast<int>(reply.segment_first + i));
      if (!segment.has_record()) continue;
      absl::StatusOr<ShardRecord> record = FromProto(segment.record());
      if (record.ok()) records.push_back(*std::move(record));
    }
    if (!records.empty()) map->ApplyRecords(records);
  }
};

}  // namespace hotbed

#endif  // HOTBED_CLIENT_NET_CLIENT_CONTEXT_H_
