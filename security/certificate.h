// X.509 certificates in PEM files: read, checked, and made for clusters that have no authority of
// their own. Keys are on the curve P-256. Thread-safe.
#ifndef HOTBED_SECURITY_CERTIFICATE_H_
#define HOTBED_SECURITY_CERTIFICATE_H_

#include <cstdint>
#include <string>
#include <tuple>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "security/access_role.h"

namespace hotbed {

struct Certificate {
  std::string name;    // the subject's common name
  std::string issuer;  // the issuer's common name
  std::vector<AccessRole> roles;
  std::vector<std::string> hosts;  // DNS names and addresses
  int64_t not_before_s = 0;        // seconds since 1970
  int64_t not_after_s = 0;
  bool authority = false;  // may sign others
};

// All certificates of a PEM file, in its order. An error names the file: NotFound, or
// InvalidArgument where it holds no certificate, or one that cannot be read.
absl::StatusOr<std::vector<Certificate>> ReadCertificates(const std::string& path);

// The files of one process.
struct TlsFiles {
  std::string certificate;  // its own, and behind it those that lead to the authority
  std::string key;          // of the certificate
  std::string authority;    // certificates that sign those of the other side

  bool any() const { return !certificate.empty() || !key.empty() || !authority.empty(); }
  bool operator<(const TlsFiles& o) const {
    return std::tie(certificate, key, authority) < std::tie(o.certificate, o.key, o.authority);
  }
};

// As the environment has them: HOTBED_TLS_CERT, HOTBED_TLS_KEY, HOTBED_TLS_CA.
TlsFiles TlsFilesOfEnvironment();

// Whether the files can be used at `now_s`: each is there, the key is the certificate's, its time
// has come and is not over, and the authority has signed it. Certificate and key may both be
// missing where a token says who calls. The error names the file and the next step. A key that is
// not the certificate's is looked at again for a second, since the two may be being replaced.
absl::Status CheckTlsFiles(const TlsFiles& files, int64_t now_s);

inline constexpr int64_t kDayS = 86'400;

// Writes DIR/ca.crt and DIR/ca.key. AlreadyExists: one of them is there.
absl::Status CreateAuthority(const std::string& dir, const std::string& name, int64_t days,
                             int64_t now_s);

struct CertificateRequest {
  std::string name;
  AccessRole role = AccessRole::kReader;
  std::vector<std::string> hosts;
  int64_t days = 365;
};
// Writes DIR/NAME.crt and DIR/NAME.key, signed by DIR/ca.crt. An existing pair is replaced only
// with `replace`: each file by a rename, the key first.
absl::Status CreateCertificate(const std::string& dir, const CertificateRequest& request,
                               bool replace, int64_t now_s);

}  // namespace hotbed

#endif  // HOTBED_SECURITY_CERTIFICATE_H_
