// hotbed checkpoint schedule: saves that the coordinator makes by itself.
#include <CLI/App.hpp>
#include <CLI/Option.hpp>
#include <CLI/Validators.hpp>
#include <memory>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/time/time.h"
#include "cli/base/command.h"
#include "cli/base/coordinator_stub.h"
#include "common/status_macros.h"
#include "config/units.h"
#include "nlohmann/json.hpp"
#include "places/place_finder.h"
#include "terminal/table_printer.h"

namespace hotbed {
namespace {

using ScheduleAction = v1::ScheduleCheckpointsRequest;

struct CheckpointScheduleFlags {
  ScheduleAction::Action action = ScheduleAction::SET;
  std::string place;
  std::string every;
  uint32_t keep = 0;
  std::string tables;
  std::string rate;
  std::string compress;
  bool incremental = false;
};

std::string WhenText(int64_t unix_ms) {
  if (unix_ms == 0) return "never";
  return absl::FormatTime("%Y-%m-%d %H:%M:%S UTC", absl::FromUnixMillis(unix_ms),
                          absl::UTCTimeZone());
}

absl::Status AnswerSchedule(const CommandContext& context,
                            const v1::ScheduleCheckpointsReply& reply) {
  const v1::CheckpointSchedule& schedule = reply.schedule();
  if (!reply.has_schedule()) {
    return context.Answer({{"place", nullptr}}, "no checkpoints are saved by a schedule\n");
  }
  const std::vector<std::string> tables(schedule.tables().begin(), schedule.tables().end());
  const bool saving = schedule.ended_unix_ms() < schedule.begun_unix_ms();
  std::string text = absl::StrCat(
      schedule.place(), ": every ", absl::FormatDuration(absl::Milliseconds(schedule.every_ms())),
      ", ", schedule.keep() == 0 ? "all" : absl::StrCat("the newest ", schedule.keep()),
      " are kept", schedule.incremental() ? ", incremental" : "",
      schedule.compress().empty() ? "" : ", compressed by ", schedule.compress(), ", ",
      tables.empty() ? "all tables" : absl::StrJoin(tables, ", "),
      "\n  last saved: ", WhenText(schedule.saved_unix_ms()),
      schedule.checkpoint().empty() ? "" : ", ", schedule.checkpoint(), "\n");
  if (!schedule.error().empty()) {
    absl::StrAppend(&text, "  failed ", WhenText(schedule.ended_unix_ms()), ": ", schedule.error(),
                    "\n");
  }
  if (!schedule.prune_error().empty()) {
    absl::StrAppend(&text, "  old checkpoints could not be deleted: ", schedule.prune_error(),
                    "\n");
  }
  if (!schedule.fold_error().empty()) {
    absl::StrAppend(&text, "  the series was not folded: ", schedule.fold_error(), "\n");
  }
  absl::StrAppend(&text,
                  saving ? absl::StrCat("  saving since ", WhenText(schedule.begun_unix_ms()))
                         : absl::StrCat("  next: ", WhenText(reply.next_unix_ms())),
                  "\n");
  return context.Answer({{"place", schedule.place()},
                         {"every_ms", schedule.every_ms()},
                         {"keep", schedule.keep()},
                         {"incremental", schedule.incremental()},
                         {"compress", schedule.compress()},
                         {"tables", tables},
                         {"bytes_per_s", schedule.bytes_per_s()},
                         {"checkpoint", schedule.checkpoint()},
                         {"saved_unix_ms", schedule.saved_unix_ms()},
                         {"begun_unix_ms", schedule.begun_unix_ms()},
                         {"ended_unix_ms", schedule.ended_unix_ms()},
                         {"saving", saving},
                         {"error", schedule.error()},
                         {"failures", schedule.failures()},
                         {"prune_error", schedule.prune_error()},
                         {"fold_error", schedule.fold_error()},
                         {"next_unix_ms", reply.next_unix_ms()}},
                        text);
}

absl::Status Ask(const CommandContext& context, const v1::ScheduleCheckpointsRequest& request) {
  CoordinatorStub coordinator(context.coordinator, context.timeout_duration());
  HOTBED_ASSIGN_OR_RETURN(const auto reply, coordinator.ScheduleCheckpoints(request));
  return AnswerSchedule(context, reply);
}

absl::Status SetSchedule(const CommandContext& context, const CheckpointScheduleFlags& flags) {
  if (flags.place.empty() || flags.every.empty()) {
    return absl::InvalidArgumentError(
        "a schedule has a place and --every, as in 'hotbed checkpoint schedule --every 30min "
        "--keep 5 /shared/ctr'; 'hotbed checkpoint schedule show' shows the one that there is");
  }
  v1::ScheduleCheckpointsRequest request;
  request.set_action(ScheduleAction::SET);
  v1::CheckpointSchedule& schedule = *request.mutable_schedule();
  HOTBED_ASSIGN_OR_RETURN(*schedule.mutable_place(), PlacePath(flags.place));
  HOTBED_ASSIGN_OR_RETURN(const int64_t every_ms, ParseMillis(flags.every));
  schedule.set_every_ms(every_ms);
  schedule.set_keep(flags.keep);
  schedule.set_incremental(flags.incremental);
  schedule.set_compress(flags.compress);
  for (const absl::string_view table : absl::StrSplit(flags.tables, ',', absl::SkipEmpty())) {
    schedule.add_tables(std::string(table));
  }
  if (!flags.rate.empty()) {
    HOTBED_ASSIGN_OR_RETURN(const uint64_t rate, ParseBytes(flags.rate));
    schedule.set_bytes_per_s(rate);
  }
  return Ask(context, request);
}

}  // namespace

void AddCheckpointScheduleCommand(CLI::App* checkpoint, CommandContext* context) {
  auto flags = std::make_shared<CheckpointScheduleFlags>();
  CLI::App* app = checkpoint->add_subcommand(
      "schedule", "Have the coordinator save every so often, and delete old checkpoints");
  app->add_option("PLACE", flags->place,
                  "Directory that every server and coordinator reaches under the same path, "
                  "s3://BUCKET/PREFIX, or server:NAME: each server's own disk");
  app->add_option("--every", flags->every, "From the begin of one save to that of the next: 30min")
      ->check([](const std::string& text) {
        return std::string(ParseMillis(text).status().message());
      });
  app->add_option("--keep", flags->keep,
                  "Whole checkpoints that stay, the newest, with what they need; 0: all")
      ->capture_default_str();
  app->add_option("--tables", flags->tables, "Names, separated by commas; all if not given");
  app->add_option("--rate", flags->rate,
                  "Bytes per second that each server writes at most, as 100MiB");
  app->add_option("--compress", flags->compress, "Compress blocks of rows: zstd")
      ->check(CLI::IsMember({"zstd"}));
  app->add_flag("--incremental", flags->incremental,
                "Only the rows that have changed since the save before; all rows in every ninth");
  app->require_subcommand(0, 1);
  // CLI11 runs the callback of a subcommand before that of the command around it.
  app->add_subcommand("show", "Show the schedule, and how its last save ended")->callback([flags] {
    flags->action = ScheduleAction::SHOW;
  });
  app->add_subcommand("stop", "Save no more; a save that runs is broken off")->callback([flags] {
    flags->action = ScheduleAction::STOP;
  });
  context->Runs(app, [context, flags] {
    if (flags->action == ScheduleAction::SET) return SetSchedule(*context, *flags);
    v1::ScheduleCheckpointsRequest request;
    request.set_action(flags->action);
    return Ask(*context, request);
  });
}

}  // namespace hotbed
