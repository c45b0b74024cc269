// TLS of the side that calls, for gRPC. Files are read again within a second of a change.
//
// The server's chain must lead to the authority, and its certificate must have the role `server`: a
// trainer's certificate cannot pass for a server's. Host names are not compared, since pods and
// machines change theirs. Included by files that hold gRPC types only.
#ifndef HOTBED_SECURITY_CHANNEL_CREDENTIALS_H_
#define HOTBED_SECURITY_CHANNEL_CREDENTIALS_H_

#include <grpcpp/security/credentials.h>

#include <memory>

#include "security/identity.h"

namespace hotbed {

// Plaintext where the identity has no files. The files were checked; what goes wrong later fails
// connections, as gRPC reports it. Equal identities share one object.
std::shared_ptr<grpc::ChannelCredentials> ChannelCredentialsOf(const ClientIdentity& identity);

// For a service that is not Hotbed's, such as etcd: its certificate must be signed by the authority
// and bear the host name or address that is called. Plaintext without files.
std::shared_ptr<grpc::ChannelCredentials> NamedHostCredentialsOf(const TlsFiles& files);

}  // namespace hotbed

#endif  // HOTBED_SECURITY_CHANNEL_CREDENTIALS_H_
