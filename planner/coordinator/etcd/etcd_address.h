// Where etcd is, and how to call it.
#ifndef HOTBED_PLANNER_COORDINATOR_ETCD_ETCD_ADDRESS_H_
#define HOTBED_PLANNER_COORDINATOR_ETCD_ETCD_ADDRESS_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "security/certificate.h"

namespace hotbed {

struct EtcdAddress {
  std::vector<std::string> members;  // HOST:PORT each
  // Goes before every key, so that several clusters can share one etcd. Empty, or "/a/b".
  std::string prefix;
};

inline constexpr absl::string_view kEtcdScheme = "etcd://";

// Parses etcd://HOST:PORT[,HOST:PORT...][/PREFIX]. InvalidArgument says what is wrong.
absl::StatusOr<EtcdAddress> ParseEtcdAddress(absl::string_view text);

struct EtcdOptions {
  EtcdAddress address;
  std::string user;                           // empty: nobody logs in
  std::string password_file;                  // of the user; read at each login
  TlsFiles files;                             // none: plaintext
  absl::Duration timeout = absl::Seconds(2);  // of one call to one member
};

}  // namespace hotbed

#endif  // HOTBED_PLANNER_COORDINATOR_ETCD_ETCD_ADDRESS_H_
