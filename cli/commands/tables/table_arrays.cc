// hotbed table export and import: tables as arrays of NumPy and safetensors.
#include <unistd.h>

#include <CLI/App.hpp>
#include <algorithm>
#include <cstring>
#include <filesystem>
#include <memory>

#include "absl/strings/str_cat.h"
#include "cli/base/command.h"
#include "cli/base/interrupt.h"
#include "cli/commands/tables/table_flags.h"
#include "cli/tables/table_file.h"
#include "common/clock.h"
#include "common/status_macros.h"
#include "config/units.h"
#include "hotbed/arrays.h"
#include "nlohmann/json.hpp"
#include "terminal/progress.h"
#include "terminal/table_printer.h"

namespace hotbed {
namespace {

struct TableArrayFlags {
  std::string name;
  std::string weights;
  std::string ids;
  std::string state;
  std::string rate;    // export
  std::string tensor;  // import
  GivenOptions given;  // import
};

std::string Absolute(const std::string& path) {
  return path.empty() ? path : std::filesystem::absolute(path).lexically_normal().string();
}

// A bar per stage; nothing with -o json.
class StageBars {
 public:
  explicit StageBars(const CommandContext& context) : context_(context) {}
  void operator()(const char* stage, uint64_t done, uint64_t all) {
    if (context_.json()) return;
    if (bar_ == nullptr || stage_ != stage) {
      if (bar_ != nullptr) bar_->Finish();
      stage_ = stage;
      bar_ = std::make_unique<Progress>(context_.err, isatty(STDERR_FILENO) != 0, Clock::Real(),
                                        stage, kParts);
    }
    const double part = static_cast<double>(done) / static_cast<double>(std::max<uint64_t>(all, 1));
    bar_->Update(static_cast<uint64_t>(std::min(part, 1.0) * kParts), FormatBytes(done));
  }
  void Finish() {
    if (bar_ != nullptr) bar_->Finish();
  }

 private:
  static constexpr uint64_t kParts = 10'000;  // the bytes in all are an estimate that changes

  const CommandContext& context_;
  std::string stage_;
  std::unique_ptr<Progress> bar_;
};

absl::Status Answered(const CommandContext& context, const TableArrayFlags& flags, const char* did,
                      const TableArraysDone& done, int64_t begun_ns) {
  const double seconds = static_cast<double>(Clock::Real()->NowNs() - begun_ns) * 1e-9;
  return context.Answer({{"table", flags.name},
                         {"rows", done.rows},
                         {"dim", done.dim},
                         {"bytes", done.bytes},
                         {"file", flags.weights},
                         {"ids", flags.ids},
                         {"state", flags.state},
                         {"resumed", done.resumed},
                         {"seconds", seconds}},
                        absl::StrCat(did, " ", WithCommas(done.rows), " rows of ", done.dim,
                                     " of table ", flags.name, " in ", ShortSeconds(seconds),
                                     done.resumed ? ", going on from an earlier call" : "", "\n"));
}

absl::Status Export(const CommandContext& context, const TableArrayFlags& flags) {
  const int64_t begun_ns = Clock::Real()->NowNs();
  ExportOptions options;
  options.weights = Absolute(flags.weights);
  options.ids = Absolute(flags.ids);
  options.state = Absolute(flags.state);
  if (!flags.rate.empty()) {
    HOTBED_ASSIGN_OR_RETURN(options.bytes_per_s, ParseBytes(flags.rate));
  }
  const InterruptScope interrupt;
  options.stop = [&interrupt] { return interrupt.interrupted(); };
  StageBars bars(context);
  options.progress = std::ref(bars);
  const auto done =
      ExportTable(absl::StrCat("hotbed://", context.coordinator), flags.name, options);
  bars.Finish();
  if (absl::IsCancelled(done.status())) {
    return absl::CancelledError(absl::StrCat(done.status().message(),
                                             ". The same command goes on from here; to give up, "
                                             "delete ",
                                             options.weights, ".export"));
  }
  HOTBED_RETURN_IF_ERROR(done.status());
  return Answered(context, flags, "exported", *done, begun_ns);
}

absl::Status Import(const CommandContext& context, const TableArrayFlags& flags) {
  const int64_t begun_ns = Clock::Real()->NowNs();
  TableSpec spec = DefaultTableSpec();
  spec.name = flags.name;
  for (const auto& [option, text] : flags.given) {
    HOTBED_RETURN_IF_ERROR(SetTableOption(*option, text, &spec));
  }
  ImportOptions options;
  options.weights = Absolute(flags.weights);
  options.tensor = flags.tensor;
  options.ids = Absolute(flags.ids);
  options.state = Absolute(flags.state);
  const InterruptScope interrupt;
  options.stop = [&interrupt] { return interrupt.interrupted(); };
  StageBars bars(context);
  options.progress = std::ref(bars);
  const auto done = ImportTable(absl::StrCat("hotbed://", context.coordinator), spec, options);
  bars.Finish();
  HOTBED_RETURN_IF_ERROR(NamingItsFlag(done.status()));
  return Answered(context, flags, "imported", *done, begun_ns);
}

void AddPaths(CLI::App* app, TableArrayFlags* flags) {
  app->add_option("NAME", flags->name, "Name of the table")->required();
  app->add_option("FILE", flags->weights,
                  "Weights, rows x dim (.npy or .safetensors), in a directory that every server "
                  "reaches under the same path")
      ->required();
  app->add_option("--ids", flags->ids,
                  "Ids of the rows, for hashed tables; FILE itself if it is a .safetensors file");
  app->add_option(
      "--state", flags->state,
      "State of the optimizer, which is left out if not given; may be FILE itself if it "
      "is a .safetensors file");
}

}  // namespace

void AddTableExportCommand(CLI::App* table, CommandContext* context) {
  auto flags = std::make_shared<TableArrayFlags>();
  CLI::App* app = table->add_subcommand(
      "export",
      "Write a table into arrays of NumPy or safetensors, while training goes on; goes on where it "
      "was if it was broken off");
  AddPaths(app, flags.get());
  app->add_option("--rate", flags->rate,
                  "Bytes per second that each server writes at most, as 100MiB");
  context->Runs(app, [context, flags] { return Export(*context, *flags); });
}

void AddTableImportCommand(CLI::App* table, CommandContext* context) {
  auto flags = std::make_shared<TableArrayFlags>();
  CLI::App* app = table->add_subcommand(
      "import",
      "Create a table with the rows of arrays of NumPy or safetensors; see 'table create' for its "
      "flags");
  AddPaths(app, flags.get());
  app->add_option("--tensor", flags->tensor,
                  "Name of the weights in a .safetensors file; 'weight', or the only tensor that "
                  "can be, if not given");
  AddTableFlags(app, /*only_changing=*/false, &flags->given);
  context->Runs(app, [context, flags] { return Import(*context, *flags); });
}

}  // namespace hotbed
