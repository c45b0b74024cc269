// The checksum in which bearer tokens stand in the file of access rules, and with which object
// stores check what they are sent.
#ifndef HOTBED_COMMON_SHA256_H_
#define HOTBED_COMMON_SHA256_H_

#include <string>

#include "absl/strings/string_view.h"

namespace hotbed {

// SHA-256 in lower-case hex.
std::string Sha256Hex(absl::string_view text);

}  // namespace hotbed

#endif  // HOTBED_COMMON_SHA256_H_
