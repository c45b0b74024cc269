#include <unistd.h>

#include <CLI/App.hpp>
#include <CLI/Error.hpp>
#include <iostream>
#include <memory>

#include "absl/strings/str_cat.h"
#include "cli/base/command.h"
#include "cli/base/coordinator_stub.h"
#include "cli/tables/find_table.h"
#include "common/status_macros.h"
#include "nlohmann/json.hpp"

namespace hotbed {
namespace {

struct TableDropFlags {
  std::string name;
  bool yes = false;
  bool dry_run = false;
};

absl::Status Confirm(const CommandContext& context, const std::string& name) {
  *context.err << "This deletes every row of table '" << name
               << "'. Type its name to continue: " << std::flush;
  std::string typed;
  std::getline(std::cin, typed);
  if (typed == name) return absl::OkStatus();
  return absl::CancelledError(
      absl::StrCat("'", typed, "' is not '", name, "': nothing was dropped"));
}

absl::Status Drop(const CommandContext& context, const TableDropFlags& flags) {
  CoordinatorStub coordinator(context.coordinator, context.timeout_duration());
  HOTBED_ASSIGN_OR_RETURN(const v1::ClusterMap map, coordinator.GetClusterMap());
  HOTBED_RETURN_IF_ERROR(FindTable(map, flags.name).status());
  if (!flags.yes && !flags.dry_run) HOTBED_RETURN_IF_ERROR(Confirm(context, flags.name));
  v1::DropTableRequest request;
  request.set_name(flags.name);
  request.set_dry_run(flags.dry_run);
  HOTBED_ASSIGN_OR_RETURN(const v1::DropTableReply reply, coordinator.DropTable(request));
  return context.Answer({{"name", flags.name},
                         {"id", reply.id()},
                         {"shards", reply.shards()},
                         {"dropped", !flags.dry_run},
                         {"dry_run", flags.dry_run}},
                        absl::StrCat(flags.dry_run ? "would drop table '" : "dropped table '",
                                     flags.name, "' with its ", reply.shards(), " shards\n"));
}

}  // namespace

void AddTableDropCommand(CLI::App* table, CommandContext* context) {
  auto flags = std::make_shared<TableDropFlags>();
  CLI::App* app = table->add_subcommand("drop", "Delete a table with all its rows");
  app->add_option("NAME", flags->name, "Name of the table")->required();
  app->add_flag("--yes", flags->yes, "Do not ask for the name again");
  app->add_flag("--dry-run", flags->dry_run, "Print what would be done; do nothing");
  app->callback([context, flags] {
    if (!flags->yes && !flags->dry_run && isatty(STDIN_FILENO) == 0) {
      throw CLI::RequiredError("--yes (there is no terminal to ask on)");
    }
    context->run = [context, flags] { return Drop(*context, *flags); };
  });
}

}  // namespace hotbed
