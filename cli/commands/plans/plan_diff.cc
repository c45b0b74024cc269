#include "planner/report/plan_diff.h"

#include <CLI/App.hpp>
#include <memory>
#include <string>

#include "cli/base/command.h"
#include "cli/shards/plan_file.h"
#include "common/status_macros.h"
#include "planner/json/write_plan.h"
#include "planner/model/plan_differences.h"
#include "planner/report/plan_svg.h"

namespace hotbed {
namespace {

struct DiffOptions {
  std::string before;
  std::string after;
  std::string output;
  bool all = false;
};

absl::Status Diff(const DiffOptions& options, const CommandContext& context) {
  HOTBED_ASSIGN_OR_RETURN(const PlannerOutput before, LoadPlan(options.before));
  HOTBED_ASSIGN_OR_RETURN(PlannerOutput after, LoadPlan(options.after));
  const std::string output = PlanOutput(options.output, context);
  if (output == "svg") {
    *context.out << PlanDiffSvg(before, after);
  } else if (output == "json") {
    after.moves = PlanDifferences(before, after, "differs");
    *context.out << PrettyJson({{"moves", PlanToJson(after)["moves"]}});
  } else {
    *context.out << PlanDiffText(before, after, PlanRows(options.all));
  }
  return absl::OkStatus();
}

}  // namespace

void AddPlanDiffCommand(CLI::App* plan, CommandContext* context) {
  auto options = std::make_shared<DiffOptions>();
  CLI::App* const command =
      plan->add_subcommand("diff", "Moves and changes from one stored plan to another");
  command->add_option("BEFORE", options->before, "A file of plan compute -o json")->required();
  command->add_option("AFTER", options->after, "Another one; one of both may be -")->required();
  AddPlanOutput(command, &options->output);
  command->add_flag("--all", options->all, "Text: show every row");
  context->Runs(command, [context, options] { return Diff(*options, *context); });
}

}  // namespace hotbed
