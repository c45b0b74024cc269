// Commands that destroy something ask for its name.
#ifndef HOTBED_CLI_COMMANDS_CONFIRM_H_
#define HOTBED_CLI_COMMANDS_CONFIRM_H_

#include <functional>
#include <string>

#include "cli/base/command.h"

namespace hotbed {

struct ConfirmFlags {
  bool yes = false;
  bool dry_run = false;
};

// Adds --yes and --dry-run and names the work of `command`. Without either flag and without a
// terminal to ask on, the command line is refused.
void RunsConfirmed(CLI::App* command, CommandContext* context, ConfirmFlags* flags,
                   std::function<absl::Status()> work);

// Asks for `name` on the terminal, after the sentence `loss` on what will be lost; not with --yes
// or --dry-run. Cancelled: another name was typed.
absl::Status Confirm(const CommandContext& context, const ConfirmFlags& flags,
                     const std::string& loss, const std::string& name);

}  // namespace hotbed

#endif  // HOTBED_CLI_COMMANDS_CONFIRM_H_
