// The open Attend streams: each server process sends its heartbeats on one and receives on it the
// changes that concern it.
//
// Unless this side ended the stream, its end means that the process may be dead: the hub tells the
// coordinator (Coordinator::StreamBroken), except when the process has a newer stream.
//
// Thread-safe.
#ifndef HOTBED_PLANNER_COORDINATOR_SHELL_ATTEND_HUB_H_
#define HOTBED_PLANNER_COORDINATOR_SHELL_ATTEND_HUB_H_

#include <cstddef>
#include <cstdint>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/synchronization/mutex.h"
#include "common/clock.h"
#include "common/tables/shard_record.h"
#include "planner/coordinator/shell/coordinator.h"
#include "planner/coordinator/shell/open_streams.h"
#include "proto/control.pb.h"

namespace hotbed {

class AttendHub {
 public:
  static constexpr StreamLimits kLimits = {.streams_max = 8192, .stall_ns = 10'000'000'000};
  using Reactor = grpc::ServerBidiReactor<v1::HeartbeatRequest, v1::HeartbeatReply>;
  using Streams = OpenStreams<Reactor, v1::HeartbeatReply>;

  // `coordinator` and `clock` must outlive it.
  AttendHub(Coordinator* coordinator, const Clock* clock, StreamLimits limits)
      : coordinator_(coordinator), streams_(limits, clock, "servers attend") {}

  // The reactor of a new stream; it deletes itself. Refused streams end at once, with
  // ResourceExhausted.
  Reactor* Open(grpc::CallbackServerContext* context);
  Streams& streams() { return streams_; }

 private:
  class Stream;

  // Makes the stream the process's latest one.
  void Attend(const Member& process, const Stream* stream);
  // True if the stream was the process's latest one.
  bool Leave(const Member& process, const Stream* stream);

  Coordinator* const coordinator_;
  absl::Mutex mu_;
  absl::flat_hash_map<std::pair<ServerId, Incarnation>, const Stream*> latest_ ABSL_GUARDED_BY(mu_);
  Streams streams_;  // goes first: its streams use the others until they end
};

}  // namespace hotbed

#endif  // HOTBED_PLANNER_COORDINATOR_SHELL_ATTEND_HUB_H_
