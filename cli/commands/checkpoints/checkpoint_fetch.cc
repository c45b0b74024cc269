#include <unistd.h>

#include <CLI/App.hpp>
#include <memory>

#include "absl/strings/str_cat.h"
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

struct CheckpointFetchFlags {
  std::string checkpoint;
  std::string directory;
};

absl::Status Fetch(const CommandContext& context, const CheckpointFetchFlags& flags) {
  FetchOptions options;
  options.checkpoint = flags.checkpoint;
  HOTBED_ASSIGN_OR_RETURN(options.directory, PlacePath(flags.directory));
  const InterruptScope interrupt;
  options.stop = [&interrupt] { return interrupt.interrupted(); };
  std::unique_ptr<Progress> bar;
  options.progress = [&](const CheckpointProgress& now) {
    if (context.json()) return;
    if (bar == nullptr) {
      bar = std::make_unique<Progress>(context.err, isatty(STDERR_FILENO) != 0, Clock::Real(),
                                       "fetching", now.bytes);
    }
    bar->Update(now.bytes_done, absl::StrCat(now.shards_done, " of ", now.shards, " files"));
  };
  const int64_t begun_ns = Clock::Real()->NowNs();
  HOTBED_ASSIGN_OR_RETURN(const FetchedCheckpoint fetched,
                          FetchCheckpoint(absl::StrCat("hotbed://", context.coordinator), options));
  const double seconds = static_cast<double>(Clock::Real()->NowNs() - begun_ns) * 1e-9;
  if (bar != nullptr) bar->Finish();
  return context.Answer(
      {{"checkpoint", fetched.path},
       {"files", fetched.files},
       {"bytes", fetched.bytes},
       {"files_fetched", fetched.files_fetched},
       {"bytes_fetched", fetched.bytes_fetched},
       {"seconds", seconds}},
      absl::StrCat(
          "fetched ", fetched.path, " in ", ShortSeconds(seconds), ": ", fetched.files_fetched,
          " files, ", FormatBytes(fetched.bytes_fetched),
          fetched.files == fetched.files_fetched
              ? ""
              : absl::StrCat("; ", fetched.files - fetched.files_fetched, " were there already"),
          "\n"));
}

}  // namespace

void AddCheckpointFetchCommand(CLI::App* checkpoint, CommandContext* context) {
  auto flags = std::make_shared<CheckpointFetchFlags>();
  CLI::App* app = checkpoint->add_subcommand(
      "fetch", "Bring a checkpoint from the servers' own disks into a directory or object store");
  app->add_option("PLACE", flags->checkpoint,
                  "server:NAME/CHECKPOINT, or server:NAME: the newest whole one there")
      ->required();
  app->add_option("DIRECTORY", flags->directory,
                  "Directory or s3://BUCKET/PREFIX that this command reaches; run again, it brings "
                  "what lacks")
      ->required();
  context->Runs(app, [context, flags] { return Fetch(*context, *flags); });
}

}  // namespace hotbed
