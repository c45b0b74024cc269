// A listening socket whose connections we accept ourselves and then give to gRPC. gRPC 1.51 gives
// up its listener for good when a descriptor is missing once (CVE-2023-4785), and takes any number
// of connections.
//
// A connection beyond the limits is accepted and closed at once, unless an idle one can make room:
// its client learns it now and tries again later, while a connection that waits in the kernel's
// queue would fail its client by a timeout, together with all that wait behind it.
//
// Every two seconds the port connects to itself, sends what a client sends first (with TLS: bytes
// that TLS refuses), and waits for an answer. Thread-safe.
#ifndef HOTBED_PORTS_PORT_H_
#define HOTBED_PORTS_PORT_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>  // NOLINT(build/c++11)
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "common/clock.h"
#include "common/metrics.h"
#include "ports/connection_table.h"

namespace hotbed {

struct PortOptions {
  std::string name = "data";           // in errors and metrics
  std::string listen = "127.0.0.1:0";  // HOST:PORT; port 0: any free one
  ConnectionLimits limits;
  bool probes = true;  // itself
  // Asked once per second; empty: never. When it grows, all connections are ended, so that their
  // clients come again and are judged by the rules of now.
  std::function<uint64_t()> access_version;
};

// Raises the soft limit of open files to the hard limit, and returns it.
uint64_t RaiseDescriptorLimit();

// The limits of a process that may have `descriptors_max` files open. 768 of them, or three
// quarters if they are few, are for files and connections of our own: log and RocksDB never lack
// one. 0 stands for the default: of `connections_max` what is left, at most 8192, and of
// `per_peer_max` half of it.
ConnectionLimits ConnectionLimitsOf(int64_t connections_max, int64_t per_peer_max,
                                    uint64_t descriptors_max);

class Port {
 public:
  // Binds and listens. Unavailable or InvalidArgument names the address and the reason.
  static absl::StatusOr<std::unique_ptr<Port>> Open(const PortOptions& options, const Clock* clock);
  ~Port();  // Stop()
  Port(const Port&) = delete;
  Port& operator=(const Port&) = delete;

  const std::string& address() const { return address_; }  // host:port as bound
  ConnectionTable& connections() { return *connections_; }

  // Accepts from now on. `hand_over` owns the descriptor it is given.
  void Serve(std::function<void(int descriptor)> hand_over);
  // Whether the port answered its own probe within the last ten seconds. `*why_not` names it.
  bool Answers(std::string* why_not) const;
  // Closes the socket; connections stay. Idempotent.
  void Stop();

 private:
  Port(const PortOptions& options, const Clock* clock);

  absl::Status Listen();
  void Accept();
  void AcceptFrom(int listening);
  void Shed(int listening);
  void Probe();
  std::string ProbeOnce();  // empty: it answered

  const PortOptions options_;
  const Clock* const clock_;
  const std::shared_ptr<ConnectionTable> connections_;
  std::string address_;
  std::vector<int> listening_;
  int wake_ = -1;   // an eventfd
  int spare_ = -1;  // closed to accept, and close, a connection when no descriptor is left
  std::function<void(int)> hand_over_;
  std::atomic<int> probe_port_{0};  // of our own end of the probe
  std::atomic<int64_t> answered_ns_{0};
  mutable absl::Mutex mu_;
  bool stops_ ABSL_GUARDED_BY(mu_) = false;
  std::string silence_ ABSL_GUARDED_BY(mu_);  // of the last probe
  std::thread accept_;
  std::thread probe_;
  MetricSource gauges_;  // last: it reads the others
};

}  // namespace hotbed

#endif  // HOTBED_PORTS_PORT_H_
