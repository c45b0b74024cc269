// The gRPC face of the coordinator (proto/control.proto): listens, translates, answers. No thread
// waits for a transaction. Thread-safe.
#ifndef HOTBED_PLANNER_COORDINATOR_SHELL_SERVICE_H_
#define HOTBED_PLANNER_COORDINATOR_SHELL_SERVICE_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "common/clock.h"
#include "planner/coordinator/shell/attend_hub.h"
#include "planner/coordinator/shell/control_server.h"
#include "planner/coordinator/shell/coordinator.h"
#include "planner/coordinator/shell/tool_service.h"
#include "planner/coordinator/shell/watch_hub.h"

namespace hotbed {

struct CoordinatorServiceOptions {
  ControlServerOptions control;
  StreamLimits watches = WatchHub::kLimits;
};

class CoordinatorService {
 public:
  // Starts `coordinator`, which must not have been started and must outlive the service, then
  // listens. Unavailable names an address that is in use; other errors are those of
  // Coordinator::Start.
  static absl::StatusOr<std::unique_ptr<CoordinatorService>> Start(
      const CoordinatorServiceOptions& options, Coordinator* coordinator, const Clock* clock);
  ~CoordinatorService();  // calls Shutdown

  const std::string& address() const { return port().address(); }  // host:port as bound
  const Port& port() const { return server_->port(); }
  size_t watches() { return watches_.streams().size(); }  // open streams of clients
  size_t attends() { return attends_.streams().size(); }  // open streams of servers
  // Ends streams, stops the coordinator, then the server. Idempotent.
  void Shutdown();

 private:
  class Methods;

  CoordinatorService(const CoordinatorServiceOptions& options, Coordinator* coordinator,
                     const Clock* clock);
  absl::Status Listen(const CoordinatorServiceOptions& options);

  Coordinator* const coordinator_;
  WatchHub watches_;
  AttendHub attends_;
  std::unique_ptr<Methods> methods_;
  ToolService tools_;
  const Clock* const clock_;
  std::unique_ptr<ControlServer> server_;
};

}  // namespace hotbed

#endif  // HOTBED_PLANNER_COORDINATOR_SHELL_SERVICE_H_
