#include <unistd.h>

#include <CLI/App.hpp>
#include <CLI/Option.hpp>
#include <CLI/Validators.hpp>
#include <algorithm>
#include <memory>

#include "absl/strings/str_cat.h"
#include "cli/base/command.h"
#include "cli/tables/table_option.h"
#include "common/clock.h"
#include "common/status_macros.h"
#include "config/units.h"
#include "hotbed/checkpoint.h"
#include "nlohmann/json.hpp"
#include "places/place_finder.h"
#include "terminal/progress.h"
#include "terminal/table_printer.h"

namespace hotbed {
namespace {

struct CheckpointRestoreFlags {
  std::string checkpoint;
  std::vector<std::string> tables;
  std::vector<std::string> names;
  std::string durability;
  std::string weight_type;
  std::string sessions = "auto";
  uint32_t shards = 0;
  bool dry_run = false;
};

const std::vector<std::string> kSessionsWords = {"auto", "continue", "anew"};

template <typename Enum>
Enum Chosen(const std::vector<std::string>& words, const std::string& word) {
  return static_cast<Enum>(std::find(words.begin(), words.end(), word) - words.begin());
}

absl::StatusOr<RestoreOptions> OptionsOf(const CheckpointRestoreFlags& flags) {
  RestoreOptions options;
  HOTBED_ASSIGN_OR_RETURN(options.checkpoint, PlacePath(flags.checkpoint));
  if (flags.names.size() > flags.tables.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat(flags.names.size(), " names are given with --as, for ", flags.tables.size(),
                     " tables; name each table with --table before its --as"));
  }
  for (size_t i = 0; i < flags.tables.size(); ++i) {
    options.tables.push_back({flags.tables[i], i < flags.names.size() ? flags.names[i] : ""});
  }
  if (!flags.durability.empty()) {
    TableSpec asked;
    HOTBED_RETURN_IF_ERROR(
        SetTableOption(*FindTableOption("durability"), flags.durability, &asked));
    options.durability = asked.durability;
    options.replicas = asked.replicas;
  }
  if (!flags.weight_type.empty()) {
    options.weight_type = Chosen<WeightType>(kWeightTypeWords, flags.weight_type);
  }
  options.shards = flags.shards;
  options.dry_run = flags.dry_run;
  options.sessions = Chosen<RestoredSessions>(kSessionsWords, flags.sessions);
  return options;
}

absl::Status Restore(const CommandContext& context, const CheckpointRestoreFlags& flags) {
  HOTBED_ASSIGN_OR_RETURN(RestoreOptions options, OptionsOf(flags));
  std::unique_ptr<Progress> bar;
  options.progress = [&](const CheckpointProgress& now) {
    if (context.json()) return;
    if (bar == nullptr) {
      bar = std::make_unique<Progress>(context.err, isatty(STDERR_FILENO) != 0, Clock::Real(),
                                       "restoring", now.bytes);
    }
    bar->Update(now.bytes_done, absl::StrCat(now.shards_done, " of ", now.shards, " shards serve"));
  };
  const int64_t begun_ns = Clock::Real()->NowNs();
  HOTBED_ASSIGN_OR_RETURN(
      const RestoredCheckpoint restored,
      RestoreCheckpoint(absl::StrCat("hotbed://", context.coordinator), options));
  const double seconds = static_cast<double>(Clock::Real()->NowNs() - begun_ns) * 1e-9;
  if (bar != nullptr) bar->Finish();
  nlohmann::ordered_json tables = nlohmann::ordered_json::array();
  std::string text;
  for (const CheckpointTableSize& table : restored.tables) {
    tables.push_back({{"name", table.name},
                      {"shards", table.shards},
                      {"rows", table.rows},
                      {"bytes", table.bytes}});
    absl::StrAppend(&text, "  ", table.name, ": ", WithCommas(table.rows), " rows, ",
                    FormatBytes(table.bytes), ", ", table.shards, " shards\n");
  }
  return context.Answer(
      {{"checkpoint", restored.path},
       {"sessions", restored.sessions_continue ? "continue" : "anew"},
       {"tables", tables},
       {"first_shard_seconds", restored.first_shard_seconds},
       {"seconds", seconds},
       {"dry_run", flags.dry_run}},
      absl::StrCat(flags.dry_run ? "would restore " : "restored ", restored.path,
                   flags.dry_run ? "" : " in ", flags.dry_run ? "" : ShortSeconds(seconds),
                   "; sessions ", restored.sessions_continue ? "continue" : "begin anew", "\n",
                   text));
}

}  // namespace

void AddCheckpointRestoreCommand(CLI::App* checkpoint, CommandContext* context) {
  auto flags = std::make_shared<CheckpointRestoreFlags>();
  CLI::App* app = checkpoint->add_subcommand(
      "restore", "Create tables that begin with saved rows, on any number of servers");
  app->add_option(
         "PLACE", flags->checkpoint,
         "A checkpoint's folder, or a directory, s3://BUCKET/PREFIX or server:NAME of checkpoints: "
         "the newest whole one")
      ->required();
  app->add_option("--table", flags->tables, "Restore this table; may be repeated. All if not given")
      ->allow_extra_args(false);
  app->add_option("--as", flags->names, "New name of the table; one per --table, in their order")
      ->allow_extra_args(false);
  app->add_option("--durability", flags->durability,
                  "Another durability than saved: checkpoint, log, or replicated=N");
  app->add_option("--weight-type", flags->weight_type, "Another weight type than saved")
      ->check(CLI::IsMember(kWeightTypeWords));
  app->add_option("--shards", flags->shards,
                  "At least so many shards per table; those that were saved if not given");
  app->add_option("--sessions", flags->sessions,
                  "Whether pushes that the checkpoint contains are known as applied: auto is "
                  "continue in the cluster that saved it, anew elsewhere")
      ->check(CLI::IsMember(kSessionsWords))
      ->capture_default_str();
  app->add_flag("--dry-run", flags->dry_run, "Check and place the tables, and create nothing");
  context->Runs(app, [context, flags] { return Restore(*context, *flags); });
}

}  // namespace hotbed
