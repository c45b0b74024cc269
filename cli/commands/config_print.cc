#include <unistd.h>

#include <CLI/App.hpp>
#include <cerrno>
#include <cstring>
#include <memory>

#include "absl/strings/str_cat.h"
#include "cli/base/command.h"
#include "cli/cluster/child_process.h"

namespace hotbed {
namespace {

struct ConfigPrintFlags {
  std::string daemon;
  std::string config;
};

// The daemon itself knows its settings. Returns only if it cannot be run.
absl::Status PrintConfig(const ConfigPrintFlags& flags, const CommandContext& context) {
  const std::string installed = absl::StrCat("/etc/hotbed/", flags.daemon, ".yaml");
  const bool given = !flags.config.empty();
  const std::string file = given ? flags.config : installed;
  const std::string program = absl::StrCat(OwnDirectory(), "/hotbed-", flags.daemon);
  const std::string config = absl::StrCat("--config=", file);
  context.out->flush();
  const bool has_file = given || access(file.c_str(), R_OK) == 0;
  execl(program.c_str(), program.c_str(), "--print-config", has_file ? config.c_str() : nullptr,
        static_cast<char*>(nullptr));
  return absl::NotFoundError(absl::StrCat("cannot run ", program, ": ", std::strerror(errno),
                                          "; it belongs beside this program"));
}

}  // namespace

void AddConfigPrintCommand(CLI::App* config, CommandContext* context) {
  auto flags = std::make_shared<ConfigPrintFlags>();
  CLI::App* app = config->add_subcommand(
      "print",
      "Every setting of a daemon as YAML, with the value that is in force here and where it comes "
      "from: environment, file or default");
  app->add_option("DAEMON", flags->daemon, "server or coordinator")
      ->required()
      ->check(CLI::IsMember({"server", "coordinator"}));
  app->add_option("--config", flags->config,
                  "Its configuration file; /etc/hotbed/DAEMON.yaml if that is there");
  context->Runs(app, [context, flags] { return PrintConfig(*flags, *context); });
}

}  // namespace hotbed
