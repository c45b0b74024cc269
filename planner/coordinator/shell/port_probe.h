// Probes whether a server answers on its data port: opens a connection, sends the HTTP/2 client
// preface, and waits for the first byte. A process that is stopped or hangs is thus not taken for
// alive merely because its kernel accepts connections. Host names are looked up by the system,
// which may take longer than the probe itself.
//
// Thread-safe. Up to kProbesAtOnce ports are probed at once, each by a thread; further requests
// wait. Leases asks at most once per server at a time.
#ifndef HOTBED_PLANNER_COORDINATOR_SHELL_PORT_PROBE_H_
#define HOTBED_PLANNER_COORDINATOR_SHELL_PORT_PROBE_H_

#include <atomic>
#include <functional>
#include <string>
#include <utility>

#include "common/clock.h"
#include "common/threads/thread_pool.h"
#include "planner/coordinator/state/leases.h"

namespace hotbed {

class PortProbe {
 public:
  static constexpr int kProbesAtOnce = 64;

  // Called on a thread of the probe, once for each Ask that is answered before the destruction.
  using OnAnswer = std::function<void(const ProbeRequest& request, ProbeAnswer answer)>;

  PortProbe(const Clock* clock, OnAnswer on_answer)
      : clock_(clock), on_answer_(std::move(on_answer)), pool_("port-probe", kProbesAtOnce) {}
  ~PortProbe() { stopping_ = true; }  // blocks for at most one probe and its name look-up

  void Ask(ProbeRequest request);

 private:
  ProbeAnswer Probe(const std::string& address) const;

  const Clock* const clock_;
  const OnAnswer on_answer_;
  std::atomic<bool> stopping_{false};
  ThreadPool pool_;  // goes first: its threads use the others
};

}  // namespace hotbed

#endif  // HOTBED_PLANNER_COORDINATOR_SHELL_PORT_PROBE_H_
