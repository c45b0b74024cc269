// The form in which a bearer token stands in the file of access rules.
#ifndef HOTBED_SECURITY_TOKEN_HASH_H_
#define HOTBED_SECURITY_TOKEN_HASH_H_

#include <string>

#include "absl/strings/string_view.h"

namespace hotbed {

// SHA-256 in lower-case hex.
std::string Sha256Hex(absl::string_view text);

}  // namespace hotbed

#endif  // HOTBED_SECURITY_TOKEN_HASH_H_
