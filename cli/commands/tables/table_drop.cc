#include <CLI/App.hpp>
#include <memory>

#include "absl/strings/str_cat.h"
#include "cli/base/command.h"
#include "cli/base/coordinator_stub.h"
#include "cli/commands/confirm.h"
#include "cli/tables/find_table.h"
#include "common/status_macros.h"
#include "nlohmann/json.hpp"

namespace hotbed {
namespace {

struct TableDropFlags {
  std::string name;
  ConfirmFlags confirm;
};

absl::Status Drop(const CommandContext& context, const TableDropFlags& flags) {
  CoordinatorStub coordinator(context.coordinator, context.timeout_duration());
  HOTBED_ASSIGN_OR_RETURN(const v1::ClusterMap map, coordinator.GetClusterMap());
  const size_t parts = FindParts(map, flags.name).size();
  if (parts == 0) HOTBED_RETURN_IF_ERROR(FindTable(map, flags.name).status());
  HOTBED_RETURN_IF_ERROR(
      Confirm(context, flags.confirm,
              absl::StrCat("This deletes every row of table '", flags.name, "'",
                           parts == 0 ? "." : absl::StrCat(", which is ", parts, " tables.")),
              flags.name));
  v1::DropTableRequest request;
  request.set_name(flags.name);
  request.set_dry_run(flags.confirm.dry_run);
  HOTBED_ASSIGN_OR_RETURN(const v1::DropTableReply reply, coordinator.DropTable(request));
  return context.Answer(
      {{"name", flags.name},
       {"id", reply.id()},
       {"shards", reply.shards()},
       {"parts", reply.parts_size()},
       {"dropped", !flags.confirm.dry_run},
       {"dry_run", flags.confirm.dry_run}},
      absl::StrCat(flags.confirm.dry_run ? "would drop table '" : "dropped table '", flags.name,
                   "' with its ", reply.shards(), " shards\n"));
}

}  // namespace

void AddTableDropCommand(CLI::App* table, CommandContext* context) {
  auto flags = std::make_shared<TableDropFlags>();
  CLI::App* app = table->add_subcommand("drop", "Delete a table with all its rows");
  app->add_option("NAME", flags->name, "Name of the table")->required();
  RunsConfirmed(app, context, &flags->confirm, [context, flags] { return Drop(*context, *flags); });
}

}  // namespace hotbed
