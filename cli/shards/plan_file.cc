#include "cli/shards/plan_file.h"

#include <CLI/App.hpp>
#include <CLI/Validators.hpp>
#include <fstream>
#include <iostream>
#include <iterator>
#include <limits>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "planner/json/read_plan.h"
#include "planner/json/write_plan.h"
#include "planner/report/plan_svg.h"
#include "planner/report/plan_text.h"

namespace hotbed {

absl::StatusOr<std::string> ReadPlanFile(const std::string& path) {
  using Bytes = std::istreambuf_iterator<char>;
  if (path == "-") return std::string(Bytes(std::cin), Bytes());
  std::ifstream file(path, std::ios::binary);
  std::string text(Bytes(file), {});
  if (!file.is_open() || file.bad()) {
    return absl::NotFoundError(absl::StrCat("cannot read '", path, "'"));
  }
  return text;
}

absl::StatusOr<PlannerOutput> LoadPlan(const std::string& path) {
  HOTBED_ASSIGN_OR_RETURN(const std::string text, ReadPlanFile(path));
  PlanResult<PlannerOutput> plan = ReadPlan(text);
  if (!plan.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat("'", path, "' holds no plan: ", plan.error().message));
  }
  return std::move(plan.value());
}

void AddPlanOutput(CLI::App* command, std::string* output) {
  const std::vector<std::string> forms = {"json", "text", "svg", "table"};
  command->add_option("-o,--output", *output, "How to answer: json, text or svg")
      ->check(CLI::IsMember(forms));
}

std::string PlanOutput(const std::string& output, const CommandContext& context) {
  if (!output.empty()) return output == "table" ? "text" : output;
  return context.json() ? "json" : "text";
}

void PrintPlan(const PlannerOutput& plan, const PlannerInput* input, const std::string& output,
               bool all, const CommandContext& context) {
  *context.out << (output == "json"  ? WritePlan(plan)
                   : output == "svg" ? PlanSvg(plan, input)
                                     : PlanText(plan, input, PlanRows(all)));
}

absl::Status RefusePlan(const PlanError& error, const std::string& output,
                        CommandContext* context) {
  *context->out << (output == "json" ? WritePlanError(error) : PlanErrorText(error));
  context->exit_code = kExitFailed;
  return absl::OkStatus();
}

size_t PlanRows(bool all) { return all ? std::numeric_limits<size_t>::max() : 60; }

}  // namespace hotbed
