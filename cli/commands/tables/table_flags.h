// The options of a table as flags of a command. Parses; does no work.
#ifndef HOTBED_CLI_COMMANDS_TABLES_TABLE_FLAGS_H_
#define HOTBED_CLI_COMMANDS_TABLES_TABLE_FLAGS_H_

#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "cli/tables/table_option.h"
#include "common/tables/table_spec.h"

namespace CLI {
class App;
}  // namespace CLI

namespace hotbed {

// The given options in the order of the command line, each with its text, which is valid for it.
using GivenOptions = std::vector<std::pair<const TableOption*, std::string>>;

// Adds one flag per option under its heading. Given flags are appended to `given`, which must
// outlive the parsing. `only_changing`: options that are fixed at creation are parsed, so that they
// can be refused by name, and not shown. A text that is not valid for its option is a usage error.
void AddTableFlags(CLI::App* app, bool only_changing, GivenOptions* given);

// `status` of ValidateTableSpec, prefixed with the flag that it is about: "--dim: table ...".
absl::Status NamingItsFlag(const absl::Status& status);

}  // namespace hotbed

#endif  // HOTBED_CLI_COMMANDS_TABLES_TABLE_FLAGS_H_
