// A JSON string literal, quotes included, from UTF-8 text. Control characters are escaped; bytes
// that are not UTF-8 pass through unchanged.
#ifndef HOTBED_COMMON_JSON_H_
#define HOTBED_COMMON_JSON_H_

#include <string>

#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"

namespace hotbed {

inline std::string JsonString(absl::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (c == '\n') {
      out += "\\n";
    } else if (static_cast<unsigned char>(c) < 0x20) {
      absl::StrAppendFormat(&out, "\\u%04x", static_cast<unsigned>(c));
    } else {
      out += c;
    }
  }
  return out + "\"";
}

}  // namespace hotbed

#endif  // HOTBED_COMMON_JSON_H_
