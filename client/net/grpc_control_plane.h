// The control plane over gRPC: calls of the coordinator. Thread-safe.
#ifndef HOTBED_CLIENT_NET_GRPC_CONTROL_PLANE_H_
#define HOTBED_CLIENT_NET_GRPC_CONTROL_PLANE_H_

#include <memory>
#include <string>

#include "client/map/control_plane.h"
#include "security/identity.h"

namespace hotbed {

// `address` is host:port, or several with commas between. Does not connect yet.
std::unique_ptr<ControlPlane> NewGrpcControlPlane(const std::string& address,
                                                  const ClientIdentity& identity);

}  // namespace hotbed

#endif  // HOTBED_CLIENT_NET_GRPC_CONTROL_PLANE_H_
