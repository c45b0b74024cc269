#include <CLI/App.hpp>
#include <CLI/Option.hpp>
#include <algorithm>
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
#include "cli/commands/refuse_usage.h"
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
  std::vector<std::string> tables;
  std::string place;  // empty: that of the newest version of the model
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

absl::Status CheckTables(const PublishFlags& flags) {
  if (!flags.tables.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("PLACE is ", flags.place, ", and no table is named: name tables first"));
}

// Whether the last word is a place, as far as it shows: names of tables begin with a letter, digit
// or '_', and may have '/' in them.
bool MustBePlace(const std::string& word) {
  return word.starts_with('/') || word.starts_with('.') || word.find(':') != word.npos;
}
bool MayBePlace(const std::string& word) {
  return MustBePlace(word) || word.find('/') != word.npos;
}

// Takes the place out of the tables.
absl::Status TakePlace(PublishFlags* flags) {
  flags->place = flags->tables.back();
  flags->tables.pop_back();
  return PlacePath(flags->place).status();
}

// The same for a word that may be either: it is a table if there is one of that name.
absl::Status FindPlace(const CommandContext& context, PublishFlags* flags) {
  if (!flags->place.empty() || !MayBePlace(flags->tables.back())) return absl::OkStatus();
  CoordinatorStub coordinator(context.coordinator, context.timeout_duration());
  HOTBED_ASSIGN_OR_RETURN(const v1::ClusterMap map, coordinator.GetClusterMap());
  for (const v1::TableSpec& spec : map.tables()) {
    if (spec.name() == flags->tables.back()) return absl::OkStatus();
  }
  HOTBED_RETURN_IF_ERROR(TakePlace(flags));
  return CheckTables(*flags);
}

// Where the newest version of `model` lies.
absl::StatusOr<std::string> PlaceOfNewest(const CommandContext& context, const std::string& model,
                                          ServingCalls* calls) {
  HOTBED_ASSIGN_OR_RETURN(const v1::ServingMap map, calls->Get(context.timeout_duration()));
  const v1::ServedVersion* newest = nullptr;
  for (const v1::ServedVersion& version : map.versions()) {
    if (version.model() == model) newest = &version;  // they come by number
  }
  const size_t end = newest == nullptr ? std::string::npos : newest->folder().rfind('/');
  if (end != std::string::npos) return newest->folder().substr(0, std::max<size_t>(end, 1));
  return absl::FailedPreconditionError(absl::StrCat(
      "no PLACE is given, and model ", model,
      " has no version yet whose place could be taken: name last a directory that every server "
      "reaches, such as /shared/versions or ./versions, or s3://BUCKET/PREFIX"));
}

// Of flags that are wrong, whatever the cluster says.
absl::Status CheckFlags(PublishFlags* words, SaveOptions* options) {
  if (MustBePlace(words->tables.back())) HOTBED_RETURN_IF_ERROR(TakePlace(words));
  HOTBED_RETURN_IF_ERROR(CheckTables(*words));
  const PublishFlags& flags = *words;
  if (NamesServersDisks(flags.place)) {
    return absl::InvalidArgumentError(
        absl::StrCat("PLACE is ", flags.place,
                     ": serving servers do not reach the disks of others; take a directory that "
                     "all of them reach, or s3://BUCKET/PREFIX"));
  }
  HOTBED_RETURN_IF_ERROR(ParseSaveFlags(flags.save, options));
  if (!flags.checkpoint.empty() && (!flags.save.at_step.empty() || !flags.save.compress.empty())) {
    return absl::InvalidArgumentError(
        "--at-step and --compress are for a save, and --from-checkpoint publishes one that is "
        "there; take one or the other");
  }
  return absl::OkStatus();
}

absl::Status Publish(const CommandContext& context, PublishFlags flags, SaveOptions options) {
  HOTBED_RETURN_IF_ERROR(FindPlace(context, &flags));
  options.tables = flags.tables;
  const bool saves = flags.checkpoint.empty();
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
  const auto reply = calls.Publish(request, context.timeout_duration());
  if (absl::IsNotFound(reply.status()) && flags.place.empty()) {
    return absl::NotFoundError(absl::StrCat(
        reply.status().message(), "; a PLACE has a '/' in it, such as ./", flags.tables.back()));
  }
  HOTBED_RETURN_IF_ERROR(reply.status());
  HOTBED_ASSIGN_OR_RETURN(options.directory,
                          flags.place.empty()
                              ? PlaceOfNewest(context, reply->version().model(), &calls)
                              : PlacePath(flags.place));
  const std::string folder = absl::StrCat(options.directory, "/", flags.checkpoint);
  Place* place = nullptr;
  if (!saves) {
    HOTBED_ASSIGN_OR_RETURN(place, PlaceFinder::Real()->Of(folder));
    HOTBED_ASSIGN_OR_RETURN(const v1::CheckpointManifest manifest, ReadManifest(folder, place));
    HOTBED_RETURN_IF_ERROR(CheckCheckpoint(context, flags, folder, manifest));
  }
  if (flags.dry_run) return Answer(context, flags, *reply, 0, false);
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
  app->add_option("TABLES_AND_PLACE", flags->tables,
                  "Names of the tables, and last the PLACE of versions: a directory which every "
                  "server reaches under the same path, such as /shared/versions or ./versions, or "
                  "s3://BUCKET/PREFIX. Without it: where the newest version of the model lies")
      ->required()
      ->option_text("TEXT ...");
  app->add_option("--name", flags->name, "Name of the version; by the time if not given")
      ->check([](const std::string& name) {
        return name.empty() ? "is empty: leave it out, and the version is named by the time" : "";
      });
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
  app->callback([context, flags] {
    SaveOptions options;
    RefuseUsage(CheckFlags(flags.get(), &options));
    context->run = [context, flags, options] { return Publish(*context, *flags, options); };
  });
}

}  // namespace hotbed
