// What the `plan` commands share: plans and inputs in files, and the forms that they are shown in.
#ifndef HOTBED_CLI_SHARDS_PLAN_FILE_H_
#define HOTBED_CLI_SHARDS_PLAN_FILE_H_

#include <cstddef>
#include <string>

#include "absl/status/statusor.h"
#include "cli/base/command.h"
#include "planner/model/plan_error.h"
#include "planner/model/planner_output.h"

namespace hotbed {

// The contents of the file, or of standard input where `path` is "-". NotFound when it cannot be
// read.
absl::StatusOr<std::string> ReadPlanFile(const std::string& path);

// The plan in a file, as `plan compute -o json` writes it. Errors of ReadPlanFile, and
// InvalidArgument, with the path, when it holds no plan.
absl::StatusOr<PlannerOutput> LoadPlan(const std::string& path);

// Hangs `-o json|text|svg` under `command`; it goes before the global flag of the name, which knows
// no pictures. That one's "table" is another word for text.
void AddPlanOutput(CLI::App* command, std::string* output);

// "json", "text" or "svg": what the command's own flag says, else the global one, else text.
std::string PlanOutput(const std::string& output, const CommandContext& context);

// Answers with the error in the form `output`; the command then ends with kExitFailed. A refusal is
// the answer to the question, not a failure to ask it: it goes where the plan would.
absl::Status RefusePlan(const PlanError& error, const std::string& output, CommandContext* context);

// Rows of each part of a text: all of them, or as many as a screen or two hold.
size_t PlanRows(bool all);

}  // namespace hotbed

#endif  // HOTBED_CLI_SHARDS_PLAN_FILE_H_
