// Asks data ports whether a server is behind them: opens a connection, says what an HTTP/2 client
// says first, and waits for the first byte, so that a process that is stopped or hangs is not taken
// for alive because its kernel accepts connections. Names of hosts are looked up as the system does
// it, which may take longer than the probe itself.
//
// Thread-safe. One thread of its own probes up to kProbesAtOnce ports at once; further ones wait
// (Leases asks once for each server at a time, so there are no more than servers).
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
  // A connection that breaks at once is that of a process which is just ending: once more then.
  int64_t again_ms = 20;
};

class PortProbe {
 public:
  static constexpr size_t kProbesAtOnce = 64;

  // Called on the own thread, once for each Ask that is answered before the destruction.
  using OnAnswer = std::function<void(const ProbeRequest& request, ProbeAnswer answer)>;

  PortProbe(PortProbeOptions options, const Clock* clock, OnAnswer on_answer);
  ~PortProbe();  // blocks for at most a probe and its look-up of a name

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
  // What poll() said of the attempt's socket; true: it is over.
  bool Look(int events, Attempt* attempt, ProbeAnswer* answer);
  static void Close(Attempt* attempt);

  const PortProbeOptions options_;
  const Clock* const clock_;
  const OnAnswer on_answer_;
  int wake_[2] = {-1, -1};  // a pipe: poll() ends when something is asked

  absl::Mutex mu_;
  std::deque<ProbeRequest> asked_ ABSL_GUARDED_BY(mu_);
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;

  std::thread thread_;
};

}  // namespace hotbed

#endif  // HOTBED_PLANNER_COORDINATOR_SHELL_PORT_PROBE_H_
