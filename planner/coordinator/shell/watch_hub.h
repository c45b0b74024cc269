// The open WatchClusterMap streams. Each stream has at most one message in flight, and its next
// message joins all changes since, so a slow reader costs the memory of one message. A stream that
// takes no message for `stall_ns` is dropped. Thread-safe.
#ifndef HOTBED_PLANNER_COORDINATOR_SHELL_WATCH_HUB_H_
#define HOTBED_PLANNER_COORDINATOR_SHELL_WATCH_HUB_H_

#include <grpcpp/grpcpp.h>

#include <cstdint>

#include "common/clock.h"
#include "planner/coordinator/shell/coordinator.h"
#include "planner/coordinator/shell/open_streams.h"
#include "proto/control.pb.h"

namespace hotbed {

struct WatchHubOptions {
  size_t streams_max = 4096;
  int64_t stall_ns = 30'000'000'000;
};

class WatchHub {
 public:
  // `coordinator` and `clock` must outlive it.
  WatchHub(const Coordinator* coordinator, const Clock* clock, WatchHubOptions options);
  ~WatchHub();

  // The reactor of a new stream; it deletes itself. Refused streams end at once, with
  // ResourceExhausted.
  grpc::ServerWriteReactor<v1::ClusterMap>* Open(grpc::CallbackServerContext* context,
                                                 uint64_t revision_known);
  // Sends the changes to every stream without a message in flight.
  void OnPlanChanged();
  // Drops streams that have stalled.
  void OnTick();
  // Ends all streams and refuses new ones.
  void Close();
  size_t streams() const { return streams_.size(); }

 private:
  class Stream;

  const Coordinator* const coordinator_;
  const Clock* const clock_;
  const WatchHubOptions options_;
  OpenStreams<Stream> streams_;
};

}  // namespace hotbed

#endif  // HOTBED_PLANNER_COORDINATOR_SHELL_WATCH_HUB_H_
