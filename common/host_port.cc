#include "common/host_port.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <algorithm>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/status_macros.h"

namespace hotbed {
namespace {

bool IsIpv6(const std::string& text) {
  in6_addr address;
  return inet_pton(AF_INET6, text.c_str(), &address) == 1;
}

}  // namespace

absl::Status CheckHostPort(absl::string_view text, int port_min) {
  constexpr int kPortMax = 65535;
  const auto quoted = [&] { return absl::StrCat("'", absl::CEscape(text.substr(0, 200)), "'"); };
  const size_t colon = text.rfind(':');
  const bool has_port = colon != absl::string_view::npos;
  const absl::string_view digits = has_port ? text.substr(colon + 1) : absl::string_view();
  const bool has_host = has_port && (colon > 0 || port_min == 0);
  if (has_port && (IsIpv6(std::string(text)) || IsIpv6(std::string(text.substr(0, colon))))) {
    return absl::InvalidArgumentError(absl::StrCat(
        quoted(), " is not HOST:PORT: an IPv6 address needs brackets, as in [::1]:7400"));
  }
  int port = -1;
  // SimpleAtoi skips blanks and accepts signs.
  if (has_host && std::all_of(digits.begin(), digits.end(), absl::ascii_isdigit) &&
      absl::SimpleAtoi(digits, &port) && port >= port_min && port <= kPortMax) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat(quoted(), " is not HOST:PORT with a port of ", port_min, " to ", kPortMax));
}

absl::Status CheckHostPorts(absl::string_view text, int port_min) {
  constexpr size_t kMost = 16;
  const std::vector<absl::string_view> parts = absl::StrSplit(text, ',');
  const auto wrong = [&](auto... why) {
    return absl::InvalidArgumentError(
        absl::StrCat("'", absl::CEscape(text.substr(0, 200)), "': ", why...));
  };
  if (parts.size() > kMost) return wrong(parts.size(), " addresses; allowed: 1..", kMost);
  for (size_t i = 0; i < parts.size(); ++i) {
    HOTBED_RETURN_IF_ERROR(CheckHostPort(parts[i], port_min));
    if (std::find(parts.begin(), parts.begin() + i, parts[i]) != parts.begin() + i) {
      return wrong(parts[i], " is named twice");
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<HostPort> SplitHostPort(absl::string_view text, int port_min) {
  HOTBED_RETURN_IF_ERROR(CheckHostPort(text, port_min));
  const size_t colon = text.rfind(':');
  absl::string_view host = text.substr(0, colon);
  if (host.size() > 2 && host.front() == '[' && host.back() == ']') {
    host = host.substr(1, host.size() - 2);
  }
  return HostPort{std::string(host), std::string(text.substr(colon + 1))};
}

std::string JoinHostPort(absl::string_view host, absl::string_view port) {
  return absl::StrContains(host, ':') ? absl::StrCat("[", host, "]:", port)
                                      : absl::StrCat(host, ":", port);
}

bool IsWildcardHost(const std::string& host) {
  in_addr four = {};
  in6_addr six = {};
  if (inet_pton(AF_INET, host.c_str(), &four) == 1) return four.s_addr == htonl(INADDR_ANY);
  if (inet_pton(AF_INET6, host.c_str(), &six) == 1) return IN6_IS_ADDR_UNSPECIFIED(&six);
  return host.empty();
}

bool IsLoopbackHost(const std::string& host) {
  in_addr four = {};
  in6_addr six = {};
  if (inet_pton(AF_INET, host.c_str(), &four) == 1) return ntohl(four.s_addr) >> 24 == 127;
  if (inet_pton(AF_INET6, host.c_str(), &six) == 1) return IN6_IS_ADDR_LOOPBACK(&six);
  return host == "localhost";
}

}  // namespace hotbed
