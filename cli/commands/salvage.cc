#include "server/salvage/salvage.h"

#include <CLI/App.hpp>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "cli/base/command.h"
#include "common/status_macros.h"
#include "nlohmann/json.hpp"
#include "terminal/table_printer.h"

namespace hotbed {
namespace {

struct SalvageFlags {
  std::string dir;
  std::string out;
};

nlohmann::ordered_json JsonOf(const SalvageReport& report) {
  nlohmann::ordered_json json = {{"server", report.server}, {"cluster", report.cluster_id}};
  json["files"] = nlohmann::ordered_json::array();
  for (const SalvagedFile& file : report.files) {
    json["files"].push_back({{"file", file.name}, {"trouble", file.trouble}});
  }
  json["shards"] = nlohmann::ordered_json::array();
  for (const SalvagedShard& shard : report.shards) {
    json["shards"].push_back({{"shard", absl::StrCat(shard.table, "/", shard.shard.index)},
                              {"rows", shard.rows},
                              {"rows_lsn", shard.rows_lsn},
                              {"records", shard.records},
                              {"first_lsn", shard.first_lsn},
                              {"last_lsn", shard.last_lsn},
                              {"trouble", shard.trouble},
                              {"out", shard.file}});
  }
  return json;
}

absl::Status PrintReport(const CommandContext& context, const SalvageFlags& flags) {
  HOTBED_ASSIGN_OR_RETURN(const SalvageReport report, Salvage(flags.dir, flags.out));
  TablePrinter files({"file", "state"});
  for (const SalvagedFile& file : report.files) {
    files.AddRow({file.name, file.trouble.empty() ? "whole" : file.trouble});
  }
  TablePrinter shards({"shard", "rows", "up to LSN", "log records", "LSNs", "state", "written to"});
  for (const SalvagedShard& shard : report.shards) {
    shards.AddRow({absl::StrCat(shard.table, "/", shard.shard.index), absl::StrCat(shard.rows),
                   absl::StrCat(shard.rows_lsn), absl::StrCat(shard.records),
                   absl::StrCat(shard.first_lsn, " to ", shard.last_lsn),
                   shard.trouble.empty() ? "readable" : shard.trouble, shard.file});
  }
  return context.Answer(JsonOf(report),
                        absl::StrCat("server ", report.server, " of cluster ", report.cluster_id,
                                     "\n\n", files.ToText(), "\n", shards.ToText()));
}

}  // namespace

void AddSalvageCommand(CLI::App* root, CommandContext* context) {
  const auto flags = std::make_shared<SalvageFlags>();
  CLI::App* const command = root->add_subcommand(
      "salvage",
      "Show what can be read of the data directory of a server that does not start, and change "
      "nothing there. Rows are as of their last write back; records of the log above their LSN are "
      "counted and not applied");
  command->add_option("dir", flags->dir, "The server's --data-dir")->required();
  command->add_option("--out", flags->out,
                      "A new folder for the rows: one file per shard, one JSON object per line");
  context->Runs(command, [context, flags] { return PrintReport(*context, *flags); });
}

}  // namespace hotbed
