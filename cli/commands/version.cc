#include <CLI/App.hpp>

#include "absl/strings/str_cat.h"
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
  return context.Answer(
      {{"version", HOTBED_VERSION},
       {"wire_version", kWireVersion},
       {"feature_level", kFeatureLevel},
       {"compiler", __VERSION__},
       {"build", checks}},
      absl::StrCat("hotbed ", HOTBED_VERSION, "\nwire version ", kWireVersion, ", feature level ",
                   kFeatureLevel, "\nbuilt with ", __VERSION__, ", ", checks, "\n"));
}

}  // namespace

void AddVersionCommand(CLI::App* root, CommandContext* context) {
  context->Runs(root->add_subcommand("version", "Versions of this program and of its wire format"),
                [context] { return PrintVersion(*context); });
}

}  // namespace hotbed
