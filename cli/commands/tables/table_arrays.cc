// hotbed table export and import: tables as NumPy arrays, by way of a checkpoint that is deleted
// afterwards.
#include "checkpoint/table_arrays.h"

#include <unistd.h>

#include <CLI/App.hpp>
#include <algorithm>
#include <filesystem>
#include <memory>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "checkpoint/checkpoint_folder.h"
#include "checkpoint/manifest.h"
#include "cli/base/command.h"
#include "cli/base/coordinator_stub.h"
#include "cli/base/interrupt.h"
#include "cli/commands/tables/table_flags.h"
#include "cli/tables/find_table.h"
#include "cli/tables/table_file.h"
#include "common/clock.h"
#include "common/files/file_system.h"
#include "common/log.h"
#include "common/status_macros.h"
#include "hotbed/checkpoint.h"
#include "nlohmann/json.hpp"
#include "terminal/progress.h"
#include "terminal/table_printer.h"

namespace hotbed {
namespace {

struct TableArrayFlags {
  std::string name;
  std::string rows;
  std::string ids;
  std::string directory;  // empty: that of `rows`
  GivenOptions given;     // import
};

std::string DirectoryOf(const TableArrayFlags& flags) {
  const std::filesystem::path path = flags.directory.empty()
                                         ? std::filesystem::absolute(flags.rows).parent_path()
                                         : std::filesystem::path(flags.directory);
  std::string text = std::filesystem::absolute(path).lexically_normal().string();
  if (text.size() > 1 && text.back() == '/') text.pop_back();
  return text;
}

// The name of the checkpoint that rows pass through.
std::string PassingName(const TableArrayFlags& flags) {
  return absl::StrCat("passing-", absl::StrReplaceAll(flags.name, {{"/", "-"}}), "-",
                      absl::ToUnixMillis(absl::Now()));
}

void DeletePassing(const std::string& folder) {
  const absl::Status deleted = DeleteCheckpoint(folder, FileSystem::Real());
  if (!deleted.ok()) HOTBED_LOG(Warning) << folder << " is left: " << deleted.message();
}

// A bar for the rows done; nothing with -o json. Says whether to go on.
class RowBar {
 public:
  RowBar(const CommandContext& context, const InterruptScope& interrupt, const char* label)
      : context_(context), interrupt_(interrupt), label_(label) {}
  bool operator()(uint64_t done, uint64_t rows) {
    if (context_.json()) return !interrupt_.interrupted();
    if (bar_ == nullptr) {
      bar_ = std::make_unique<Progress>(context_.err, isatty(STDERR_FILENO) != 0, Clock::Real(),
                                        label_, rows);
    }
    bar_->Update(done);
    return !interrupt_.interrupted();
  }

 private:
  const CommandContext& context_;
  const InterruptScope& interrupt_;
  const char* const label_;
  std::unique_ptr<Progress> bar_;
};

absl::Status Answered(const CommandContext& context, const TableArrayFlags& flags, const char* did,
                      uint64_t rows, uint32_t dim, int64_t begun_ns) {
  const double seconds = static_cast<double>(Clock::Real()->NowNs() - begun_ns) * 1e-9;
  return context.Answer({{"table", flags.name},
                         {"rows", rows},
                         {"dim", dim},
                         {"file", flags.rows},
                         {"ids", flags.ids},
                         {"seconds", seconds}},
                        absl::StrCat(did, " ", WithCommas(rows), " rows of ", dim, " of table ",
                                     flags.name, " in ", ShortSeconds(seconds), "\n"));
}

absl::Status Export(const CommandContext& context, const TableArrayFlags& flags) {
  const int64_t begun_ns = Clock::Real()->NowNs();
  CoordinatorStub coordinator(context.coordinator, context.timeout_duration());
  HOTBED_ASSIGN_OR_RETURN(const v1::ClusterMap map, coordinator.GetClusterMap());
  HOTBED_ASSIGN_OR_RETURN(const TableSpec spec, FindTable(map, flags.name));
  HOTBED_RETURN_IF_ERROR(CheckIdsFile(spec, flags.ids));
  for (const std::string& path : {flags.rows, flags.ids}) {
    if (path.empty() || !FileSystem::Real()->Exists(path)) continue;
    return absl::AlreadyExistsError(absl::StrCat(path, " exists already; name another file"));
  }
  SaveOptions save;
  save.directory = DirectoryOf(flags);
  save.name = PassingName(flags);
  save.tables = {flags.name};
  const InterruptScope interrupt;
  save.stop = [&interrupt] { return interrupt.interrupted(); };
  HOTBED_ASSIGN_OR_RETURN(const SavedCheckpoint saved,
                          SaveCheckpoint(absl::StrCat("hotbed://", context.coordinator), save));
  RowBar bar(context, interrupt, "exporting");
  auto written = [&]() -> absl::StatusOr<uint64_t> {
    HOTBED_ASSIGN_OR_RETURN(const auto manifest, ReadManifest(saved.path, FileSystem::Real()));
    return ExportTable(saved.path, manifest.tables(0), flags.rows, flags.ids, FileSystem::Real(),
                       std::ref(bar));
  }();
  DeletePassing(saved.path);
  HOTBED_RETURN_IF_ERROR(written.status());
  return Answered(context, flags, "exported", *written, spec.dim, begun_ns);
}

absl::StatusOr<TableSpec> SpecToImport(const TableArrayFlags& flags) {
  TableSpec spec = DefaultTableSpec();
  spec.name = flags.name;
  for (const auto& [option, text] : flags.given) {
    HOTBED_RETURN_IF_ERROR(SetTableOption(*option, text, &spec));
  }
  HOTBED_RETURN_IF_ERROR(CheckArrays(flags.rows, flags.ids, &spec));
  HOTBED_RETURN_IF_ERROR(NamingItsFlag(ValidateTableSpec(spec)));
  if (spec.seed == 0) spec.seed = DefaultTableSeed(spec.name);
  spec.initializer = FirstValuesOf(spec);
  MakeCanonical(&spec);
  return spec;
}

absl::Status Import(const CommandContext& context, const TableArrayFlags& flags) {
  const int64_t begun_ns = Clock::Real()->NowNs();
  HOTBED_ASSIGN_OR_RETURN(const TableSpec spec, SpecToImport(flags));
  CoordinatorStub coordinator(context.coordinator, context.timeout_duration());
  HOTBED_ASSIGN_OR_RETURN(const v1::ClusterMap map, coordinator.GetClusterMap());
  if (FindTable(map, flags.name).ok()) {
    return absl::AlreadyExistsError(
        absl::StrCat("table \"", flags.name, "\" exists already; drop it, or name another"));
  }
  const InterruptScope interrupt;
  RowBar bar(context, interrupt, "importing");
  HOTBED_ASSIGN_OR_RETURN(const std::string folder,
                          ImportTable(flags.rows, flags.ids, spec, DirectoryOf(flags),
                                      PassingName(flags), FileSystem::Real(), std::ref(bar)));
  RestoreOptions restore;
  restore.checkpoint = folder;
  restore.sessions = RestoredSessions::kAnew;
  const auto restored = RestoreCheckpoint(absl::StrCat("hotbed://", context.coordinator), restore);
  DeletePassing(folder);
  HOTBED_RETURN_IF_ERROR(restored.status());
  const uint64_t rows = restored->tables.front().rows / std::max<uint32_t>(spec.column_slices, 1);
  return Answered(context, flags, "imported", rows, spec.dim, begun_ns);
}

void AddPaths(CLI::App* app, TableArrayFlags* flags) {
  app->add_option("NAME", flags->name, "Name of the table")->required();
  app->add_option("FILE", flags->rows, "Weights, rows x dim (.npy)")->required();
  app->add_option("--ids", flags->ids, "Ids of the rows, for hashed tables (.npy)");
  app->add_option("--dir", flags->directory,
                  "Directory that every server reaches, for the rows on their way; that of FILE if "
                  "not given");
}

}  // namespace

void AddTableExportCommand(CLI::App* table, CommandContext* context) {
  auto flags = std::make_shared<TableArrayFlags>();
  CLI::App* app = table->add_subcommand(
      "export", "Write the weights of a table into a NumPy array, while training goes on");
  AddPaths(app, flags.get());
  context->Runs(app, [context, flags] { return Export(*context, *flags); });
}

void AddTableImportCommand(CLI::App* table, CommandContext* context) {
  auto flags = std::make_shared<TableArrayFlags>();
  CLI::App* app = table->add_subcommand(
      "import",
      "Create a table with the weights of a NumPy array; see 'table create' for its flags");
  AddPaths(app, flags.get());
  AddTableFlags(app, /*only_changing=*/false, &flags->given);
  context->Runs(app, [context, flags] { return Import(*context, *flags); });
}

}  // namespace hotbed
