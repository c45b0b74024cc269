// Row ids as people write them. Pure functions.
#ifndef HOTBED_CLI_BASE_ROW_ID_H_
#define HOTBED_CLI_BASE_ROW_ID_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"

namespace hotbed {

// Decimal 0..2^64-1, or -2^63..-1 taken as its two's complement bits, or 0x and
// hexadecimal digits. InvalidArgument names the text and the range.
absl::StatusOr<uint64_t> ParseId(const std::string& text);

}  // namespace hotbed

#endif  // HOTBED_CLI_BASE_ROW_ID_H_
