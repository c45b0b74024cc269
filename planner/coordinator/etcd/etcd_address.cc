#include "planner/coordinator/etcd/etcd_address.h"

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/host_port.h"

namespace hotbed {
namespace {

bool IsPrefix(absl::string_view text) {
  for (const char c : text) {
    if (!absl::ascii_isalnum(static_cast<unsigned char>(c)) && !absl::StrContains("/-_.", c)) {
      return false;
    }
  }
  return true;
}

}  // namespace

absl::StatusOr<EtcdAddress> ParseEtcdAddress(absl::string_view text) {
  const auto wrong = [&](absl::string_view what) {
    return absl::InvalidArgumentError(absl::StrCat(
        "\"", text, "\": ", what,
        "; etcd is named as in etcd://HOST:2379,HOST:2379 or etcd://HOST:2379/PREFIX"));
  };
  absl::string_view rest = text;
  if (!absl::ConsumePrefix(&rest, kEtcdScheme)) return wrong("it does not begin with etcd://");
  EtcdAddress address;
  const size_t slash = rest.find('/');
  if (slash != rest.npos) {
    address.prefix = std::string(absl::StripSuffix(rest.substr(slash), "/"));
    if (!IsPrefix(address.prefix)) {
      return wrong("the prefix may hold letters, digits and any of / - _ . only");
    }
    rest = rest.substr(0, slash);
  }
  for (const absl::string_view member : absl::StrSplit(rest, ',')) {
    if (const absl::Status s = CheckHostPort(member, 1); !s.ok()) {
      return wrong(absl::StrCat("\"", member, "\" ", s.message()));
    }
    address.members.emplace_back(member);
  }
  return address;
}

}  // namespace hotbed
