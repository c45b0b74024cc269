// The addresses of a server that listens on all addresses of its machine (0.0.0.0, [::]) and was
// not told by which of them others reach it: nobody can connect to what it listens on. The one that
// surely is an address of that machine, and is reached from here, is the one from which it
// registers. Pure functions.
#ifndef HOTBED_PLANNER_COORDINATOR_SHELL_SEEN_ADDRESS_H_
#define HOTBED_PLANNER_COORDINATOR_SHELL_SEEN_ADDRESS_H_

#include <string>

#include "absl/status/status.h"
#include "proto/control.pb.h"

namespace hotbed {

// The numeric host of a peer as gRPC writes it: of "ipv4:10.0.0.7:4242" and
// "ipv6:%5B::ffff:10.0.0.7%5D:4242" it is 10.0.0.7. Empty: none.
std::string HostOfPeer(const std::string& grpc_peer);

// Puts the peer's host into `address` if that is a wildcard, and the host of `address` into
// `admin_address` if that is one. InvalidArgument: the peer is no address that others can use,
// because it registers over loopback; the text says which flag to give.
absl::Status FillSeenHosts(const std::string& grpc_peer, v1::RegisterServerRequest* request);

}  // namespace hotbed

#endif  // HOTBED_PLANNER_COORDINATOR_SHELL_SEEN_ADDRESS_H_
