// The session under which a client pushes: opened at the coordinator by the first push, and then
// the same until the client ends. Thread-safe.
#ifndef HOTBED_CLIENT_PUSH_PUSH_SESSION_H_
#define HOTBED_CLIENT_PUSH_PUSH_SESSION_H_

#include <cstdint>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "client/map/control_plane.h"
#include "client/net/transport.h"
#include "common/clock.h"

namespace hotbed {

class PushSession {
 public:
  // All pointers outlive this.
  PushSession(std::string name, ControlPlane* control, Transport* transport, const Clock* clock)
      : name_(std::move(name)), control_(control), transport_(transport), clock_(clock) {}

  const std::string& name() const { return name_; }
  // The session's identity. Blocks while the session is not open, at most until the deadline of
  // `clock`; the transport then sends the identity in its hellos.
  absl::StatusOr<SessionIdentity> Open(int64_t deadline_ns) ABSL_LOCKS_EXCLUDED(mu_);

 private:
  const std::string name_;
  ControlPlane* const control_;
  Transport* const transport_;
  const Clock* const clock_;

  absl::Mutex mu_;
  SessionIdentity identity_ ABSL_GUARDED_BY(mu_);  // session 0: not open yet
  bool opening_ ABSL_GUARDED_BY(mu_) = false;
};

}  // namespace hotbed

#endif  // HOTBED_CLIENT_PUSH_PUSH_SESSION_H_
