#include <unistd.h>

#include <CLI/App.hpp>
#include <CLI/Validators.hpp>
#include <fstream>
#include <iostream>
#include <memory>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "cli/base/command.h"
#include "common/status_macros.h"
#include "config/units.h"
#include "nlohmann/json.hpp"
#include "terminal/progress.h"
#include "terminal/table_printer.h"
#include "trainer/datagen.h"

namespace hotbed {
namespace {

struct DatagenCriteoFlags {
  CriteoDatagenOptions options;
  std::string out = "-";
};

absl::Status Generate(const CommandContext& context, const DatagenCriteoFlags& flags) {
  const bool to_stdout = flags.out == "-";
  std::ofstream file;
  if (!to_stdout) {
    file.open(flags.out, std::ios::binary | std::ios::trunc);
    if (!file)
      return absl::PermissionDeniedError(absl::StrCat("--out ", flags.out, " cannot be written"));
  }
  Progress progress(context.err, isatty(STDERR_FILENO) != 0, Clock::Real(), "datagen",
                    flags.options.rows);
  CriteoDatagenOptions options = flags.options;
  options.progress = [&progress](uint64_t rows) { progress.Update(rows); };
  HOTBED_ASSIGN_OR_RETURN(const CriteoDatagenReport report,
                          GenerateCriteo(options, to_stdout ? context.out : &file));
  if (!to_stdout) {
    file.close();
    if (!file)
      return absl::UnavailableError(
          absl::StrCat("--out ", flags.out, ": the last bytes were not written"));
  }
  progress.Finish();
  // If the data go to stdout, the report about them goes to stderr.
  std::ostream* say = to_stdout ? context.err : context.out;
  if (context.json()) {
    const nlohmann::ordered_json json = {
        {"rows", report.rows},         {"bytes", report.bytes},
        {"seed", flags.options.seed},  {"positive_fraction", report.positive_fraction},
        {"auc_best", report.auc_best}, {"auc_best_linear", report.auc_linear}};
    *say << json.dump() << "\n";
  } else {
    *say << WithCommas(report.rows) << " rows, " << FormatBytes(report.bytes)
         << absl::StrFormat(", %.1f %% positive\n", 100 * report.positive_fraction)
         << absl::StrFormat("best reachable AUC %.4f, best linear model %.4f\n", report.auc_best,
                            report.auc_linear);
  }
  return absl::OkStatus();
}

}  // namespace

void AddDatagenCriteoCommand(CLI::App* datagen, CommandContext* context) {
  auto flags = std::make_shared<DatagenCriteoFlags>();
  CLI::App* app = datagen->add_subcommand("criteo",
                                          "Criteo's format (TSV) with labels from a planted model; "
                                          "prints the best AUC that any model can reach");
  app->add_option("--rows", flags->options.rows, "Number of rows")
      ->required()
      ->check(CLI::Range(1ull, 10'000'000'000ull));
  app->add_option("--seed", flags->options.seed, "Equal seeds give equal bytes")
      ->capture_default_str();
  app->add_option("--out", flags->out, "File; '-' is standard output")->capture_default_str();
  context->Runs(app, [context, flags] { return Generate(*context, *flags); });
}

}  // namespace hotbed
