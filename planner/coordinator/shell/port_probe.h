// Probes whether a server answers on its data port: opens a connection, sends the HTTP/2 client
// preface, and waits for the first byte. A process that is stopped or hangs is thus not taken for
// alive merely because its kernel accepts connections. Host names are looked up by the system,
// which may take longer than the probe itself.
//
// Thread-safe. One thread of its own probes up to kProbesAtOnce ports concurrently; further
// requests wait. Leases asks at most once per server at a time.
#ifndef HOTBED_PLANNER_COORDINATOR_SHELL_PORT_PROBE_H_
#define HOTBED_PLANNER_COORDINATOR_SHELL_PORT_PROBE_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <string>
#include <thread>  // NOLINT(build/c++11)
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "common/clock.h"
#include "planner/coordinator/state/leases.h"

namespace hotbed {

struct PortProbeOptions {
  int64_t timeout_ms = 200;
  // A connection that breaks at once may belong to a process that is just ending: the probe is
  // repeated after this time.
  int64_t again_ms = 20;
};

class PortProbe {
 public:
  static constexpr size_t kProbesAtOnce = 64;

  // Called on the probing thread, once for each Ask that is answered before the destruction.
  using OnAnswer = std::function<void(const ProbeRequest& request, ProbeAnswer answer)>;

  PortProbe(PortProbeOptions options, const Clock* clock, OnAnswer on_answer);
  ~PortProbe();  // blocks for at most one probe and its name look-up

  void Ask(ProbeRequest request) ABSL_LOCKS_EXCLUDED(mu_);

 private:
  struct Attempt {
    ProbeRequest request;
    int64_t deadline_ns = 0;
    int64_t begin_ns = 0;  // not before
    int socket = -1;       // -1: none is open
    bool connected = false;
  };

  void Run();
  void Begin(Attempt* attempt);
  void Poll(std::vector<Attempt>* attempts);
  // Handles the result of poll() for the attempt's socket; true if the attempt is done.
  bool Look(int events, Attempt* attempt, ProbeAnswer* answer);
  static void Close(Attempt* attempt);

  const PortProbeOptions options_;
  const Clock* const clock_;
  const OnAnswer on_answer_;
  int wake_[2] = {-1, -1};  // a pipe that ends poll() when there is a new request

  absl::Mutex mu_;
  std::deque<ProbeRequest> asked_ ABSL_GUARDED_BY(mu_);
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;

  std::thread thread_;
};

}  // namespace hotbed

#endif  // HOTBED_PLANNER_COORDINATOR_SHELL_PORT_PROBE_H_
