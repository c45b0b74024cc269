// hotbed checkpoint list, show, verify, fold, prune: they look at files, and need a cluster only
// for those on its servers' own disks.
#include <unistd.h>

#include <CLI/App.hpp>
#include <algorithm>
#include <memory>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "checkpoint/checkpoint_folder.h"
#include "checkpoint/fold.h"
#include "checkpoint/manifest.h"
#include "checkpoint/prune.h"
#include "cli/base/command.h"
#include "cli/base/interrupt.h"
#include "cli/base/save_progress.h"
#include "cli/commands/confirm.h"
#include "common/clock.h"
#include "common/status_macros.h"
#include "config/units.h"
#include "nlohmann/json.hpp"
#include "places/place_finder.h"
#include "places/servers/servers_place.h"
#include "places/servers_path.h"
#include "security/identity.h"
#include "terminal/progress.h"
#include "terminal/table_printer.h"

namespace hotbed {
namespace {

struct Found {
  std::string path;
  Place* place = nullptr;
  std::unique_ptr<Place> servers;  // of server:NAME
};
absl::StatusOr<Found> Find(const CommandContext& context, const std::string& written) {
  Found found;
  HOTBED_ASSIGN_OR_RETURN(found.path, PlacePath(written));
  if (NamesServersDisks(found.path)) {
    found.servers = ServersPlace::Of(context.coordinator, IdentityOfEnvironment());
    found.place = found.servers.get();
    return found;
  }
  HOTBED_ASSIGN_OR_RETURN(found.place, PlaceFinder::Real()->Of(found.path));
  return found;
}

std::string UtcText(int64_t unix_ms) {
  return absl::FormatTime("%Y-%m-%d %H:%M:%S", absl::FromUnixMillis(unix_ms), absl::UTCTimeZone());
}

absl::Status List(const CommandContext& context, const std::string& directory) {
  HOTBED_ASSIGN_OR_RETURN(const Found at, Find(context, directory));
  HOTBED_ASSIGN_OR_RETURN(const auto found, ListCheckpoints(at.path, at.place));
  nlohmann::ordered_json json = nlohmann::ordered_json::array();
  TablePrinter table({"name", "begun (UTC)", "bytes", "since", "tables"});
  for (const CheckpointFolder& folder : found) {
    json.push_back({{"name", folder.name},
                    {"whole", folder.whole},
                    {"begun_unix_ms", folder.begun_unix_ms},
                    {"bytes", folder.bytes},
                    {"parent", folder.parent},
                    {"tables", folder.tables},
                    {"trouble", folder.trouble}});
    table.AddRow({folder.name, UtcText(folder.begun_unix_ms), FormatBytes(folder.bytes),
                  folder.parent,
                  folder.whole ? absl::StrJoin(folder.tables, ", ")
                               : absl::StrCat("not whole: ", folder.trouble)});
  }
  return context.Answer(
      json, found.empty() ? absl::StrCat("no checkpoints in ", directory, "\n") : table.ToText());
}

nlohmann::ordered_json ShardJson(const v1::CheckpointShard& shard) {
  return {{"index", shard.index()},
          {"range", {shard.range_first(), shard.range_limit()}},
          {"columns", {shard.column_first(), shard.column_limit()}},
          {"epoch", shard.epoch()},
          {"lsn", shard.lsn()},
          {"above_lsn", shard.above_lsn()},
          {"rows", shard.rows()},
          {"bytes", shard.bytes()},
          {"passes", shard.passes()},
          {"sessions", shard.sessions()},
          {"last_step", shard.last_step()},
          {"committed_step", shard.committed_step()},
          {"staged_pushes", shard.staged_pushes()},
          {"file", shard.file()}};
}

// Where the shards of a synchronous table were saved between the same two steps.
std::string StepText(const v1::CheckpointTable& table) {
  uint64_t least = ~uint64_t{0}, most = 0, last = 0, staged = 0;
  for (const v1::CheckpointShard& shard : table.shards()) {
    least = std::min(least, shard.committed_step());
    most = std::max(most, shard.committed_step());
    last = std::max(last, shard.last_step());
    staged += shard.staged_pushes();
  }
  std::string text = absl::StrCat("pushes up to step ", last);
  if (most == 0) return text;
  absl::StrAppend(&text, ", committed step ", least);
  if (least != most) absl::StrAppend(&text, " to ", most, ": its shards are of different steps");
  if (staged > 0) absl::StrAppend(&text, "; without ", staged, " pushes that were staged");
  return text;
}

absl::Status Show(const CommandContext& context, const std::string& path) {
  HOTBED_ASSIGN_OR_RETURN(const Found at, Find(context, path));
  HOTBED_ASSIGN_OR_RETURN(const std::string folder, FindCheckpoint(at.path, at.place));
  HOTBED_ASSIGN_OR_RETURN(const auto manifest, ReadManifest(folder, at.place));
  nlohmann::ordered_json tables = nlohmann::ordered_json::array();
  std::string text = absl::StrCat(folder, ", of cluster ", manifest.cluster_id(), ", ",
                                  UtcText(manifest.begun_unix_ms()), " to ",
                                  UtcText(manifest.ended_unix_ms()), " UTC\n");
  if (!manifest.parent().empty()) {
    absl::StrAppend(&text, "  the rows that have changed since ", manifest.parent(), "\n");
  }
  if (manifest.at_step() != 0) {
    absl::StrAppend(&text, "  as of step ", manifest.at_step(), " of group ", manifest.group(),
                    "\n");
  }
  for (const v1::CheckpointTable& table : manifest.tables()) {
    nlohmann::ordered_json shards = nlohmann::ordered_json::array();
    for (const v1::CheckpointShard& shard : table.shards()) shards.push_back(ShardJson(shard));
    tables.push_back({{"name", table.spec().name()},
                      {"dim", table.spec().dim()},
                      {"rows", RowsOf(table)},
                      {"bytes", BytesOf(table)},
                      {"shards", shards}});
    absl::StrAppend(&text, "  ", table.spec().name(), ": ", WithCommas(RowsOf(table)), " rows of ",
                    table.spec().dim(), ", ", FormatBytes(BytesOf(table)), ", ",
                    table.shards_size(), " shards, ", StepText(table), "\n");
  }
  return context.Answer({{"checkpoint", folder},
                         {"cluster_id", manifest.cluster_id()},
                         {"parent", manifest.parent()},
                         {"at_step", manifest.at_step()},
                         {"group", manifest.group()},
                         {"begun_unix_ms", manifest.begun_unix_ms()},
                         {"ended_unix_ms", manifest.ended_unix_ms()},
                         {"tables", tables}},
                        text);
}

absl::Status Verify(const CommandContext& context, const std::string& path) {
  HOTBED_ASSIGN_OR_RETURN(const Found at, Find(context, path));
  HOTBED_ASSIGN_OR_RETURN(const std::string folder, FindCheckpoint(at.path, at.place));
  std::unique_ptr<Progress> bar;
  const auto progress = [&](uint64_t done, uint64_t total) {
    if (context.json()) return;
    if (bar == nullptr) {
      bar = std::make_unique<Progress>(context.err, isatty(STDERR_FILENO) != 0, Clock::Real(),
                                       "verifying", total);
    }
    bar->Update(done);
  };
  HOTBED_ASSIGN_OR_RETURN(const Verified verified, VerifyCheckpoint(folder, at.place, progress));
  if (bar != nullptr) bar->Finish();
  return context.Answer(
      {{"checkpoint", folder},
       {"checkpoints", verified.checkpoints},
       {"tables", verified.tables},
       {"shards", verified.shards},
       {"rows", verified.rows},
       {"bytes", verified.bytes}},
      absl::StrCat(folder, " is whole: ", verified.tables, " tables, ", WithCommas(verified.rows),
                   " rows, ", FormatBytes(verified.bytes), "\n"));
}

struct FoldFlags {
  std::string path;
  std::string rate;
};

absl::Status Fold(const CommandContext& context, const FoldFlags& flags) {
  HOTBED_ASSIGN_OR_RETURN(const Found at, Find(context, flags.path));
  HOTBED_ASSIGN_OR_RETURN(const std::string folder, FindCheckpoint(at.path, at.place));
  FoldOptions options;
  if (!flags.rate.empty()) {
    HOTBED_ASSIGN_OR_RETURN(options.bytes_per_s, ParseBytes(flags.rate));
  }
  HOTBED_ASSIGN_OR_RETURN(const Folded folded,
                          FoldWithProgress(context, folder, options, at.place));
  return context.Answer({{"checkpoint", folded.path},
                         {"checkpoints", folded.checkpoints},
                         {"rows", folded.rows},
                         {"bytes", folded.bytes}},
                        folded.checkpoints == 1
                            ? absl::StrCat(folder, " needs no other checkpoint\n")
                            : absl::StrCat(folded.path, " has ", WithCommas(folded.rows), " rows, ",
                                           FormatBytes(folded.bytes), ", of ", folded.checkpoints,
                                           " checkpoints, and needs none of them\n"));
}

struct PruneFlags {
  std::string directory;
  uint32_t orphan_minutes = 60;
  PruneOptions options;
};

absl::Status Prune(const CommandContext& context, const PruneFlags& flags) {
  HOTBED_ASSIGN_OR_RETURN(const Found directory, Find(context, flags.directory));
  PruneOptions options = flags.options;
  options.orphans_before_unix_ms = absl::ToUnixMillis(absl::Now()) - flags.orphan_minutes * 60'000;
  HOTBED_ASSIGN_OR_RETURN(const Pruned pruned,
                          PruneCheckpoints(directory.path, options, directory.place));
  const bool dry_run = options.dry_run;
  return context.Answer(
      {{"deleted", pruned.deleted},
       {"bytes", pruned.bytes},
       {"kept", pruned.kept},
       {"unfinished_files", pruned.unfinished},
       {"dry_run", dry_run}},
      absl::StrCat(dry_run ? "would delete " : "deleted ", pruned.deleted.size(), " (",
                   FormatBytes(pruned.bytes), ")", pruned.deleted.empty() ? "" : ": ",
                   absl::StrJoin(pruned.deleted, ", "), "; ", pruned.kept,
                   " whole checkpoints stay\n"));
}

struct DeleteFlags {
  std::string path;
  ConfirmFlags confirm;
};

absl::Status Delete(const CommandContext& context, const DeleteFlags& flags) {
  HOTBED_ASSIGN_OR_RETURN(const Found at, Find(context, flags.path));
  HOTBED_ASSIGN_OR_RETURN(const CheckpointFolder folder, FindDeletable(at.path, at.place));
  HOTBED_RETURN_IF_ERROR(Confirm(
      context, flags.confirm,
      absl::StrCat("This deletes all files of checkpoint '", folder.name, "'."), folder.name));
  const bool dry_run = flags.confirm.dry_run;
  if (!dry_run) HOTBED_RETURN_IF_ERROR(DeleteCheckpoint(folder.path, at.place));
  return context.Answer({{"checkpoint", folder.path},
                         {"bytes", folder.bytes},
                         {"deleted", !dry_run},
                         {"dry_run", dry_run}},
                        absl::StrCat(dry_run ? "would delete " : "deleted ", folder.path, " (",
                                     FormatBytes(folder.bytes), ")\n"));
}

using Work = absl::Status (*)(const CommandContext&, const std::string&);

void AddOne(CLI::App* checkpoint, CommandContext* context, const char* name, const char* help,
            const char* path_help, Work work) {
  auto path = std::make_shared<std::string>();
  CLI::App* app = checkpoint->add_subcommand(name, help);
  app->add_option("PLACE", *path, path_help)->required();
  context->Runs(app, [context, path, work] { return work(*context, *path); });
}

}  // namespace

void AddCheckpointFileCommands(CLI::App* checkpoint, CommandContext* context) {
  constexpr char kAll[] = "Directory of checkpoints, s3://BUCKET/PREFIX or server:NAME";
  constexpr char kOne[] =
      "A checkpoint's folder, or a directory, s3://BUCKET/PREFIX or server:NAME: the newest whole "
      "one there";
  AddOne(checkpoint, context, "list", "List the checkpoints of a place, and orphans", kAll, List);
  AddOne(checkpoint, context, "show", "Show what a checkpoint holds, shard by shard with -o json",
         kOne, Show);
  AddOne(checkpoint, context, "verify", "Read all of a checkpoint and compare the checksums", kOne,
         Verify);
  auto fold_flags = std::make_shared<FoldFlags>();
  CLI::App* fold = checkpoint->add_subcommand(
      "fold", "Write an incremental checkpoint again, as one that needs no other");
  fold->add_option("PLACE", fold_flags->path, kOne)->required();
  fold->add_option("--rate", fold_flags->rate, "Bytes per second that are written, as 100MiB");
  context->Runs(fold, [context, fold_flags] { return Fold(*context, *fold_flags); });
  auto delete_flags = std::make_shared<DeleteFlags>();
  CLI::App* one = checkpoint->add_subcommand("delete", "Delete one checkpoint with its files");
  one->add_option("CHECKPOINT", delete_flags->path,
                  "The folder of the checkpoint: DIRECTORY/NAME, s3://BUCKET/PREFIX/NAME or "
                  "server:NAME/CHECKPOINT")
      ->required();
  RunsConfirmed(one, context, &delete_flags->confirm,
                [context, delete_flags] { return Delete(*context, *delete_flags); });
  auto flags = std::make_shared<PruneFlags>();
  CLI::App* prune = checkpoint->add_subcommand(
      "prune", "Delete old checkpoints, and what saves left that did not end");
  prune->add_option("PLACE", flags->directory, kAll)->required();
  prune
      ->add_option("--keep", flags->options.keep, "Whole checkpoints that stay, the newest; 0: all")
      ->capture_default_str();
  prune
      ->add_option("--orphan-minutes", flags->orphan_minutes,
                   "A save that began before this and has not ended is taken for broken off")
      ->capture_default_str();
  prune->add_flag("--dry-run", flags->options.dry_run, "Say what would be deleted");
  context->Runs(prune, [context, flags] { return Prune(*context, *flags); });
}

}  // namespace hotbed
