#include <unistd.h>

#include <CLI/App.hpp>
#include <CLI/Option.hpp>
#include <CLI/Validators.hpp>
#include <memory>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "cli/base/command.h"
#include "cli/base/interrupt.h"
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

struct CheckpointSaveFlags {
  std::string directory;
  std::string name;
  std::string tables;
  std::string rate;
  std::string at_step;
  std::string group;
  std::string compress;
  bool incremental = false;
};

absl::Status Save(const CommandContext& context, const CheckpointSaveFlags& flags) {
  SaveOptions options;
  HOTBED_ASSIGN_OR_RETURN(options.directory, PlacePath(flags.directory));
  options.name = flags.name;
  options.tables = absl::StrSplit(flags.tables, ',', absl::SkipEmpty());
  options.incremental = flags.incremental;
  options.group = flags.group;
  options.compress = flags.compress;
  if (!flags.at_step.empty()) {
    uint64_t step = 0;
    if (flags.at_step != "next" && (!absl::SimpleAtoi(flags.at_step, &step) || step == 0)) {
      return absl::InvalidArgumentError(
          absl::StrCat("--at-step is \"", flags.at_step, "\"; allowed: a step above 0, or next"));
    }
    options.at_step = step;
  } else if (!flags.group.empty()) {
    return absl::InvalidArgumentError("--group goes with --at-step");
  }
  if (!flags.rate.empty()) {
    HOTBED_ASSIGN_OR_RETURN(options.bytes_per_s, ParseBytes(flags.rate));
  }
  const InterruptScope interrupt;
  options.stop = [&interrupt] { return interrupt.interrupted(); };
  std::unique_ptr<Progress> bar;
  options.progress = [&](const CheckpointProgress& now) {
    if (context.json()) return;
    constexpr uint64_t kParts = 10'000;  // the bytes in all are an estimate that changes
    if (bar == nullptr) {
      bar = std::make_unique<Progress>(context.err, isatty(STDERR_FILENO) != 0, Clock::Real(),
                                       "saving", kParts);
    }
    const double part = static_cast<double>(now.bytes_done) / std::max<uint64_t>(now.bytes, 1);
    bar->Update(static_cast<uint64_t>(part * kParts),
                !now.waits_for.empty() ? absl::StrCat("waiting for ", now.waits_for)
                                       : absl::StrCat(now.shards_done, " of ", now.shards,
                                                      " shards, ", FormatBytes(now.bytes_done)));
  };
  const int64_t begun_ns = Clock::Real()->NowNs();
  HOTBED_ASSIGN_OR_RETURN(const SavedCheckpoint saved,
                          SaveCheckpoint(absl::StrCat("hotbed://", context.coordinator), options));
  const double seconds = static_cast<double>(Clock::Real()->NowNs() - begun_ns) * 1e-9;
  if (bar != nullptr) bar->Finish();
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
  app->add_option("--rate", flags->rate,
                  "Bytes per second that each server writes at most, as 100MiB");
  app->add_option("--at-step", flags->at_step,
                  "All shards between this step of a group of trainers and the next one, or at the "
                  "next step for which that is possible: next");
  app->add_option("--group", flags->group,
                  "Group of trainers whose step it is; the only one at work if not given");
  app->add_option("--compress", flags->compress, "Compress blocks of rows: zstd")
      ->check(CLI::IsMember({"zstd"}));
  app->add_flag("--incremental", flags->incremental,
                "Only the rows that have changed since the newest checkpoint in PLACE; all rows if "
                "there is none, and in every ninth one");
  context->Runs(app, [context, flags] { return Save(*context, *flags); });
}

}  // namespace hotbed
