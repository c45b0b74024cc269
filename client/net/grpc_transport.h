// The transport over gRPC: a channel and a stream per server and lane.
// The threads that poll its one completion queue process the answers. Thread-safe.
#ifndef HOTBED_CLIENT_NET_GRPC_TRANSPORT_H_
#define HOTBED_CLIENT_NET_GRPC_TRANSPORT_H_

#include <cstdint>
#include <memory>

#include "client/net/transport.h"
#include "hotbed/client.h"
#include "security/identity.h"

namespace hotbed {

std::unique_ptr<Transport> NewGrpcTransport(const ClientOptions& options,
                                            const ClientIdentity& identity);

}  // namespace hotbed

#endif  // HOTBED_CLIENT_NET_GRPC_TRANSPORT_H_
