// The gRPC face of the coordinator (proto/control.proto): listens, translates, answers. No thread
// waits for a transaction. Thread-safe.
#ifndef HOTBED_PLANNER_COORDINATOR_SHELL_SERVICE_H_
#define HOTBED_PLANNER_COORDINATOR_SHELL_SERVICE_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "common/clock.h"
#include "planner/coordinator/shell/attend_hub.h"
#include "planner/coordinator/shell/coordinator.h"
#include "planner/coordinator/shell/watch_hub.h"
#include "ports/port.h"

namespace hotbed {

struct CoordinatorServiceOptions {
  PortOptions port = {.name = "control", .listen = "127.0.0.1:7400"};
  WatchHubOptions watches;
  AttendHubOptions attends;
  int request_bytes_max = 16 << 20;
  uint64_t grpc_bytes_max = 256ull << 20;  // memory of gRPC's own
};

class CoordinatorService {
 public:
  // Starts `coordinator`, which must not have been started and must outlive the service, then
  // listens. Unavailable names an address that is in use; other errors are those of
  // Coordinator::Start.
  static absl::StatusOr<std::unique_ptr<CoordinatorService>> Start(
      const CoordinatorServiceOptions& options, Coordinator* coordinator, const Clock* clock);
  virtual ~CoordinatorService() = default;  // calls Shutdown

  virtual std::string address() const = 0;  // host:port as bound
  virtual size_t watches() const = 0;       // open streams of clients
  virtual size_t attends() const = 0;       // open streams of servers
  virtual const Port& port() const = 0;
  // Ends streams, stops the coordinator, then the server. Idempotent.
  virtual void Shutdown() = 0;
};

}  // namespace hotbed

#endif  // HOTBED_PLANNER_COORDINATOR_SHELL_SERVICE_H_
