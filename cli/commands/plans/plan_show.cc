#include <CLI/App.hpp>
#include <memory>
#include <string>

#include "cli/base/command.h"
#include "cli/base/coordinator_stub.h"
#include "cli/shards/live_view.h"
#include "cli/shards/plan_file.h"
#include "common/status_macros.h"
#include "planner/cluster_problem.h"

namespace hotbed {
namespace {

struct ShowOptions {
  std::string file;  // empty: the live plan
  std::string output;
  bool all = false;
};

absl::Status ShowFile(const ShowOptions& options, const CommandContext& context) {
  HOTBED_ASSIGN_OR_RETURN(const PlannerOutput plan, LoadPlan(options.file));
  PrintPlan(plan, nullptr, PlanOutput(options.output, context), options.all, context);
  return absl::OkStatus();
}

absl::Status ShowLive(const ShowOptions& options, const CommandContext& context) {
  CoordinatorStub coordinator(context.coordinator, context.timeout_duration());
  HOTBED_ASSIGN_OR_RETURN(const v1::ClusterMap map, coordinator.GetClusterMap(/*rates=*/true));
  HOTBED_ASSIGN_OR_RETURN(const ClusterView view, ViewOfMap(map));
  const PlannerInput problem = ClusterProblem(view);
  const PlannerOutput plan = LivePlanOf(problem);
  const std::string output = PlanOutput(options.output, context);
  if (output == "text") {
    *context.out << "The placement in force, plan revision " << map.plan_revision() << "\n"
                 << (plan.cost.max_server_ms > 0 ? LiveWorkloadText(map) : "")
                 << UnreachableText(view);
  }
  PrintPlan(plan, &problem, output, options.all, context);
  return absl::OkStatus();
}

}  // namespace

void AddPlanShowCommand(CLI::App* plan, CommandContext* context) {
  auto options = std::make_shared<ShowOptions>();
  CLI::App* const command = plan->add_subcommand(
      "show",
      "The placement in force, which server holds which range of which table; or that of a "
      "FILE");
  command->add_option("FILE", options->file, "A stored plan, of plan compute -o json; - is stdin");
  AddPlanOutput(command, &options->output);
  command->add_flag("--all", options->all, "Text: show every server, table and move");
  context->Runs(command, [context, options] {
    return options->file.empty() ? ShowLive(*options, *context) : ShowFile(*options, *context);
  });
}

}  // namespace hotbed
