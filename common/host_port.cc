#include "common/host_port.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace hotbed {

absl::Status CheckHostPort(absl::string_view text, int port_min) {
  constexpr int kPortMax = 65535;
  const size_t colon = text.rfind(':');
  const bool has_port = colon != absl::string_view::npos;
  const absl::string_view digits = has_port ? text.substr(colon + 1) : absl::string_view();
  const bool has_host = has_port && (colon > 0 || port_min == 0);
  int port = -1;
  // SimpleAtoi skips blanks and accepts signs.
  if (has_host && std::all_of(digits.begin(), digits.end(), absl::ascii_isdigit) &&
      absl::SimpleAtoi(digits, &port) && port >= port_min && port <= kPortMax) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat("'", absl::CEscape(text.substr(0, 200)),
                                                 "' is not HOST:PORT with a port of ", port_min,
                                                 " to ", kPortMax));
}

}  // namespace hotbed
