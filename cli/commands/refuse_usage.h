// The end of a parse for what CLI11 does not check itself.
#ifndef HOTBED_CLI_COMMANDS_REFUSE_USAGE_H_
#define HOTBED_CLI_COMMANDS_REFUSE_USAGE_H_

#include <CLI/Error.hpp>
#include <string>

#include "absl/status/status.h"
#include "cli/base/command.h"

namespace hotbed {

// Within a callback of CLI11. If `flags` is an error, the program ends with it and kExitUsage.
inline void RefuseUsage(const absl::Status& flags) {
  if (!flags.ok()) throw CLI::ParseError(std::string(flags.message()), kExitUsage);
}

}  // namespace hotbed

#endif  // HOTBED_CLI_COMMANDS_REFUSE_USAGE_H_
