// The control port and gRPC's server behind it. Thread-safe.
#ifndef HOTBED_PLANNER_COORDINATOR_SHELL_CONTROL_SERVER_H_
#define HOTBED_PLANNER_COORDINATOR_SHELL_CONTROL_SERVER_H_

#include <grpcpp/grpcpp.h>

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "common/clock.h"
#include "ports/port.h"
#include "security/call_access.h"
#include "security/server_security.h"

namespace hotbed {

struct ControlServerOptions {
  PortOptions port = {.listen = "127.0.0.1:7400"};
  ServerSecurity security;
};

class ControlServer {
 public:
  // Listens, and answers nothing yet. Unavailable names an address that is in use.
  static absl::StatusOr<std::unique_ptr<ControlServer>> Open(const ControlServerOptions& options,
                                                             const Clock* clock);
  // Answers from now on. `others` gets the calls that none of `services` has. All must outlive
  // Shutdown.
  void Serve(const std::vector<grpc::Service*>& services, grpc::CallbackGenericService* others);
  ~ControlServer();  // calls Shutdown

  const Port& port() const { return *port_; }
  // Which tables a caller of `methods` may use; empty: all.
  TableAccessOf tables_of() const { return TableAccessBy(access_); }
  // Accepts no more connections.
  void StopAccepting() { port_->Stop(); }
  // Calls that are under way get two seconds. Idempotent.
  void Shutdown();

 private:
  explicit ControlServer(const ServerSecurity& security);

  const ServerSecurity security_;
  const std::shared_ptr<CallAccess> access_;
  std::unique_ptr<Port> port_;
  std::unique_ptr<grpc::Server> server_;
};

}  // namespace hotbed

#endif  // HOTBED_PLANNER_COORDINATOR_SHELL_CONTROL_SERVER_H_
