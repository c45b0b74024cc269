#include <CLI/App.hpp>
#include <CLI/Option.hpp>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "checkpoint/fold.h"
#include "checkpoint/manifest.h"
#include "cli/base/command.h"
#include "cli/base/coordinator_stub.h"
#include "cli/base/save_progress.h"
#include "cli/commands/serve_versions.h"
#include "common/status_macros.h"
#include "config/units.h"
#include "hotbed/checkpoint.h"
#include "leader/serving_calls.h"
#include "nlohmann/json.hpp"
#include "places/place_finder.h"
#include "places/servers_path.h"
#include "security/identity.h"

namespace hotbed {
namespace {

using Json = nlohmann::ordered_json;

struct PublishFlags {
  std::vector<std::string> words;  // as typed: tables, place
  std::vector<std::string> tables;
  std::string place;
  std::string name;
  std::string checkpoint;  // of `place`; empty: one is saved
  std::string model;
  bool take_over = false;
  bool share = false;
  bool no_wait = false;
  bool dry_run = false;
  SaveFlags save;
};

absl::Status Answer(const CommandContext& context, const PublishFlags& flags,
                    const v1::PublishVersionReply& reply, uint64_t bytes, bool current) {
  const v1::ServedVersion& version = reply.version();
  const bool pinned = reply.choice().target() != version.number();
  const char* state = flags.dry_run ? " would be published"
                      : current     ? " is current"
                      : pinned      ? " is published; another one is pinned, and stays current"
                                    : " is published, and current as soon as all servers have it";
  const std::string of = flags.dry_run ? "" : absl::StrCat(", of ", version.folder());
  return context.Answer({{"version", version.name()},
                         {"model", version.model()},
                         {"number", version.number()},
                         {"tables", flags.tables},
                         {"checkpoint", version.folder()},
                         {"at_step", version.at_step()},
                         {"bytes", bytes},
                         {"current", current},
                         {"dry_run", flags.dry_run}},
                        absl::StrCat("version ", version.name(), " of ",
                                     absl::StrJoin(flags.tables, ", "), of, state, "\n"));
}

// The checkpoint has the tables, as this cluster has them.
absl::Status CheckCheckpoint(const CommandContext& context, const PublishFlags& flags,
                             const std::string& folder, const v1::CheckpointManifest& manifest) {
  CoordinatorStub coordinator(context.coordinator, context.timeout_duration());
  HOTBED_ASSIGN_OR_RETURN(const v1::ClusterMap map, coordinator.GetClusterMap());
  if (manifest.cluster_id() != map.cluster_id()) {
    return absl::FailedPreconditionError(
        absl::StrCat(folder, " is of cluster ", manifest.cluster_id(), ", and this one is ",
                     map.cluster_id(), ": restore its tables here, and publish those"));
  }
  for (const std::string& name : flags.tables) {
    HOTBED_ASSIGN_OR_RETURN(const v1::CheckpointTable* const table, FindTable(manifest, name));
    if (table->has_arrays()) {
      return absl::FailedPreconditionError(
          absl::StrCat(folder, " has table ", name,
                       " in arrays of another program: restore it, and publish that"));
    }
    for (const v1::TableSpec& spec : map.tables()) {
      if (spec.name() != name || spec.id() == table->spec().id()) continue;
      return absl::FailedPreconditionError(
          absl::StrCat(folder, " has another table ", name, ", of number ", table->spec().id(),
                       "; the one of today was created later, with number ", spec.id()));
    }
  }
  return absl::OkStatus();
}

// The folder of a checkpoint that needs no other, with the rows of this one.
absl::StatusOr<std::string> WholeFolder(const CommandContext& context, const SaveOptions& options,
                                        const std::string& folder, Place* place) {
  absl::StatusOr<Folded> folded =
      FoldWithProgress(context, folder, {.bytes_per_s = options.bytes_per_s}, place);
  if (!absl::IsAlreadyExists(folded.status())) {
    HOTBED_RETURN_IF_ERROR(folded.status());
    return folded->path;
  }
  std::string before = absl::StrCat(folder, kFoldedSuffix);
  HOTBED_ASSIGN_OR_RETURN(const v1::CheckpointManifest made, ReadManifest(before, place));
  HOTBED_ASSIGN_OR_RETURN(const v1::CheckpointManifest source, ReadManifest(folder, place));
  if (IsFoldOf(made, source)) return before;
  return absl::FailedPreconditionError(
      absl::StrCat(before, " is there, and does not have the rows of ", folder,
                   ": delete it ('hotbed checkpoint delete'), and publish again"));
}

// The checkpoint to publish: one that is saved now, or was before.
struct Published {
  std::string folder;
  uint64_t at_step = 0;
  uint64_t bytes = 0;
};

absl::StatusOr<Published> SaveNow(const CommandContext& context, const SaveOptions& options) {
  HOTBED_ASSIGN_OR_RETURN(const SavedCheckpoint saved, SaveWithProgress(context, options));
  Published published = {saved.path, saved.at_step};
  for (const CheckpointTableSize& table : saved.tables) published.bytes += table.bytes;
  return published;
}

absl::StatusOr<Published> TakeSaved(const CommandContext& context, const PublishFlags& flags,
                                    const SaveOptions& options, const std::string& folder,
                                    Place* place) {
  HOTBED_ASSIGN_OR_RETURN(const std::string whole, WholeFolder(context, options, folder, place));
  HOTBED_ASSIGN_OR_RETURN(const v1::CheckpointManifest manifest, ReadManifest(whole, place));
  Published published = {whole, manifest.at_step()};
  for (const std::string& name : flags.tables) {
    HOTBED_ASSIGN_OR_RETURN(const v1::CheckpointTable* const table, FindTable(manifest, name));
    published.bytes += BytesOf(*table);
  }
  return published;
}

absl::Status AwaitPublished(const CommandContext& context, const PublishFlags& flags,
                            const v1::PublishVersionRequest& request, uint64_t bytes,
                            ServingCalls* calls) {
  const absl::StatusOr<v1::PublishVersionReply> published =
      calls->Publish(request, context.timeout_duration());
  if (!published.ok()) {
    return absl::Status(
        published.status().code(),
        absl::StrCat(published.status().message(), ". The checkpoint stays in ", request.folder()));
  }
  bool current = false;
  if (!flags.no_wait && published->choice().target() == published->version().number()) {
    HOTBED_ASSIGN_OR_RETURN(current, AwaitCurrent(context, published->version(), calls));
    if (!current) {
      return absl::AbortedError(absl::StrCat(
          "version ", request.name(),
          " is published, but another one is to be current meanwhile ('hotbed serve status')"));
    }
  }
  return Answer(context, flags, *published, bytes, current);
}

absl::Status Publish(const CommandContext& context, const PublishFlags& flags) {
  SaveOptions options;
  HOTBED_ASSIGN_OR_RETURN(options.directory, PlacePath(flags.place));
  if (NamesServersDisks(options.directory)) {
    return absl::InvalidArgumentError(
        absl::StrCat("PLACE is ", options.directory,
                     ": serving servers do not reach the disks of others; take a directory that "
                     "all of them reach, or s3://BUCKET/PREFIX"));
  }
  HOTBED_RETURN_IF_ERROR(ParseSaveFlags(flags.save, &options));
  const bool saves = flags.checkpoint.empty();
  if (!saves && (!flags.save.at_step.empty() || !flags.save.compress.empty())) {
    return absl::InvalidArgumentError(
        "--at-step and --compress are for a save, and --from-checkpoint publishes one that is "
        "there; take one or the other");
  }
  options.tables = flags.tables;
  options.name = !flags.name.empty() ? flags.name
                 : !saves            ? flags.checkpoint
                          : absl::FormatTime("%Y%m%dT%H%M%E3SZ", absl::Now(), absl::UTCTimeZone());
  v1::PublishVersionRequest request;
  request.set_name(options.name);
  for (const std::string& table : flags.tables) request.add_tables(table);
  request.set_model(flags.model);
  request.set_take_over(flags.take_over);
  request.set_share(flags.share);
  request.set_dry_run(true);
  ServingCalls calls(context.coordinator, IdentityOfEnvironment());
  HOTBED_ASSIGN_OR_RETURN(v1::PublishVersionReply reply,
                          calls.Publish(request, context.timeout_duration()));
  const std::string folder = absl::StrCat(options.directory, "/", flags.checkpoint);
  Place* place = nullptr;
  if (!saves) {
    HOTBED_ASSIGN_OR_RETURN(place, PlaceFinder::Real()->Of(folder));
    HOTBED_ASSIGN_OR_RETURN(const v1::CheckpointManifest manifest, ReadManifest(folder, place));
    HOTBED_RETURN_IF_ERROR(CheckCheckpoint(context, flags, folder, manifest));
  }
  if (flags.dry_run) return Answer(context, flags, reply, 0, false);
  HOTBED_ASSIGN_OR_RETURN(
      const Published made,
      saves ? SaveNow(context, options) : TakeSaved(context, flags, options, folder, place));
  request.set_dry_run(false);
  request.set_folder(made.folder);
  request.set_at_step(made.at_step);
  return AwaitPublished(context, flags, request, made.bytes, &calls);
}
}  // namespace

void AddPublishCommand(CLI::App* root, CommandContext* context) {
  auto flags = std::make_shared<PublishFlags>();
  CLI::App* app = root->add_subcommand(
      "publish",
      "Save served tables as one version, which serving servers take up and then answer together");
  // One option: CLI11 gives a list of words all words that there are.
  app->add_option("TABLES_AND_PLACE", flags->words,
                  "Names of the tables, and last the PLACE of versions: a directory which every "
                  "server reaches under the same path, or s3://BUCKET/PREFIX")
      ->required()
      ->expected(2, CLI::detail::expected_max_vector_size)
      ->option_text("TEXT TEXT ...");
  app->add_option("--name", flags->name, "Name of the version; by the time if not given");
  app->add_option("--from-checkpoint", flags->checkpoint,
                  "Publish this checkpoint of PLACE, by its name, and save nothing; an incremental "
                  "one is folded first, with those that it needs, into NAME-folded")
      ->check([](const std::string& name) {
        const bool is_name =
            !name.empty() && name != "." && name != ".." && name.find('/') == name.npos;
        return is_name ? "" : absl::StrCat("is '", name, "': give the name of a folder of PLACE");
      })
      ->option_text("NAME");
  app->add_option("--model", flags->model,
                  "The model that the tables make up: each model has a current version of its own. "
                  "Without it: the model that they belong to, or \"default\"");
  CLI::Option* const take_over =
      app->add_flag("--take-over", flags->take_over,
                    "Take tables from the models that they belong to: from the moment when this "
                    "version is current, readers of these tables get it");
  app->add_flag("--share", flags->share,
                "Tables may belong to other models, too. Readers of tables of several models name "
                "one, as version current/MODEL, unless one model alone has all tables of a lookup")
      ->excludes(take_over);
  AddSaveFlags(app, &flags->save);
  app->add_flag("--no-wait", flags->no_wait, "Do not wait until the version is current");
  app->add_flag("--dry-run", flags->dry_run, "Check that it could be published; save nothing");
  context->Runs(app, [context, flags] {
    flags->tables = {flags->words.begin(), flags->words.end() - 1};
    flags->place = flags->words.back();
    return Publish(*context, *flags);
  });
}

}  // namespace hotbed
