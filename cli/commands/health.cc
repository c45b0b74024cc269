#include <CLI/App.hpp>
#include <memory>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "cli/base/command.h"
#include "cli/cluster/http_get.h"
#include "common/host_port.h"
#include "common/status_macros.h"
#include "nlohmann/json.hpp"

namespace hotbed {
namespace {

struct HealthFlags {
  std::string admin = "127.0.0.1:7501";
  bool ready = false;
};

absl::Status Ask(const CommandContext& context, const HealthFlags& flags) {
  HOTBED_ASSIGN_OR_RETURN(HostPort place, SplitHostPort(flags.admin, 1));
  // It listens on all addresses; one of them is that of this machine for itself.
  if (IsWildcardHost(place.host)) place.host = place.host == "::" ? "::1" : "127.0.0.1";
  const std::string address = JoinHostPort(place.host, place.port);
  const std::string page = flags.ready ? "/readyz" : "/healthz";
  HOTBED_ASSIGN_OR_RETURN(const HttpReply reply,
                          HttpGet(address, page, context.timeout_duration()));
  const std::string said(absl::StripTrailingAsciiWhitespace(reply.body));
  if (reply.code != 200) {
    return absl::FailedPreconditionError(
        absl::StrCat("http://", address, page, " answers ", reply.code, ": ", said));
  }
  return context.Answer({{"address", address}, {"page", page}, {"said", said}},
                        absl::StrCat(said, "\n"));
}

}  // namespace

void AddHealthCommand(CLI::App* root, CommandContext* context) {
  auto flags = std::make_shared<HealthFlags>();
  CLI::App* app = root->add_subcommand(
      "health", "Ask one process whether it is alive, or ready; for probes of containers");
  app->add_option("--admin", flags->admin,
                  "Its admin port, host:port; a host of 0.0.0.0 stands for this machine")
      ->check([](const std::string& text) { return std::string(CheckHostPort(text, 1).message()); })
      ->envname("HOTBED_ADMIN_LISTEN")
      ->capture_default_str();
  app->add_flag("--ready", flags->ready,
                "Whether it serves (/readyz), not whether it lives (/healthz)");
  context->Runs(app, [context, flags] { return Ask(*context, *flags); });
}

}  // namespace hotbed
