// Shared by the `plan` commands: plans and inputs in files, and output forms.
#ifndef HOTBED_CLI_SHARDS_PLAN_FILE_H_
#define HOTBED_CLI_SHARDS_PLAN_FILE_H_

#include <cstddef>
#include <string>

#include "absl/status/statusor.h"
#include "cli/base/command.h"
#include "planner/model/plan_error.h"
#include "planner/model/planner_input.h"
#include "planner/model/planner_output.h"

namespace hotbed {

// The contents of the file, or of standard input where `path` is "-". NotFound when it cannot be
// read.
absl::StatusOr<std::string> ReadPlanFile(const std::string& path);

// The plan in a file, as `plan compute -o json` writes it. Errors of ReadPlanFile, and
// InvalidArgument, with the path, when it holds no plan.
absl::StatusOr<PlannerOutput> LoadPlan(const std::string& path);

// Adds `-o json|text|svg` to `command`. It overrides the global flag of the same name, which has no
// svg and whose "table" means text.
void AddPlanOutput(CLI::App* command, std::string* output);

// "json", "text" or "svg": from the command's own flag, else the global one, else text.
std::string PlanOutput(const std::string& output, const CommandContext& context);

// Prints the plan in the form `output`; `input` may be null. `all`: text shows every row.
void PrintPlan(const PlannerOutput& plan, const PlannerInput* input, const std::string& output,
               bool all, const CommandContext& context);

// Prints the error in the form `output`; the command then ends with kExitFailed. A refused plan is
// an answer, so it goes to the same stream as a plan.
absl::Status RefusePlan(const PlanError& error, const std::string& output, CommandContext* context);

// The number of rows of each part of a text: all, or about two screens.
size_t PlanRows(bool all);

}  // namespace hotbed

#endif  // HOTBED_CLI_SHARDS_PLAN_FILE_H_
