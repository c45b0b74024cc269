#include <CLI/App.hpp>
#include <CLI/Option.hpp>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "cli/base/command.h"
#include "cli/base/save_progress.h"
#include "common/clock.h"
#include "common/status_macros.h"
#include "config/units.h"
#include "hotbed/checkpoint.h"
#include "nlohmann/json.hpp"
#include "places/place_finder.h"
#include "terminal/table_printer.h"

namespace hotbed {
namespace {

struct CheckpointSaveFlags {
  std::string directory;
  std::string name;
  std::string tables;
  bool incremental = false;
  SaveFlags save;
};

absl::Status Save(const CommandContext& context, const CheckpointSaveFlags& flags) {
  SaveOptions options;
  HOTBED_ASSIGN_OR_RETURN(options.directory, PlacePath(flags.directory));
  options.name = flags.name;
  options.tables = absl::StrSplit(flags.tables, ',', absl::SkipEmpty());
  options.incremental = flags.incremental;
  HOTBED_RETURN_IF_ERROR(ParseSaveFlags(flags.save, &options));
  const int64_t begun_ns = Clock::Real()->NowNs();
  HOTBED_ASSIGN_OR_RETURN(const SavedCheckpoint saved,
                          SaveWithProgress(context, std::move(options)));
  const double seconds = static_cast<double>(Clock::Real()->NowNs() - begun_ns) * 1e-9;
  nlohmann::ordered_json tables = nlohmann::ordered_json::array();
  std::string text;
  uint64_t bytes = 0;
  for (const CheckpointTableSize& table : saved.tables) {
    tables.push_back({{"name", table.name},
                      {"shards", table.shards},
                      {"rows", table.rows},
                      {"bytes", table.bytes}});
    absl::StrAppend(&text, "  ", table.name, ": ", WithCommas(table.rows), " rows, ",
                    FormatBytes(table.bytes), ", ", table.shards, " shards\n");
    bytes += table.bytes;
  }
  return context.Answer(
      {{"checkpoint", saved.path},
       {"parent", saved.parent},
       {"at_step", saved.at_step},
       {"tables", tables},
       {"bytes", bytes},
       {"seconds", seconds}},
      absl::StrCat("saved ", saved.path, " in ", ShortSeconds(seconds),
                   saved.at_step == 0 ? "" : absl::StrCat(", as of step ", saved.at_step),
                   saved.parent.empty() ? "" : "; what has changed since ", saved.parent, "\n",
                   text));
}

}  // namespace

void AddCheckpointSaveCommand(CLI::App* checkpoint, CommandContext* context) {
  auto flags = std::make_shared<CheckpointSaveFlags>();
  CLI::App* app = checkpoint->add_subcommand(
      "save", "Save tables while training goes on; each shard as of one LSN, with its sessions");
  app->add_option("PLACE", flags->directory,
                  "Directory of checkpoints, which every server reaches under the same path, "
                  "s3://BUCKET/PREFIX, or server:NAME: each server's own disk")
      ->required();
  app->add_option("--tables", flags->tables, "Names, separated by commas; all if not given");
  app->add_option("--name", flags->name, "Name of the checkpoint; by the time if not given");
  AddSaveFlags(app, &flags->save);
  app->add_flag("--incremental", flags->incremental,
                "Only the rows that have changed since the newest checkpoint in PLACE; all rows if "
                "there is none, and in every ninth one");
  context->Runs(app, [context, flags] { return Save(*context, *flags); });
}

}  // namespace hotbed
