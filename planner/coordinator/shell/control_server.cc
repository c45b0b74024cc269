#include "planner/coordinator/shell/control_server.h"

#include <chrono>  // NOLINT(build/c++11): gRPC's deadlines
#include <functional>
#include <utility>

#include "common/check.h"
#include "common/status_macros.h"
#include "planner/coordinator/shell/error_texts.h"
#include "ports/grpc_hand_over.h"
#include "proto/grpc_tuning.h"
#include "security/server_credentials.h"

namespace hotbed {
namespace {

constexpr char kName[] = "control";
constexpr int kRequestBytesMax = 16 << 20;
constexpr int kStreamsPerConnectionMax = 256;
constexpr uint64_t kGrpcBytesMax = 256ull << 20;

}  // namespace

ControlServer::ControlServer(const ServerSecurity& security)
    : security_(security), access_(CallAccess::Of(security, kName)) {}

absl::StatusOr<std::unique_ptr<ControlServer>> ControlServer::Open(
    const ControlServerOptions& options, const Clock* clock) {
  std::unique_ptr<ControlServer> server(new ControlServer(options.security));
  PortOptions port = options.port;
  port.name = kName;
  port.limits.encrypted = options.security.files.any();
  port.access_version = options.security.access_version();
  port.limits.http2.message_bytes_max = 2 * uint64_t{kRequestBytesMax};
  HOTBED_ASSIGN_OR_RETURN(server->port_, Port::Open(port, clock));
  return server;
}

void ControlServer::Serve(const std::vector<grpc::Service*>& services,
                          grpc::CallbackGenericService* others) {
  grpc::ServerBuilder builder;
  GuardServer({.quota_bytes = kGrpcBytesMax, .streams_max = kStreamsPerConnectionMax}, &builder);
  std::function<void(int)> hand_over =
      HandOverTo(&builder, ServerCredentialsOf(security_, access_));
  builder.SetMaxReceiveMessageSize(kRequestBytesMax);
  builder.SetMaxSendMessageSize(-1);
  AllowKeepalives(&builder);
  builder.experimental().SetInterceptorCreators(ErrorTexts());
  for (grpc::Service* const service : services) builder.RegisterService(service);
  builder.RegisterCallbackGenericService(others);
  server_ = builder.BuildAndStart();
  HOTBED_CHECK(server_ != nullptr) << "gRPC does not start";
  port_->Serve(std::move(hand_over));
}

ControlServer::~ControlServer() { Shutdown(); }

void ControlServer::Shutdown() {
  if (port_ != nullptr) port_->Stop();
  if (server_ == nullptr) return;
  server_->Shutdown(std::chrono::system_clock::now() + std::chrono::seconds(2));
  server_->Wait();
  server_.reset();
}

}  // namespace hotbed
