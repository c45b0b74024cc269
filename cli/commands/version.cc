#include <CLI/App.hpp>

#include "cli/base/command.h"
#include "nlohmann/json.hpp"
#include "proto/wire.h"

namespace hotbed {
namespace {

absl::Status PrintVersion(const CommandContext& context) {
#ifdef NDEBUG
  const char* checks = "release";
#else
  const char* checks = "with debug checks";
#endif
  if (context.json()) {
    const nlohmann::ordered_json json = {{"version", HOTBED_VERSION},
                                         {"wire_version", kWireVersion},
                                         {"feature_level", kFeatureLevel},
                                         {"compiler", __VERSION__},
                                         {"build", checks}};
    *context.out << json.dump(2) << "\n";
  } else {
    *context.out << "hotbed " << HOTBED_VERSION << "\nwire version " << kWireVersion
                 << ", feature level " << kFeatureLevel << "\nbuilt with " << __VERSION__ << ", "
                 << checks << "\n";
  }
  return absl::OkStatus();
}

}  // namespace

void AddVersionCommand(CLI::App* root, CommandContext* context) {
  root->add_subcommand("version", "Versions of this program and of its wire format")
      ->callback([context] { context->run = [context] { return PrintVersion(*context); }; });
}

}  // namespace hotbed
