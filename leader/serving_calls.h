// Calls of the coordinator that leads about serving (proto/serving.proto), as LeaderStub makes its
// own. Thread-safe.
//
// Included by files that hold gRPC types only.
#ifndef HOTBED_LEADER_SERVING_CALLS_H_
#define HOTBED_LEADER_SERVING_CALLS_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "leader/leader_stub.h"
#include "proto/serving.pb.h"

namespace hotbed {

class ServingCalls {
 public:
  // `coordinators` is what CheckHostPorts takes. Connects at the first call.
  ServingCalls(const std::string& coordinators, const ClientIdentity& identity);

  // Errors name the coordinator if it cannot be reached.
  absl::StatusOr<v1::ServingOrders> Report(const v1::ServingReport& report, absl::Duration timeout);
  absl::StatusOr<v1::ServingMap> Get(absl::Duration timeout);
  absl::StatusOr<v1::ServeTablesReply> Serve(const v1::ServeTablesRequest& request,
                                             absl::Duration timeout);
  absl::StatusOr<v1::PublishVersionReply> Publish(const v1::PublishVersionRequest& request,
                                                  absl::Duration timeout);
  absl::StatusOr<v1::ChooseVersionReply> Choose(const v1::ChooseVersionRequest& request,
                                                absl::Duration timeout);

 private:
  template <typename Method, typename Request, typename Reply>
  absl::Status Call(Method method, const Request& request, absl::Duration timeout, Reply* reply);

  const std::string coordinators_;
  LeaderStub leader_;
};

}  // namespace hotbed

#endif  // HOTBED_LEADER_SERVING_CALLS_H_
