#include "cli/base/row_id.h"

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace hotbed {

absl::StatusOr<uint64_t> ParseId(const std::string& text) {
  uint64_t id = 0;
  int64_t negative = 0;
  // The first character is looked at because SimpleAtoi skips blanks.
  const bool digit_first = !text.empty() && text[0] >= '0' && text[0] <= '9';
  if (digit_first && (absl::StartsWith(text, "0x") || absl::StartsWith(text, "0X"))) {
    if (absl::SimpleHexAtoi(text, &id)) return id;
  } else if (digit_first && absl::SimpleAtoi(text, &id)) {
    return id;
  } else if (text.size() > 1 && text[0] == '-' && text[1] >= '0' && text[1] <= '9' &&
             absl::SimpleAtoi(text, &negative)) {
    return static_cast<uint64_t>(negative);
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "id '", text, "' is not a number from -9223372036854775808 to 18446744073709551615"));
}

}  // namespace hotbed
