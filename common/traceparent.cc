#include "common/traceparent.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"

namespace hotbed {
namespace {

constexpr size_t kBytes = 55;  // of version 00

bool IsHex(absl::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) {
    return absl::ascii_isdigit(static_cast<unsigned char>(c)) || (c >= 'a' && c <= 'f');
  });
}

bool IsZero(absl::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return c == '0'; });
}

absl::string_view Wrong(absl::string_view text) {
  if (text.size() < kBytes || text.size() > kTraceparentBytesMax) return "its length";
  if (text[2] != '-' || text[35] != '-' || text[52] != '-') return "its dashes";
  const absl::string_view version = text.substr(0, 2);
  if (!IsHex(version) || version == "ff") return "its version";
  if (version == "00" ? text.size() != kBytes : text.size() > kBytes && text[kBytes] != '-') {
    return "its length";
  }
  if (!IsHex(text.substr(3, 32)) || IsZero(text.substr(3, 32))) return "its trace id";
  if (!IsHex(text.substr(36, 16)) || IsZero(text.substr(36, 16))) return "its parent id";
  if (!IsHex(text.substr(53, 2))) return "its flags";
  const absl::string_view more = text.substr(kBytes);
  if (!std::all_of(more.begin(), more.end(),
                   [](char c) { return absl::ascii_isgraph(static_cast<unsigned char>(c)); })) {
    return "its end";
  }
  return "";
}

}  // namespace

absl::Status CheckTraceparent(absl::string_view traceparent) {
  const absl::string_view wrong = Wrong(traceparent);
  if (wrong.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "traceparent is \"", absl::CHexEscape(traceparent.substr(0, 64)), "\" of ",
      traceparent.size(), " bytes, and ", wrong,
      " is wrong; allowed: 00-, 32 lower-case hexadecimal digits, -, 16 digits, -, 2 digits, and "
      "neither id all zeros"));
}

}  // namespace hotbed
