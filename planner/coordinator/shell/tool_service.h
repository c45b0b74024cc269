// The calls of general gRPC tools (proto/tool_calls.h) on the coordinator's port. Any other method
// that no service has is answered here too, with UNIMPLEMENTED. Thread-safe.
#ifndef HOTBED_PLANNER_COORDINATOR_SHELL_TOOL_SERVICE_H_
#define HOTBED_PLANNER_COORDINATOR_SHELL_TOOL_SERVICE_H_

#include <grpcpp/generic/async_generic_service.h>

#include <utility>

#include "proto/tool_calls.h"

namespace hotbed {

class ToolService : public grpc::CallbackGenericService {
 public:
  explicit ToolService(ToolCalls calls) : calls_(std::move(calls)) {}
  grpc::ServerGenericBidiReactor* CreateReactor(
      grpc::GenericCallbackServerContext* context) override;

 private:
  const ToolCalls calls_;
};

}  // namespace hotbed

#endif  // HOTBED_PLANNER_COORDINATOR_SHELL_TOOL_SERVICE_H_
