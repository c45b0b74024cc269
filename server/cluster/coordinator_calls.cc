#include "server/cluster/coordinator_calls.h"

#include <chrono>

#include "proto/grpc_tuning.h"

namespace hotbed {
namespace {

constexpr int kControlMessageBytesMax = 256 << 20;  // a map of every shard of a large cluster

grpc::ChannelArguments Arguments() {
  grpc::ChannelArguments args;
  args.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 50);
  args.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 500);
  args.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 500);
  args.SetInt(GRPC_ARG_ENABLE_RETRIES, 0);
  args.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  args.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  SetKeepalive(kAttendKeepalive, &args);
  args.SetMaxReceiveMessageSize(kControlMessageBytesMax);
  return args;
}

}  // namespace

CoordinatorCalls::CoordinatorCalls(const std::string& coordinator, const ClientIdentity& identity,
                                   const Timeouts& timeouts)
    : timeouts_(timeouts), leader_(coordinator, identity, Arguments()) {}

void CoordinatorCalls::Stop() {
  leader_.Stop();
  absl::MutexLock lock(&mu_);
  stopped_ = true;
  for (grpc::ClientContext* context : calling_) context->TryCancel();
}

absl::Status CoordinatorCalls::FromGrpc(const char* name, const grpc::Status& status) {
  if (status.ok()) return absl::OkStatus();
  return absl::Status(static_cast<absl::StatusCode>(status.error_code()),
                      absl::StrCat(name, ": ", status.error_message()));
}

void CoordinatorCalls::SetDeadline(int64_t timeout_ms, grpc::ClientContext* context) {
  context->set_deadline(std::chrono::system_clock::now() + std::chrono::milliseconds(timeout_ms));
}

}  // namespace hotbed
