// Whom a server or coordinator lets in.
#ifndef HOTBED_SECURITY_SERVER_SECURITY_H_
#define HOTBED_SECURITY_SERVER_SECURITY_H_

#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "config/config.h"
#include "security/access.h"
#include "security/identity.h"

namespace hotbed {

struct ServerSecurity {
  TlsFiles files;                       // none: plaintext, and nobody is asked who calls
  std::shared_ptr<WatchedRules> rules;  // with files

  std::shared_ptr<WatchedRules> admin_tokens;  // null: the admin port asks for no token

  // For AdminOptions::may_read, which counts and logs whom it refuses. Empty: everybody may.
  std::function<bool(absl::string_view token)> admin_access() const;
  // For PortOptions::access_version; looks at the file of rules. Empty without TLS.
  std::function<uint64_t()> access_version() const;
  // The same certificate shows who calls other servers.
  ClientIdentity identity() const { return {.files = files}; }
};

struct SecurityFlags {
  std::string secure = "auto";  // auto, on, off, off-beyond-loopback
  TlsFiles files;
  std::string access_rules;  // a file; empty: the defaults
  std::string admin_tokens;  // a file; empty: none is asked for
};
void AddSecurityFlags(ConfigSchema* schema, SecurityFlags* flags);

// Whether HOST:PORT can be reached from other machines.
bool ListensWide(const std::string& listen);

// Reads and checks what the flags name. An error says which flag to give: plaintext beyond loopback
// is refused unless --secure=off-beyond-loopback, and so is --secure=on without files.
absl::StatusOr<ServerSecurity> OpenServerSecurity(const SecurityFlags& flags,
                                                  const std::string& listen);

// InvalidArgument: an HTTP port without TLS would listen beyond loopback, and `secure` (off,
// off-beyond-loopback) does not insist on that.
absl::Status CheckPlainHttp(const std::string& secure, const std::string& listen);

// In the log: that a port beyond loopback has no TLS.
void WarnIfPlain(const ServerSecurity& security, const std::string& listen);
void WarnIfHttpWide(const ServerSecurity& security, const std::string& http_listen);
void WarnIfAdminWide(const ServerSecurity& security, const std::string& admin_listen);

}  // namespace hotbed

#endif  // HOTBED_SECURITY_SERVER_SECURITY_H_
