// Sees to it that no error of the coordinator is without a text: gRPC itself ends a call whose
// request it cannot read with UNIMPLEMENTED and nothing else.
#ifndef HOTBED_PLANNER_COORDINATOR_SHELL_ERROR_TEXTS_H_
#define HOTBED_PLANNER_COORDINATOR_SHELL_ERROR_TEXTS_H_

#include <grpcpp/support/server_interceptor.h>

#include <memory>
#include <vector>

namespace hotbed {

// For ServerBuilder::experimental().SetInterceptorCreators.
std::vector<std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface>> ErrorTexts();

}  // namespace hotbed

#endif  // HOTBED_PLANNER_COORDINATOR_SHELL_ERROR_TEXTS_H_
