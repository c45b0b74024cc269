// The open Attend streams: each server process sends its heartbeats on one and receives on it the
// changes that concern it. A stream has one message in flight; later changes are joined into the
// next message, so a slow reader costs the memory of one message. A stream that takes no message
// for `stall_ns` is dropped.
//
// Unless this side ended the stream, its end means that the process may be dead: the hub tells the
// coordinator (Coordinator::StreamBroken), except when the process has a newer stream.
//
// Thread-safe.
#ifndef HOTBED_PLANNER_COORDINATOR_SHELL_ATTEND_HUB_H_
#define HOTBED_PLANNER_COORDINATOR_SHELL_ATTEND_HUB_H_

#include <grpcpp/grpcpp.h>

#include <cstdint>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/synchronization/mutex.h"
#include "common/clock.h"
#include "planner/coordinator/shell/coordinator.h"
#include "planner/coordinator/shell/open_streams.h"
#include "proto/control.pb.h"

namespace hotbed {

struct AttendHubOptions {
  size_t streams_max = 8192;
  int64_t stall_ns = 10'000'000'000;
};

class AttendHub {
 public:
  // `coordinator` and `clock` must outlive it.
  AttendHub(Coordinator* coordinator, const Clock* clock, AttendHubOptions options);
  ~AttendHub();

  // The reactor of a new stream; it deletes itself. Refused streams end at once, with
  // ResourceExhausted.
  grpc::ServerBidiReactor<v1::HeartbeatRequest, v1::HeartbeatReply>* Open(
      grpc::CallbackServerContext* context);
  // Sends every stream the news for its process.
  void OnNews();
  // Drops streams that have stalled.
  void OnTick();
  // Ends all streams and refuses new ones.
  void Close();
  size_t streams() const { return streams_.size(); }

 private:
  class Stream;

  // Makes the stream the process's latest one.
  void Attend(const v1::Member& process, const Stream* stream);
  // True if the stream was the process's latest one.
  bool Leave(const v1::Member& process, const Stream* stream);

  Coordinator* const coordinator_;
  const Clock* const clock_;
  const AttendHubOptions options_;
  OpenStreams<Stream> streams_;

  absl::Mutex mu_;
  absl::flat_hash_map<std::pair<ServerId, Incarnation>, const Stream*> latest_ ABSL_GUARDED_BY(mu_);
};

}  // namespace hotbed

#endif  // HOTBED_PLANNER_COORDINATOR_SHELL_ATTEND_HUB_H_
