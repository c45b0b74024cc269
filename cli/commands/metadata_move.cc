// hotbed metadata export, import: the metadata of a cluster from one store to another, while no
// coordinator runs.
#include <CLI/App.hpp>
#include <CLI/Validators.hpp>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "cli/base/command.h"
#include "common/files/file_system.h"
#include "common/status_macros.h"
#include "config/units.h"
#include "nlohmann/json.hpp"
#include "planner/coordinator/metadata/metadata_flags.h"
#include "planner/coordinator/metadata/move_metadata.h"
#include "planner/coordinator/state/keys.h"
#include "terminal/table_printer.h"

namespace hotbed {
namespace {

struct StoreFlags {
  MetadataFlags store;
  std::string file;
  bool plain = false;
  bool dry_run = false;
  bool replaces_later = false;  // of an import
};

void AddStoreFlags(CLI::App* command, const char* file_help, StoreFlags* flags) {
  flags->store.data_dir.clear();
  command->add_option("FILE", flags->file, file_help)->required();
  command
      ->add_option("--metadata", flags->store.metadata,
                   "The store, as the coordinator's flag: embedded, in --data-dir; or "
                   "etcd://HOST:2379,HOST:2379 and /PREFIX")
      ->capture_default_str();
  command->add_option("--data-dir", flags->store.data_dir,
                      "The coordinator's directory, of the embedded store");
  command->add_option("--etcd-ca", flags->store.etcd_files.authority,
                      "Certificates of the authority that signs etcd's; calls etcd by TLS");
  command->add_option("--etcd-cert", flags->store.etcd_files.certificate,
                      "The certificate that is shown to etcd");
  command->add_option("--etcd-key", flags->store.etcd_files.key, "Its private key");
  command->add_option("--etcd-user", flags->store.etcd_user, "The user to log in to etcd as");
  command->add_option("--etcd-password-file", flags->store.etcd_password_file,
                      "Holds the user's password");
  command->add_flag("--etcd-plaintext", flags->plain,
                    "Call etcd without TLS although it is beyond loopback");
  command->add_flag("--dry-run", flags->dry_run, "Check and print; change nothing");
}

// `make`: an embedded store that does not exist is created.
absl::StatusOr<Metadata> OpenStore(const StoreFlags& flags, bool make) {
  if (flags.store.metadata == "embedded") {
    if (flags.store.data_dir.empty()) {
      return absl::InvalidArgumentError(
          "--data-dir is required: the coordinator's directory; or --metadata=etcd://...");
    }
    const std::string version = absl::StrCat(flags.store.data_dir, "/VERSION");
    if (!make && !FileSystem::Real()->Exists(version)) {
      return absl::NotFoundError(absl::StrCat("there is no ", version,
                                              ": --data-dir=", flags.store.data_dir,
                                              " is no directory of a coordinator"));
    }
  }
  return OpenMetadata(flags.store, flags.plain, FileSystem::Real());
}

absl::Status InPlace(const std::string& place, const absl::Status& status) {
  if (status.ok()) return status;
  return absl::Status(status.code(), absl::StrCat(place, ": ", status.message()));
}

absl::Status AnswerMoved(const CommandContext& context, const StoreFlags& flags,
                         absl::string_view did, const std::string& place,
                         const ExportedMetadata& metadata, absl::string_view next) {
  const nlohmann::ordered_json json = {{"file", flags.file},
                                       {"store", place},
                                       {"cluster", metadata.cluster_id},
                                       {"records", metadata.records.size()},
                                       {"tables", metadata.count(keys::kTables)},
                                       {"shards", metadata.count(keys::kShards)},
                                       {"servers", metadata.count(keys::kServers)},
                                       {"dry_run", flags.dry_run}};
  return context.Answer(
      json, absl::StrCat(flags.dry_run ? "would have " : "", did, " the metadata of cluster ",
                         metadata.cluster_id, ": ", WithCommas(metadata.records.size()),
                         " records with ", WithCommas(metadata.count(keys::kTables)), " tables, ",
                         WithCommas(metadata.count(keys::kShards)), " shards and ",
                         WithCommas(metadata.count(keys::kServers)), " servers\n",
                         flags.dry_run ? "" : next));
}

absl::Status ExportStore(const CommandContext& context, const StoreFlags& flags) {
  if (FileSystem::Real()->Exists(flags.file)) {
    return absl::AlreadyExistsError(
        absl::StrCat(flags.file, " exists and stays as it is: name another file"));
  }
  HOTBED_ASSIGN_OR_RETURN(const Metadata from, OpenStore(flags, /*make=*/false));
  const absl::StatusOr<ExportedMetadata> metadata = ExportMetadata(!flags.dry_run, from.store());
  if (!metadata.ok()) return InPlace(from.place, metadata.status());
  if (!flags.dry_run) {
    const absl::Status written =
        FileSystem::Real()->WriteAtomically(flags.file, SerializeExport(*metadata));
    if (!written.ok()) {
      return absl::Status(
          written.code(),
          absl::StrCat(written.message(), ". The store is marked as exported, so that no ",
                       "coordinator begins with it: export again to another file"));
    }
  }
  return AnswerMoved(context, flags, "exported", from.place, *metadata,
                     absl::StrCat("No coordinator begins with ", from.place,
                                  " any more. Next: 'hotbed metadata import ", flags.file,
                                  "' with the new store\n"));
}

absl::Status ImportStore(const CommandContext& context, const StoreFlags& flags) {
  HOTBED_ASSIGN_OR_RETURN(const std::string bytes, FileSystem::Real()->ReadAll(flags.file));
  const absl::StatusOr<ExportedMetadata> metadata = ParseExport(bytes);
  if (!metadata.ok()) return InPlace(flags.file, metadata.status());
  const bool is_new = flags.dry_run && flags.store.metadata == "embedded" &&
                      !FileSystem::Real()->Exists(flags.store.data_dir);
  if (is_new) {
    return AnswerMoved(context, flags, "imported",
                       absl::StrCat("data directory ", flags.store.data_dir), *metadata, "");
  }
  HOTBED_ASSIGN_OR_RETURN(const Metadata to, OpenStore(flags, /*make=*/!flags.dry_run));
  HOTBED_RETURN_IF_ERROR(InPlace(
      to.place, flags.dry_run ? MayImport(*metadata, flags.replaces_later, to.store())
                              : ImportMetadata(*metadata, flags.replaces_later, to.store())));
  return AnswerMoved(context, flags, "imported", to.place, *metadata,
                     absl::StrCat("Start the coordinator with ", to.place,
                                  ", at the address that servers and clients know\n"));
}

}  // namespace

void AddMetadataMoveCommands(CLI::App* metadata, CommandContext* context) {
  auto from = std::make_shared<StoreFlags>();
  CLI::App* out = metadata->add_subcommand(
      "export",
      "Write the metadata of a stopped coordinator to a file, to move them to another store; no "
      "coordinator begins with the old one any more");
  AddStoreFlags(out, "The file; it must not exist", from.get());
  context->Runs(out, [context, from] { return ExportStore(*context, *from); });

  auto to = std::make_shared<StoreFlags>();
  CLI::App* in = metadata->add_subcommand(
      "import", "Put exported metadata into an empty store, or back into the one they came from");
  AddStoreFlags(in, "What 'hotbed metadata export' wrote", to.get());
  in->add_flag("--replace-later", to->replaces_later,
               "Also where the store was exported later than the file was written: the changes "
               "since are lost");
  context->Runs(in, [context, to] { return ImportStore(*context, *to); });
}

}  // namespace hotbed
