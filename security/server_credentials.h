// TLS of the side that is called, for gRPC, and the decision who may call what. Files are read
// again within a second of a change. Included by files that hold gRPC types only.
#ifndef HOTBED_SECURITY_SERVER_CREDENTIALS_H_
#define HOTBED_SECURITY_SERVER_CREDENTIALS_H_

#include <grpcpp/security/server_credentials.h>

#include <memory>
#include <string>

#include "security/server_security.h"

namespace hotbed {

// Each call is decided when it begins, by its token or else by the roles of its certificate. `port`
// names the port in the log and in metrics: "data".
std::shared_ptr<grpc::ServerCredentials> ServerCredentialsOf(const ServerSecurity& security,
                                                             const std::string& port);

}  // namespace hotbed

#endif  // HOTBED_SECURITY_SERVER_CREDENTIALS_H_
