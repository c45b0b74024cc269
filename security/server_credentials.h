// TLS of the side that is called, for gRPC, and the decision who may call what. Files are read
// again within a second of a change. Included by files that hold gRPC types only.
#ifndef HOTBED_SECURITY_SERVER_CREDENTIALS_H_
#define HOTBED_SECURITY_SERVER_CREDENTIALS_H_

#include <grpcpp/security/server_credentials.h>

#include <memory>

#include "security/call_access.h"
#include "security/server_security.h"

namespace hotbed {

// `access` decides each call when it begins; null: plaintext.
std::shared_ptr<grpc::ServerCredentials> ServerCredentialsOf(const ServerSecurity& security,
                                                             std::shared_ptr<CallAccess> access);

}  // namespace hotbed

#endif  // HOTBED_SECURITY_SERVER_CREDENTIALS_H_
