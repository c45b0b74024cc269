#include <unistd.h>

#include <CLI/App.hpp>
#include <CLI/Validators.hpp>
#include <fstream>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "cli/base/command.h"
#include "cli/bench/calibrate.h"
#include "common/status_macros.h"
#include "planner/json/constants_json.h"
#include "planner/json/write_plan.h"
#include "terminal/progress.h"
#include "terminal/table_printer.h"

namespace hotbed {
namespace {

struct PlanCalibrateFlags {
  CalibrateOptions options;
  std::string out = "calibration.json";
};

PlanJson ToJson(const Calibration& calibration) {
  PlanJson json = ConstantsToJson(calibration.constants);
  PlanJson about = PlanJson::object();
  for (const auto& [what, figure] : calibration.measured) about[what] = figure;
  for (const auto& [name, why] : calibration.assumed) about[name] = why;
  json["about"] = about;
  return json;
}

std::string ToText(const Calibration& calibration) {
  TablePrinter measured({"measured", "figure"});
  for (const auto& [what, figure] : calibration.measured) measured.AddRow({what, figure});
  TablePrinter constants({"constant", "value", "unit", "from"});
  const PlanJson values = ConstantsToJson(calibration.constants);
  for (const auto& [name, value] : values.items()) {
    std::string from = "measured";
    for (const auto& [assumed, why] : calibration.assumed) {
      if (assumed == name) from = why;
    }
    const bool time = name.size() > 3 && name.compare(name.size() - 3, 3, "_ns") == 0;
    constants.AddRow(
        {name, absl::StrFormat("%.4g", value.get<double>()), time ? "ns" : "bytes/ms", from});
  }
  return absl::StrCat(measured.ToText(), "\n", constants.ToText());
}

absl::Status Run(PlanCalibrateFlags flags, const CommandContext& context) {
  std::unique_ptr<Progress> bar;
  flags.options.progress = [&](uint64_t done, uint64_t of, const std::string& next) {
    if (bar == nullptr) {
      bar = std::make_unique<Progress>(context.err, isatty(STDERR_FILENO) != 0, Clock::Real(),
                                       "calibrating", of);
    }
    bar->Update(done, next);
    if (done == of) bar->Finish();
  };
  HOTBED_ASSIGN_OR_RETURN(const Calibration calibration, Calibrate(flags.options));
  const std::string text = PrettyJson(ToJson(calibration));
  std::ofstream file(flags.out, std::ios::binary | std::ios::trunc);
  file << text;
  file.close();
  if (!file) {
    return absl::PermissionDeniedError(absl::StrCat("--out ", flags.out, " cannot be written"));
  }
  if (context.json()) {
    *context.out << text;
  } else {
    *context.out << ToText(calibration) << "\nwritten to " << flags.out
                 << ": 'hotbed plan compute --constants " << flags.out << "' plans with it\n";
  }
  return absl::OkStatus();
}

}  // namespace

void AddPlanCalibrateCommand(CLI::App* plan, CommandContext* context) {
  auto flags = std::make_shared<PlanCalibrateFlags>();
  CLI::App* const command =
      plan->add_subcommand("calibrate", "Measure this machine for the cost model of plan compute");
  command->add_option("--out", flags->out, "File for the constants")->capture_default_str();
  command->add_option("--dir", flags->options.dir, "Folder on the disk of the spill tier")
      ->check(CLI::ExistingDirectory)
      ->capture_default_str();
  command->add_option("--seconds", flags->options.seconds, "Seconds for all measurements together")
      ->check(CLI::Range(0.1, 3600.0))
      ->capture_default_str();
  context->Runs(command, [context, flags] { return Run(*flags, *context); });
}

}  // namespace hotbed
