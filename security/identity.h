// How a process shows who it is to those that it calls.
#ifndef HOTBED_SECURITY_IDENTITY_H_
#define HOTBED_SECURITY_IDENTITY_H_

#include <string>

#include "absl/status/status.h"
#include "security/certificate.h"

namespace hotbed {

struct ClientIdentity {
  TlsFiles files;          // none: plaintext
  std::string token_file;  // holds a bearer token; needs TLS
};

// The files of certificates are looked at once per so many seconds.
inline constexpr unsigned kLookEveryS = 1;

// HOTBED_TLS_CERT, HOTBED_TLS_KEY, HOTBED_TLS_CA and HOTBED_TOKEN_FILE.
ClientIdentity IdentityOfEnvironment();

// CheckTlsFiles, and whether the token can be read.
absl::Status CheckIdentity(const ClientIdentity& identity);

}  // namespace hotbed

#endif  // HOTBED_SECURITY_IDENTITY_H_
