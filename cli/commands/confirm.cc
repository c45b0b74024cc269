#include "cli/commands/confirm.h"

#include <unistd.h>

#include <CLI/App.hpp>
#include <CLI/Error.hpp>
#include <iostream>
#include <utility>

#include "absl/strings/str_cat.h"

namespace hotbed {

void RunsConfirmed(CLI::App* command, CommandContext* context, ConfirmFlags* flags,
                   std::function<absl::Status()> work) {
  command->add_flag("--yes", flags->yes, "Do not ask for the name again");
  command->add_flag("--dry-run", flags->dry_run, "Print what would be done; do nothing");
  command->callback([context, flags, work = std::move(work)] {
    if (!flags->yes && !flags->dry_run && isatty(STDIN_FILENO) == 0) {
      throw CLI::RequiredError("--yes (there is no terminal to ask on)");
    }
    context->run = work;
  });
}

absl::Status Confirm(const CommandContext& context, const ConfirmFlags& flags,
                     const std::string& loss, const std::string& name) {
  if (flags.yes || flags.dry_run) return absl::OkStatus();
  *context.err << loss << " Type the name to continue: " << std::flush;
  std::string typed;
  std::getline(std::cin, typed);
  if (typed == name) return absl::OkStatus();
  return absl::CancelledError(
      absl::StrCat("'", typed, "' is not '", name, "': nothing was changed"));
}

}  // namespace hotbed
