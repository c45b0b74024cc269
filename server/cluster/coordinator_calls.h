// Unary calls of one server to its coordinator: deadlines that double after a timeout, and
// cancellation of every call in flight. Thread-safe.
#ifndef HOTBED_SERVER_CLUSTER_COORDINATOR_CALLS_H_
#define HOTBED_SERVER_CLUSTER_COORDINATOR_CALLS_H_

#include <grpcpp/client_context.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "leader/leader_stub.h"
#include "proto/control.grpc.pb.h"
#include "security/identity.h"

namespace hotbed {

class CoordinatorCalls {
 public:
  struct Timeouts {
    int64_t ms = 2000;
    // A call that times out gets twice as long the next time, up to here: a registration that moves
    // many shards must not start over for ever.
    int64_t ms_max = 120'000;
  };

  CoordinatorCalls(const std::string& coordinator, const ClientIdentity& identity,
                   const Timeouts& timeouts);

  LeaderStub* leader() { return &leader_; }

  // `name` begins the text of an error. The deadline is TimeoutMs(extra_ms).
  template <typename Method, typename Request, typename Reply>
  absl::Status Call(const char* name, Method method, int64_t extra_ms, const Request& request,
                    Reply* reply) {
    const int64_t timeout_ms = TimeoutMs(extra_ms);
    const grpc::Status status =
        leader_.Call(absl::Milliseconds(timeout_ms), /*patient=*/false,
                     [&](v1::Coordinator::Stub* stub, grpc::ClientContext* context) {
                       if (!Begin(context))
                         return grpc::Status(grpc::StatusCode::CANCELLED, "stopping");
                       const grpc::Status ended = (stub->*method)(context, request, reply);
                       End(context);
                       return ended;
                     });
    absl::MutexLock lock(&mu_);
    if (status.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED) doubled_ms_ = 2 * timeout_ms;
    return FromGrpc(name, status);
  }

  int64_t TimeoutMs(int64_t extra_ms) const {
    absl::MutexLock lock(&mu_);
    return std::min(std::max(timeouts_.ms + extra_ms, doubled_ms_), timeouts_.ms_max);
  }
  // The coordinator has answered: deadlines are as short as they began.
  void ResetTimeout() {
    absl::MutexLock lock(&mu_);
    doubled_ms_ = 0;
  }
  // Cancels the calls in flight; later ones fail at once.
  void Stop();

  static absl::Status FromGrpc(const char* name, const grpc::Status& status);
  static void SetDeadline(int64_t timeout_ms, grpc::ClientContext* context);

 private:
  bool Begin(grpc::ClientContext* context) {
    absl::MutexLock lock(&mu_);
    if (!stopped_) calling_.insert(context);
    return !stopped_;
  }
  void End(grpc::ClientContext* context) {
    absl::MutexLock lock(&mu_);
    calling_.erase(context);
  }

  const Timeouts timeouts_;
  LeaderStub leader_;
  mutable absl::Mutex mu_;
  absl::flat_hash_set<grpc::ClientContext*> calling_ ABSL_GUARDED_BY(mu_);
  int64_t doubled_ms_ ABSL_GUARDED_BY(mu_) =
      0;  // twice the deadline of the call that timed out last
  bool stopped_ ABSL_GUARDED_BY(mu_) = false;
};

}  // namespace hotbed

#endif  // HOTBED_SERVER_CLUSTER_COORDINATOR_CALLS_H_
