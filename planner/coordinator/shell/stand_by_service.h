// The answers of a coordinator that stands by: each call of Coordinator ends at once with
// UNAVAILABLE, and the leader's address is in its text and in its trailing metadata
// (leader/leader_stub.h). Health checks say that it does not serve. Thread-safe.
#ifndef HOTBED_PLANNER_COORDINATOR_SHELL_STAND_BY_SERVICE_H_
#define HOTBED_PLANNER_COORDINATOR_SHELL_STAND_BY_SERVICE_H_

#include <grpcpp/generic/async_generic_service.h>

#include <functional>
#include <string>

#include "planner/coordinator/shell/tool_service.h"

namespace hotbed {

class StandByService : public grpc::CallbackGenericService {
 public:
  // `leader`: HOST:PORT, or empty while nobody is known to lead.
  explicit StandByService(std::function<std::string()> leader);
  grpc::ServerGenericBidiReactor* CreateReactor(
      grpc::GenericCallbackServerContext* context) override;

 private:
  const std::function<std::string()> leader_;
  ToolService tools_;
};

}  // namespace hotbed

#endif  // HOTBED_PLANNER_COORDINATOR_SHELL_STAND_BY_SERVICE_H_
