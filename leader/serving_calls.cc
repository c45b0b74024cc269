#include "leader/serving_calls.h"

#include <grpcpp/grpcpp.h>

#include <chrono>  // NOLINT(build/c++11): gRPC's deadlines
#include <memory>

#include "absl/strings/str_cat.h"
#include "common/clock.h"
#include "common/status_macros.h"
#include "proto/grpc_tuning.h"
#include "proto/serving.grpc.pb.h"

namespace hotbed {
namespace {

constexpr int kReplyBytesMax = 64 << 20;
constexpr int64_t kAgainNs = 50 * kMillisecondNs;  // after a coordinator that stands by

grpc::ChannelArguments Arguments() {
  grpc::ChannelArguments args;
  args.SetMaxReceiveMessageSize(kReplyBytesMax);
  args.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 50);
  args.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 500);
  args.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 500);
  args.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  SetKeepalive(kClientKeepalive, &args);
  return args;
}

}  // namespace

ServingCalls::ServingCalls(const std::string& coordinators, const ClientIdentity& identity)
    : coordinators_(coordinators), leader_(coordinators, identity, Arguments()) {}

template <typename Method, typename Request, typename Reply>
absl::Status ServingCalls::Call(Method method, const Request& request, absl::Duration timeout,
                                Reply* reply) {
  const Clock& clock = *Clock::Real();
  const int64_t end_ns = clock.NowNs() + absl::ToInt64Nanoseconds(timeout);
  for (;;) {
    const int64_t left_ns = end_ns - clock.NowNs();
    const std::shared_ptr<const LeaderStub::Place> place =
        leader_.Find(absl::Nanoseconds(left_ns), /*patient=*/false);
    const auto stub = v1::ServingCoordinator::NewStub(place->channel);
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::nanoseconds(left_ns));
    const grpc::Status status = (stub.get()->*method)(&context, request, reply);
    if (status.ok()) return absl::OkStatus();
    if (leader_.Learn(*place, status, context) && clock.NowNs() + kAgainNs < end_ns) {
      clock.SleepNs(kAgainNs);
      continue;
    }
    const auto code = static_cast<absl::StatusCode>(status.error_code());
    const bool unreached =
        code == absl::StatusCode::kUnavailable || code == absl::StatusCode::kDeadlineExceeded;
    return absl::Status(code, unreached ? absl::StrCat("coordinator at ", coordinators_, ": ",
                                                       status.error_message())
                                        : status.error_message());
  }
}

absl::StatusOr<v1::ServingOrders> ServingCalls::Report(const v1::ServingReport& report,
                                                       absl::Duration timeout) {
  v1::ServingOrders orders;
  HOTBED_RETURN_IF_ERROR(
      Call(&v1::ServingCoordinator::Stub::ReportServing, report, timeout, &orders));
  return orders;
}

absl::StatusOr<v1::ServingMap> ServingCalls::Get(absl::Duration timeout) {
  v1::ServingMap map;
  HOTBED_RETURN_IF_ERROR(
      Call(&v1::ServingCoordinator::Stub::GetServing, v1::GetServingRequest(), timeout, &map));
  return map;
}

absl::StatusOr<v1::ServeTablesReply> ServingCalls::Serve(const v1::ServeTablesRequest& request,
                                                         absl::Duration timeout) {
  v1::ServeTablesReply reply;
  HOTBED_RETURN_IF_ERROR(
      Call(&v1::ServingCoordinator::Stub::ServeTables, request, timeout, &reply));
  return reply;
}

absl::StatusOr<v1::PublishVersionReply> ServingCalls::Publish(
    const v1::PublishVersionRequest& request, absl::Duration timeout) {
  v1::PublishVersionReply reply;
  HOTBED_RETURN_IF_ERROR(
      Call(&v1::ServingCoordinator::Stub::PublishVersion, request, timeout, &reply));
  return reply;
}

absl::StatusOr<v1::ChooseVersionReply> ServingCalls::Choose(const v1::ChooseVersionRequest& request,
                                                            absl::Duration timeout) {
  v1::ChooseVersionReply reply;
  HOTBED_RETURN_IF_ERROR(
      Call(&v1::ServingCoordinator::Stub::ChooseVersion, request, timeout, &reply));
  return reply;
}

}  // namespace hotbed
