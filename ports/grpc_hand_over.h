// How a gRPC server takes the connections of a Port. Included by files that hold gRPC types only.
#ifndef HOTBED_PORTS_GRPC_HAND_OVER_H_
#define HOTBED_PORTS_GRPC_HAND_OVER_H_

#include <grpcpp/resource_quota.h>
#include <grpcpp/security/server_credentials.h>
#include <grpcpp/server_builder.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <utility>

namespace hotbed {

struct GrpcGuards {
  // Memory of gRPC's own: what it has read, and its calls. The limits of the Port hold before it;
  // near the quota gRPC shrinks its windows, and beyond it ends streams, of anybody.
  uint64_t quota_bytes = 256ull << 20;
  int streams_max = 1024;  // open at once on one connection
};

// Bounds what a connection may hold of gRPC, and ends those that are idle or dead: pinged after
// 30 s of silence, closed after another 20 s, or after ten minutes without a call.
inline void GuardServer(const GrpcGuards& guards, grpc::ServerBuilder* builder) {
  grpc::ResourceQuota quota("hotbed");
  quota.Resize(guards.quota_bytes);
  builder->SetResourceQuota(quota);
  builder->AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, guards.streams_max);
  builder->AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, 30'000);
  builder->AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 20'000);
  builder->AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  builder->AddChannelArgument(GRPC_ARG_MAX_CONNECTION_IDLE_MS, 600'000);
  builder->AddChannelArgument(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS, 10'000);
}

// For Port::Serve, once the server of `builder` has started.
inline std::function<void(int descriptor)> HandOverTo(
    grpc::ServerBuilder* builder, const std::shared_ptr<grpc::ServerCredentials>& credentials) {
  std::shared_ptr<grpc::experimental::ExternalConnectionAcceptor> acceptor =
      builder->experimental().AddExternalConnectionAcceptor(
          grpc::ServerBuilder::experimental_type::ExternalConnectionType::FROM_FD, credentials);
  return [acceptor = std::move(acceptor)](int descriptor) {
    grpc::experimental::ExternalConnectionAcceptor::NewConnectionParameters connection;
    connection.fd = descriptor;
    acceptor->HandleNewConnection(&connection);
  };
}

}  // namespace hotbed

#endif  // HOTBED_PORTS_GRPC_HAND_OVER_H_
