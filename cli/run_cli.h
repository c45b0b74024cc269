// The `hotbed` command line as a function, so that tests call it without a process.
#ifndef HOTBED_CLI_RUN_CLI_H_
#define HOTBED_CLI_RUN_CLI_H_

#include <ostream>
#include <string>
#include <vector>

namespace hotbed {

// Runs the command line `args`, without the program's name. Returns the exit code
// (cli/base/command.h). Errors go to `err` as one line of text or, with -o json, as
// {"error": {"code", "message"}}. The error for an unknown command
// or flag names the nearest known one.
int RunCli(const std::vector<std::string>& args, std::ostream* out, std::ostream* err);

}  // namespace hotbed

#endif  // HOTBED_CLI_RUN_CLI_H_
