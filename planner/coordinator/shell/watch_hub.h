// The open WatchClusterMap streams: each gets the changes of the cluster map. Thread-safe.
#ifndef HOTBED_PLANNER_COORDINATOR_SHELL_WATCH_HUB_H_
#define HOTBED_PLANNER_COORDINATOR_SHELL_WATCH_HUB_H_

#include <cstddef>
#include <cstdint>

#include "common/clock.h"
#include "planner/coordinator/shell/coordinator.h"
#include "planner/coordinator/shell/open_streams.h"
#include "proto/control.pb.h"

namespace hotbed {

class WatchHub {
 public:
  static constexpr StreamLimits kLimits = {.streams_max = 16384, .stall_ns = 30'000'000'000};
  using Streams = OpenStreams<grpc::ServerWriteReactor<v1::ClusterMap>, v1::ClusterMap>;

  // `coordinator` and `clock` must outlive it.
  WatchHub(const Coordinator* coordinator, const Clock* clock, StreamLimits limits)
      : coordinator_(coordinator), streams_(limits, clock, "watches are open") {}

  // The reactor of a new stream; it deletes itself. Refused streams end at once, with
  // ResourceExhausted.
  grpc::ServerWriteReactor<v1::ClusterMap>* Open(grpc::CallbackServerContext* context,
                                                 uint64_t revision_known);
  Streams& streams() { return streams_; }

 private:
  class Stream;

  const Coordinator* const coordinator_;
  Streams streams_;
};

}  // namespace hotbed

#endif  // HOTBED_PLANNER_COORDINATOR_SHELL_WATCH_HUB_H_
