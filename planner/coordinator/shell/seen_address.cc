#include "planner/coordinator/shell/seen_address.h"

#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"
#include "common/host_port.h"

namespace hotbed {

std::string HostOfPeer(const std::string& grpc_peer) {
  absl::string_view rest = grpc_peer;
  if (!absl::ConsumePrefix(&rest, "ipv4:") && !absl::ConsumePrefix(&rest, "ipv6:")) return "";
  const std::string plain = absl::StrReplaceAll(rest, {{"%5B", "["}, {"%5D", "]"}, {"%25", "%"}});
  const absl::StatusOr<HostPort> place = SplitHostPort(plain, 0);
  if (!place.ok()) return "";
  absl::string_view host = place->host;
  if (absl::StrContains(host, '.')) absl::ConsumePrefix(&host, "::ffff:");
  return std::string(host);
}

absl::Status FillSeenHosts(const std::string& grpc_peer, v1::RegisterServerRequest* request) {
  // An address that is no HOST:PORT stays as it is; registration refuses it.
  absl::StatusOr<HostPort> data = SplitHostPort(request->address(), 0);
  if (!data.ok()) return absl::OkStatus();
  if (IsWildcardHost(data->host)) {
    const std::string seen = HostOfPeer(grpc_peer);
    // A link-local address (with a %) means something on its own network only.
    if (seen.empty() || IsLoopbackHost(seen) || absl::StrContains(seen, '%')) {
      return absl::InvalidArgumentError(absl::StrCat(
          "server \"", request->name(), "\" listens on ", request->address(),
          ", to which nobody can connect, and registers from ", seen.empty() ? grpc_peer : seen,
          ", at which other machines do not reach it; give it --advertise=HOST:", data->port,
          " as others reach it, or let it listen on one address"));
    }
    data->host = seen;
    request->set_address(JoinHostPort(data->host, data->port));
  }
  const absl::StatusOr<HostPort> admin = SplitHostPort(request->admin_address(), 0);
  if (admin.ok() && IsWildcardHost(admin->host)) {
    request->set_admin_address(JoinHostPort(data->host, admin->port));
  }
  return absl::OkStatus();
}

}  // namespace hotbed
