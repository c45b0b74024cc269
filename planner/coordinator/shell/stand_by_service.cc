#include "planner/coordinator/shell/stand_by_service.h"

#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "leader/leader_stub.h"

namespace hotbed {
namespace {

constexpr const char* kServices[] = {"hotbed.v1.Coordinator", "hotbed.v1.ServingCoordinator"};

bool IsOurs(const std::string& method) {
  return std::any_of(std::begin(kServices), std::end(kServices), [&](const char* service) {
    return absl::StartsWith(method, absl::StrCat("/", service, "/"));
  });
}

// One call; owns itself until OnDone.
class StandByReactor : public grpc::ServerGenericBidiReactor {
 public:
  explicit StandByReactor(const std::string& leader) {
    Finish({grpc::StatusCode::UNAVAILABLE,
            leader.empty()
                ? "this coordinator stands by, and none leads now: try again in some seconds"
                : absl::StrCat("this coordinator stands by: the leader is at ", leader)});
  }
  void OnDone() override { delete this; }
};

}  // namespace

StandByService::StandByService(std::function<std::string()> leader)
    : leader_(std::move(leader)),
      tools_(ToolCalls({std::begin(kServices), std::end(kServices)}, [] { return false; })) {}

grpc::ServerGenericBidiReactor* StandByService::CreateReactor(
    grpc::GenericCallbackServerContext* context) {
  if (!IsOurs(context->method())) {
    return tools_.CreateReactor(context);
  }
  const std::string leader = leader_();
  context->AddTrailingMetadata(kStandsBy, leader);
  return new StandByReactor(leader);
}

}  // namespace hotbed
