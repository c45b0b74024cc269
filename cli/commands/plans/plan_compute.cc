#include <CLI/App.hpp>
#include <memory>
#include <string>

#include "cli/base/command.h"
#include "cli/shards/plan_file.h"
#include "common/status_macros.h"
#include "planner/compute_plan.h"
#include "planner/json/constants_json.h"
#include "planner/json/read_input.h"

namespace hotbed {
namespace {

struct ComputeOptions {
  std::string input;
  std::string constants;  // empty: those of the input, or the defaults
  std::string output;
  bool all = false;
};

absl::Status Compute(const ComputeOptions& options, CommandContext* context) {
  HOTBED_ASSIGN_OR_RETURN(const std::string text, ReadPlanFile(options.input));
  const std::string output = PlanOutput(options.output, *context);
  PlanResult<PlannerInput> input = ReadPlannerInput(text);
  if (!input.ok()) return RefusePlan(input.error(), output, context);
  if (!options.constants.empty()) {
    HOTBED_ASSIGN_OR_RETURN(const std::string measured, ReadPlanFile(options.constants));
    const PlanResult<CostConstants> constants = ReadConstants(measured);
    if (!constants.ok()) return RefusePlan(constants.error(), output, context);
    input.value().constants = constants.value();
  }
  const PlanResult<PlannerOutput> plan = ComputePlan(input.value());
  if (!plan.ok()) return RefusePlan(plan.error(), output, context);
  PrintPlan(plan.value(), &input.value(), output, options.all, *context);
  return absl::OkStatus();
}

}  // namespace

void AddPlanComputeCommand(CLI::App* plan, CommandContext* context) {
  auto options = std::make_shared<ComputeOptions>();
  CLI::App* const command = plan->add_subcommand(
      "compute", "Plan a placement from a file, without a cluster (docs/planner.md)");
  command->add_option("--input", options->input, "The planner's input as JSON; - is standard input")
      ->required();
  command->add_option("--constants", options->constants,
                      "A file of plan calibrate; overrides the constants of the input");
  AddPlanOutput(command, &options->output);
  command->add_flag("--all", options->all, "Text: show every server, table and move");
  context->Runs(command, [context, options] { return Compute(*options, context); });
}

}  // namespace hotbed
