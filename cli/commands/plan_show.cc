#include <CLI/App.hpp>
#include <memory>

#include "absl/strings/str_cat.h"
#include "cli/command.h"
#include "cli/coordinator_stub.h"
#include "cli/find_table.h"
#include "cli/plan_file.h"
#include "cli/table_printer.h"
#include "cli/table_text.h"
#include "common/status_macros.h"
#include "config/config.h"
#include "planner/json/write_plan.h"
#include "planner/report/plan_svg.h"
#include "planner/report/plan_text.h"
#include "proto/convert.h"

namespace hotbed {
namespace {

// Shards of one table that lie side by side on one server (joined for display only, DECISIONS P1).
struct Run {
  v1::ShardRecord first;
  uint64_t limit = 0;
  uint64_t shards = 0;
};

std::vector<Run> Runs(const std::vector<v1::ShardRecord>& shards) {
  std::vector<Run> runs;
  for (const v1::ShardRecord& shard : shards) {
    if (runs.empty() || runs.back().first.primary().server() != shard.primary().server() ||
        runs.back().limit != shard.range_first()) {
      runs.push_back({shard, shard.range_first(), 0});
    }
    runs.back().limit = shard.range_limit();
    ++runs.back().shards;
  }
  return runs;
}

absl::Status Show(const CommandContext& context) {
  CoordinatorStub coordinator(context.coordinator, context.timeout_duration());
  HOTBED_ASSIGN_OR_RETURN(const v1::ClusterMap map, coordinator.GetClusterMap());
  nlohmann::ordered_json json = {{"plan_revision", map.plan_revision()},
                                 {"ranges", nlohmann::ordered_json::array()}};
  TablePrinter printer({"table", "unit", "first", "limit", "server", "shards", "bytes when full"});
  for (const v1::TableSpec& message : map.tables()) {
    HOTBED_ASSIGN_OR_RETURN(const TableSpec spec, FromProto(message));
    const uint64_t row_bytes = spec.weight_bytes_per_row() + spec.state_bytes_per_row();
    for (const Run& run : Runs(ShardsOf(map, spec.id))) {
      const std::string server = ServerName(map, run.first.primary().server());
      const uint64_t units = run.limit - run.first.range_first();
      const uint64_t bytes = spec.hashed
                                 ? static_cast<uint64_t>(static_cast<double>(spec.rows) *
                                                         static_cast<double>(units) / 65536.0) *
                                       row_bytes
                                 : units * row_bytes;
      const char* unit = spec.hashed ? "buckets" : "rows";
      json["ranges"].push_back({{"table", spec.name},
                                {"unit", unit},
                                {"first", run.first.range_first()},
                                {"limit", run.limit},
                                {"server", server},
                                {"shards", run.shards},
                                {"bytes", bytes}});
      printer.AddRow({spec.name, unit, absl::StrCat(run.first.range_first()),
                      absl::StrCat(run.limit), server, absl::StrCat(run.shards),
                      FormatBytes(bytes)});
    }
  }
  if (context.json()) {
    *context.out << json.dump(2) << "\n";
  } else {
    *context.out << "plan revision " << map.plan_revision() << "\n" << printer.ToText();
  }
  return absl::OkStatus();
}

struct ShowOptions {
  std::string file;  // empty: the live plan
  std::string output;
  bool all = false;
};

absl::Status ShowFile(const ShowOptions& options, const CommandContext& context) {
  HOTBED_ASSIGN_OR_RETURN(const PlannerOutput plan, LoadPlan(options.file));
  const std::string output = PlanOutput(options.output, context);
  if (output == "json") {
    *context.out << WritePlan(plan);
  } else if (output == "svg") {
    *context.out << PlanSvg(plan, nullptr);
  } else {
    *context.out << PlanText(plan, nullptr, PlanRows(options.all));
  }
  return absl::OkStatus();
}

absl::Status ShowPlan(const ShowOptions& options, CommandContext* context) {
  if (!options.file.empty()) return ShowFile(options, *context);
  if (options.output == "svg") {
    return absl::InvalidArgumentError("-o svg needs the FILE of a stored plan");
  }
  if (!options.output.empty()) context->output = options.output;
  return Show(*context);
}

}  // namespace

void AddPlanShowCommand(CLI::App* plan, CommandContext* context) {
  auto options = std::make_shared<ShowOptions>();
  CLI::App* const command = plan->add_subcommand(
      "show",
      "The placement in force, which server holds which range of which table; or that of a "
      "FILE");
  command->add_option("FILE", options->file, "A stored plan, of plan compute -o json; - is stdin");
  AddPlanOutput(command, &options->output, /*live=*/true);
  command->add_flag("--all", options->all, "Text of a FILE: show every server, table and move");
  command->callback([context, options] {
    context->run = [context, options] { return ShowPlan(*options, context); };
  });
}

}  // namespace hotbed
