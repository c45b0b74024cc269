// The transport over gRPC: a channel and a stream per server and lane, and unary calls for lookups.
// The threads that poll its one completion queue process the answers. Thread-safe.
#ifndef HOTBED_CLIENT_NET_GRPC_TRANSPORT_H_
#define HOTBED_CLIENT_NET_GRPC_TRANSPORT_H_

#include <cstdint>
#include <memory>

#include "client/net/transport.h"

namespace hotbed {

struct GrpcTransportOptions {
  int threads = 1;
  bool join_requests = true;
  uint64_t message_bytes_max =
      1 << 20;  // of what the client sends; it accepts four times as much and some room
};

std::unique_ptr<Transport> NewGrpcTransport(const GrpcTransportOptions& options);

}  // namespace hotbed

#endif  // HOTBED_CLIENT_NET_GRPC_TRANSPORT_H_
