#include <CLI/App.hpp>
#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "cli/base/command.h"
#include "cli/base/coordinator_stub.h"
#include "cli/commands/move_flags.h"
#include "cli/shards/live_view.h"
#include "cli/shards/plan_file.h"
#include "cli/shards/shard_cuts.h"
#include "cli/shards/shard_selection.h"
#include "cli/tables/find_table.h"
#include "common/status_macros.h"
#include "config/units.h"
#include "planner/cluster_problem.h"
#include "planner/compute_plan.h"
#include "planner/json/read_input.h"
#include "planner/json/write_plan.h"
#include "planner/plan_on_cluster.h"
#include "planner/report/plan_svg.h"
#include "planner/report/plan_text.h"
#include "planner/report/text_table.h"

namespace hotbed {
namespace {

struct ApplyOptions {
  MoveFlags move;
  std::string file;            // of a plan; empty: none
  std::string input;           // of a problem; empty: none
  std::string move_bytes_max;  // empty: no limit
  std::vector<std::string> drain;
  std::string output;
  bool all = false;
  bool split = false;
  bool merge = false;
};

// The placement in force and the one that is to be.
struct Replan {
  uint64_t revision = 0;
  std::string workload;  // LiveWorkloadText
  ClusterView view;
  PlannerInput problem;
  PlannerOutput before;
  PlannerOutput after;
  // Of a given plan. The requested moves are those of the shards as they are after the cuts, and so
  // is `view`.
  std::optional<PlannerOutput> given;
  std::vector<WantedCut> cuts;
  bool merges_too = false;
  std::vector<WantedMerge> merges;  // after the moves
  std::optional<v1::MoveShardsRequest> request;
};

uint64_t MovedBytes(const PlannerOutput& plan) {
  uint64_t bytes = 0;
  for (const PlannedMove& move : plan.moves) bytes += move.bytes;
  return bytes;
}

// Marks the servers of `names` in both lists, which have the same order.
absl::Status Drain(const std::vector<std::string>& names, PlannerInput* problem) {
  for (const std::string& name : names) {
    std::vector<InputServer>& servers = problem->topology.servers;
    const auto server = std::find_if(servers.begin(), servers.end(),
                                     [&](const InputServer& s) { return s.name == name; });
    if (server == servers.end()) {
      std::vector<std::string> known;
      for (const InputServer& s : servers) known.push_back(s.name);
      const std::string nearest = NearestWord(name, known);
      return absl::NotFoundError(
          absl::StrCat("--drain ", name, ": the cluster has no server of this name",
                       nearest.empty() ? "" : absl::StrCat("; did you mean '", nearest, "'?"),
                       " (see 'hotbed status')"));
    }
    if (server->unreachable) {
      return absl::FailedPreconditionError(
          absl::StrCat("--drain ", name, ": it is down, so nothing can be moved from it"));
    }
    server->draining = true;
  }
  return absl::OkStatus();
}

bool NothingToDo(const Replan& replan) {
  if (!replan.request) return replan.after.moves.empty();
  return replan.request->moves().empty() && replan.cuts.empty() && replan.merges.empty();
}

std::string ServersText(const Replan& replan, size_t rows_max) {
  TextTable table({"server", "bytes", "after", "ms a step", "after", ""}, 24, {5});
  const std::vector<InputServer>& servers = replan.problem.topology.servers;
  const auto bytes = [](const PlacedServer& s) {
    return BytesText(s.bytes.device + s.bytes.host + s.bytes.spill);
  };
  const auto ms = [](const PlacedServer& s) { return s.perf ? MsText(s.perf->Total()) : "-"; };
  for (size_t s = 0; s < std::min(rows_max, servers.size()); ++s) {
    const PlacedServer& before = replan.before.servers[s];
    const PlacedServer& after = replan.after.servers[s];
    table.AddRow({servers[s].name, bytes(before), bytes(after), ms(before), ms(after),
                  servers[s].unreachable ? "down"
                  : servers[s].draining  ? "drained"
                                         : ""});
  }
  return table.ToText();
}

std::string TableOf(const Replan& replan, ShardId shard) {
  for (const ClusterTable& table : replan.view.tables) {
    if (table.spec.id == shard.table) return table.spec.name;
  }
  return shard.ToString();
}

std::string CutsText(const Replan& replan) {
  std::string text;
  for (const WantedCut& cut : replan.cuts) {
    absl::StrAppend(&text, text.empty() ? "\nSplit first:\n" : "", "  ", TableOf(replan, cut.shard),
                    "/", cut.shard.index, " at ", absl::StrJoin(cut.at, ", "), "\n");
  }
  return text;
}

std::string MergesText(const Replan& replan) {
  std::string text;
  for (const WantedMerge& merge : replan.merges) {
    const std::string table = TableOf(replan, merge.lower);
    absl::StrAppend(&text, text.empty() ? "\nMerged at the end:\n" : "", "  ", table, "/",
                    merge.upper.index, " into ", table, "/", merge.lower.index, ", at ", merge.at,
                    "\n");
  }
  return text;
}

void PrintText(const Replan& replan, size_t rows_max, bool dry_run, std::ostream& out) {
  const std::vector<PlannedMove>& moves = replan.after.moves;
  out << (replan.request ? "A plan by strategy " + replan.after.strategy + " for plan revision "
                         : "A re-plan of plan revision ")
      << replan.revision << (dry_run ? "; nothing is changed\n" : "\n") << replan.workload
      << UnreachableText(replan.view) << "\n"
      << ServersText(replan, rows_max)
      << "\nSlowest server: " << MsText(replan.before.cost.max_server_ms) << " ms a step before, "
      << MsText(replan.after.cost.max_server_ms) << " after\n";
  out << CutsText(replan) << MergesText(replan);
  if (replan.request && replan.request->moves().empty()) {
    if (!replan.cuts.empty() || !replan.merges.empty()) return;
    out << "No moves: the placement is as the plan has it\n";
    return;
  }
  if (replan.request && moves.empty()) {
    out << "No moves: " << replan.request->moves_size() << " shards only change their primary\n";
    return;
  }
  if (moves.empty()) {
    out << "No moves: the placement is good enough as it is\n";
    return;
  }
  out << MovesText(moves, ", in this order", rows_max);
}

PlanJson MergesJson(const Replan& replan) {
  PlanJson merges = PlanJson::array();
  for (const WantedMerge& merge : replan.merges) {
    merges.push_back({{"table", TableOf(replan, merge.lower)},
                      {"shard", merge.lower.index},
                      {"with", merge.upper.index},
                      {"at", merge.at}});
  }
  return merges;
}

PlanJson ToJson(const Replan& replan, bool dry_run) {
  PlanJson plan = PlanToJson(replan.after);
  PlanJson cuts = PlanJson::array();
  for (const WantedCut& cut : replan.cuts) {
    cuts.push_back(
        {{"table", TableOf(replan, cut.shard)}, {"shard", cut.shard.index}, {"at", cut.at}});
  }
  PlanJson unreachable = PlanJson::array();
  for (const InputServer& server : replan.problem.topology.servers) {
    if (server.unreachable) unreachable.push_back(server.name);
  }
  return {
      {"dry_run", dry_run},
      {"plan_revision", replan.revision},
      {"unreachable", unreachable},
      {"max_server_ms",
       {{"before", replan.before.cost.max_server_ms}, {"after", replan.after.cost.max_server_ms}}},
      {"move_bytes", MovedBytes(replan.after)},
      {"cuts", cuts},
      {"merges", MergesJson(replan)},
      {"moves", plan["moves"]},
      {"plan", plan}};
}

// Rows x columns.
uint64_t Overlap(const PlannedMove& planned, const v1::ShardRecord& record) {
  const auto common = [](uint64_t a, uint64_t b, uint64_t c, uint64_t d) {
    return std::max(std::max(a, c), std::min(b, d)) - std::max(a, c);
  };
  return common(planned.row_first, planned.row_limit, record.range_first(), record.range_limit()) *
         common(planned.column_first, planned.column_limit, record.column_first(),
                record.column_limit());
}

// The members of a shard, the primary first, and how many planned moves have changed them.
struct MovedShard {
  std::vector<uint64_t> members;
  std::vector<std::pair<uint64_t, uint64_t>> moves;  // from, to
};

bool Has(const std::vector<uint64_t>& servers, uint64_t server) {
  return std::find(servers.begin(), servers.end(), server) != servers.end();
}

MovedShard Unmoved(const v1::ShardRecord& record) {
  MovedShard shard{{record.primary().server()}, {}};
  for (const v1::Member& member : record.members()) {
    if (!Has(shard.members, member.server())) shard.members.push_back(member.server());
  }
  return shard;
}

// One move of the shard, or all of its members where several replicas move.
void AddMove(uint64_t shard, const MovedShard& moved, v1::MoveShardsRequest* request) {
  v1::MoveShardsRequest::Move& move = *request->add_moves();
  move.set_shard(shard);
  if (moved.moves.size() == 1) {
    move.set_from(moved.moves[0].first);
    move.set_to(moved.moves[0].second);
  } else {
    move.mutable_servers()->Add(moved.members.begin(), moved.members.end());
  }
}

// The shards whose whole range is planned to go from one server to another. The planner may cut a
// table finer than it is; a shard stays whole if only a part of it is planned to leave.
absl::StatusOr<v1::MoveShardsRequest> ToRequest(const Replan& replan, const v1::ClusterMap& map) {
  // The problem's servers are in the view's order and may have longer names.
  std::map<std::string, uint64_t> servers;
  for (size_t s = 0; s < replan.view.servers.size(); ++s) {
    servers[replan.problem.topology.servers[s].name] = replan.view.servers[s].id;
  }
  std::map<std::string, std::vector<v1::ShardRecord>> shards;
  using Key = std::tuple<uint64_t, uint64_t, uint64_t>;  // shard, from, to
  std::map<Key, uint64_t> planned_cells;
  std::map<uint64_t, MovedShard> moved;
  std::vector<uint64_t> order;  // of the shards that move
  v1::MoveShardsRequest request;
  request.set_reason("plan apply");
  for (const PlannedMove& planned : replan.after.moves) {
    HOTBED_ASSIGN_OR_RETURN(const TableSpec spec, FindTable(map, planned.table));
    if (!shards.contains(planned.table)) shards[planned.table] = ShardsOf(map, spec.id);
    const uint64_t from = servers[planned.from], to = servers[planned.to];
    for (const v1::ShardRecord& record : shards[planned.table]) {
      const uint64_t cells = Overlap(planned, record);
      if (cells == 0) continue;
      MovedShard& shard = moved.try_emplace(record.shard(), Unmoved(record)).first->second;
      if (!Has(shard.members, from) || Has(shard.members, to)) continue;
      uint64_t& so_far = planned_cells[{record.shard(), from, to}];
      so_far += cells;
      if (so_far < (record.range_limit() - record.range_first()) *
                       (record.column_limit() - record.column_first())) {
        continue;
      }
      std::replace(shard.members.begin(), shard.members.end(), from, to);
      if (shard.moves.empty()) order.push_back(record.shard());
      shard.moves.push_back({from, to});
    }
  }
  for (const uint64_t shard : order) AddMove(shard, moved[shard], &request);
  return request;
}

// The moves of the plan, as one request.
absl::Status Execute(const ApplyOptions& options, const Replan& replan, const v1::ClusterMap& map,
                     CoordinatorStub* coordinator, CommandContext* context) {
  v1::MoveShardsRequest request;
  if (replan.request) {
    request = *replan.request;
  } else {
    HOTBED_ASSIGN_OR_RETURN(request, ToRequest(replan, map));
  }
  if (request.moves().empty()) {
    return absl::FailedPreconditionError(
        "the plan moves parts of shards only, and a shard moves as a whole: nothing was changed "
        "('hotbed shard move' moves the shards that you name)");
  }
  return CarryOut(
      context, options.move, map, request, coordinator,
      {{"plan_revision", replan.revision},
       {"max_server_ms",
        {{"before", replan.before.cost.max_server_ms}, {"after", replan.after.cost.max_server_ms}}},
       {"move_bytes", MovedBytes(replan.after)},
       {"merges", MergesJson(replan)}});
}

absl::Status CheckOptions(const ApplyOptions& options, const std::string& output) {
  if (!options.drain.empty() && !(options.file.empty() && options.input.empty())) {
    return absl::InvalidArgumentError(
        "--drain plans the live cluster again, and goes with neither a plan in a file nor --input; "
        "nothing was changed");
  }
  if (!options.file.empty() && !options.move_bytes_max.empty()) {
    return absl::InvalidArgumentError(
        "--move-bytes-max is for planning, and the plan in the file is made; nothing was changed");
  }
  if (options.split && !(options.file.empty() && options.input.empty())) {
    return absl::InvalidArgumentError(
        "--split is for a new plan by cost; one of FILE or --input splits shards where it has to. "
        "Nothing was changed");
  }
  if (options.merge && options.file.empty() && options.input.empty() && !options.split) {
    return absl::InvalidArgumentError(
        "--merge goes with a plan in a FILE, with --input or with --split; nothing was changed");
  }
  if (options.merge && !options.move.wait) {
    return absl::InvalidArgumentError(
        "--merge comes after the moves and waits for them, so it does not go with --no-wait; "
        "nothing was changed");
  }
  if (options.move.dry_run) return absl::OkStatus();
  if (!options.drain.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("--drain is for --dry-run, and nothing was changed: 'hotbed shard drain ",
                     options.drain[0], "' empties a server and keeps it empty"));
  }
  if (output == "svg") {
    return absl::InvalidArgumentError("-o svg is for --dry-run; nothing was changed");
  }
  return absl::OkStatus();
}

// A plan, or why there is none.
using Planned = absl::StatusOr<PlanResult<PlannerOutput>>;

// Refuses a problem whose table has another size than the cluster's. Of a hashed table, rows are a
// guess.
absl::Status CheckSizes(const PlannerInput& input, const ClusterView& view) {
  for (const InputTable& table : input.tables) {
    for (const ClusterTable& placed : view.tables) {
      const TableSpec& spec = placed.spec;
      if (spec.name != table.name) continue;
      if (spec.dim == table.dim && spec.hashed == table.hashed &&
          (spec.hashed || spec.rows == table.rows)) {
        continue;
      }
      const auto text = [](bool hashed, uint64_t rows, uint32_t dim) {
        return hashed ? absl::StrCat("hashed x ", dim, " columns")
                      : absl::StrCat(rows, " rows x ", dim, " columns");
      };
      return absl::InvalidArgumentError(
          absl::StrCat("table \"", table.name, "\" is ", text(table.hashed, table.rows, table.dim),
                       " in --input and ", text(spec.hashed, spec.rows, spec.dim),
                       " in the cluster; give it the size that it has ('hotbed table describe ",
                       table.name, "'), nothing was changed"));
    }
  }
  return absl::OkStatus();
}

// The plan for the problem in --input. By cost it moves as little as it can from the placement in
// force; the other strategies know no placement in force.
Planned PlanOfInput(const ApplyOptions& options, const ClusterView& view) {
  HOTBED_ASSIGN_OR_RETURN(const std::string text, ReadPlanFile(options.input));
  PlanResult<PlannerInput> read = ReadPlannerInput(text);
  if (!read.ok()) return PlanResult<PlannerOutput>(read.error());
  PlannerInput input = std::move(read.value());
  HOTBED_RETURN_IF_ERROR(CheckSizes(input, view));
  if (!options.move_bytes_max.empty()) {
    HOTBED_ASSIGN_OR_RETURN(input.options.move_bytes_max, ParseBytes(options.move_bytes_max));
  }
  if (input.options.strategy != PlannerStrategy::kCost) {
    input.current.reset();
  } else if (!input.current.has_value()) {
    std::set<std::string> names;
    for (const InputTable& table : input.tables) names.insert(table.name);
    input.current = LivePlan(view);
    std::erase_if(input.current->tables,
                  [&](const PlacedTable& table) { return !names.contains(table.name); });
  }
  return ComputePlan(input);
}

// Plans the live cluster again.
Planned PlanAgain(const ApplyOptions& options, Replan* replan) {
  HOTBED_RETURN_IF_ERROR(Drain(options.drain, &replan->problem));
  if (!options.move_bytes_max.empty()) {
    HOTBED_ASSIGN_OR_RETURN(replan->problem.options.move_bytes_max,
                            ParseBytes(options.move_bytes_max));
  }
  return ComputePlan(replan->problem);
}

// The shards of the cluster as `plan` has them, and what that changes.
absl::Status TakePlan(const PlannerOutput& plan, Replan* replan) {
  replan->given = plan;
  HOTBED_ASSIGN_OR_RETURN(replan->cuts, CutsByPlan(replan->view, plan));
  replan->view = AfterCuts(std::move(replan->view), replan->cuts);
  HOTBED_ASSIGN_OR_RETURN(const std::vector<WantedShard> wanted,
                          WantedByPlan(replan->view, plan, "plan apply"));
  v1::MoveShardsRequest& request = replan->request.emplace();
  request.set_reason("plan apply");
  for (const WantedShard& goal : wanted) {
    v1::MoveShardsRequest::Move& move = *request.add_moves();
    move.set_shard(goal.shard.packed());
    for (const ServerId server : goal.servers) move.add_servers(server);
  }
  const ClusterView after = After(replan->view, wanted);
  if (replan->merges_too) {
    HOTBED_ASSIGN_OR_RETURN(replan->merges, MergesByPlan(after, plan));
  }
  replan->after = LivePlanOf(ClusterProblem(after));
  replan->after.strategy = plan.strategy.empty() ? "unknown" : plan.strategy;
  replan->after.moves = MovesOf(replan->view, wanted);
  return absl::OkStatus();
}

// Those of shards that are as they will be then.
absl::Status AskMergesDryly(const Replan& replan, CoordinatorStub* coordinator) {
  std::set<ShardId> changed;
  for (const WantedCut& cut : replan.cuts) changed.insert(cut.shard);
  for (const v1::MoveShardsRequest::Move& move : replan.request->moves()) {
    changed.insert(ShardId::FromPacked(move.shard()));
  }
  const auto as_now = [&](ShardId shard) {
    for (const WantedCut& cut : replan.cuts) {
      if (cut.shard.table == shard.table) return false;  // it may be a new shard
    }
    return !changed.contains(shard);
  };
  for (const WantedMerge& merge : replan.merges) {
    if (as_now(merge.lower) && as_now(merge.upper)) {
      v1::CutShardRequest request;
      request.set_shard(merge.lower.packed());
      request.set_merge_with(merge.upper.packed());
      request.set_dry_run(true);
      HOTBED_RETURN_IF_ERROR(coordinator->CutShard(request).status());
    }
    changed.insert({merge.lower, merge.upper});
  }
  return absl::OkStatus();
}

// Asks the coordinator, which knows whether the shards may be cut and the servers may take them.
// Those that come of cuts are not there to be asked for yet.
absl::Status AskDryly(const Replan& replan, const v1::ClusterMap& map,
                      CoordinatorStub* coordinator) {
  for (const WantedCut& cut : replan.cuts) {
    v1::CutShardRequest request;
    request.set_shard(cut.shard.packed());
    request.set_at(cut.at.front());
    request.set_dry_run(true);
    HOTBED_RETURN_IF_ERROR(coordinator->CutShard(request).status());
  }
  std::set<uint64_t> known;
  for (const v1::ShardRecord& record : map.shards()) known.insert(record.shard());
  v1::MoveShardsRequest request;
  request.set_reason(replan.request->reason());
  request.set_dry_run(true);
  for (const v1::MoveShardsRequest::Move& move : replan.request->moves()) {
    if (known.contains(move.shard())) *request.add_moves() = move;
  }
  if (!request.moves().empty()) {
    HOTBED_RETURN_IF_ERROR(coordinator->MoveShards(request).status());
  }
  return AskMergesDryly(replan, coordinator);
}

// Cuts the shards of which the given plan has parts on different servers. Then it is read again
// what the plan changes, of the shards as they are by now.
absl::Status CutFirst(Replan* replan, v1::ClusterMap* map, absl::Duration patience,
                      CoordinatorStub* coordinator) {
  HOTBED_RETURN_IF_ERROR(CarryOutCuts(replan->cuts, "plan apply", patience, coordinator));
  HOTBED_ASSIGN_OR_RETURN(*map, coordinator->GetClusterMap(/*rates=*/true));
  HOTBED_ASSIGN_OR_RETURN(replan->view, ViewOfMap(*map));
  const PlannerOutput given = *std::move(replan->given);
  HOTBED_RETURN_IF_ERROR(TakePlan(given, replan));
  if (replan->cuts.empty()) return absl::OkStatus();
  return absl::AbortedError("shards were cut otherwise meanwhile: apply the plan again");
}

void Report(const ApplyOptions& options, const Replan& replan, const std::string& output,
            const CommandContext& context) {
  const bool dry_run = options.move.dry_run;
  if (output == "svg") {
    *context.out << PlanDiffSvg(replan.before, replan.after);
  } else if (output == "text") {
    PrintText(replan, PlanRows(options.all), dry_run, *context.out);
  } else if (dry_run || NothingToDo(replan)) {
    *context.out << PrettyJson(ToJson(replan, dry_run));
  }
}

absl::Status Apply(const ApplyOptions& options, CommandContext* context) {
  const std::string output = PlanOutput(options.output, *context);
  HOTBED_RETURN_IF_ERROR(CheckOptions(options, output));
  if (output == "json") context->output = "json";
  CoordinatorStub coordinator(context->coordinator, context->timeout_duration());
  HOTBED_ASSIGN_OR_RETURN(v1::ClusterMap map, coordinator.GetClusterMap(/*rates=*/true));
  Replan replan;
  replan.revision = map.plan_revision();
  replan.workload = LiveWorkloadText(map);
  HOTBED_ASSIGN_OR_RETURN(replan.view, ViewOfMap(map));
  if (replan.view.tables.empty()) {
    return absl::FailedPreconditionError("the cluster has no tables: there is nothing to plan");
  }
  replan.problem = ClusterProblem(replan.view);
  replan.merges_too = options.merge;
  if (!options.file.empty()) {
    HOTBED_ASSIGN_OR_RETURN(const PlannerOutput plan, LoadPlan(options.file));
    HOTBED_RETURN_IF_ERROR(TakePlan(plan, &replan));
  } else {
    HOTBED_ASSIGN_OR_RETURN(
        PlanResult<PlannerOutput> planned,
        options.input.empty() ? PlanAgain(options, &replan) : PlanOfInput(options, replan.view));
    if (!planned.ok()) return RefusePlan(planned.error(), output, context);
    if (options.input.empty() && !options.split && !options.merge) {
      replan.after = std::move(planned.value());
    } else {
      HOTBED_RETURN_IF_ERROR(TakePlan(planned.value(), &replan));
    }
  }
  replan.before = LivePlanOf(replan.problem);
  const bool dry_run = options.move.dry_run;
  if (dry_run && replan.request) {
    HOTBED_RETURN_IF_ERROR(AskDryly(replan, map, &coordinator));
  }
  Report(options, replan, output, *context);
  if (dry_run || NothingToDo(replan)) return absl::OkStatus();
  const absl::Duration patience = context->timeout_duration();
  if (!replan.cuts.empty()) HOTBED_RETURN_IF_ERROR(CutFirst(&replan, &map, patience, &coordinator));
  const bool moves = !replan.request || !replan.request->moves().empty();
  if (moves) HOTBED_RETURN_IF_ERROR(Execute(options, replan, map, &coordinator, context));
  HOTBED_RETURN_IF_ERROR(CarryOutMerges(replan.merges, "plan apply", patience, &coordinator));
  if (!moves && output == "json") *context->out << PrettyJson(ToJson(replan, dry_run));
  return absl::OkStatus();
}

}  // namespace

void AddPlanApplyCommand(CLI::App* plan, CommandContext* context) {
  auto options = std::make_shared<ApplyOptions>();
  CLI::App* const command =
      plan->add_subcommand("apply",
                           "Move the shards of a live cluster to where a plan has them: the plan "
                           "in a FILE, a plan for the problem in --input, or a new plan by cost");
  CLI::Option* const file =
      command->add_option("FILE", options->file, "A plan of plan compute -o json; - is stdin");
  command
      ->add_option("--input", options->input,
                   "A problem as JSON, for any strategy (docs/planner.md); - is stdin")
      ->excludes(file);
  AddMoveFlags(command, &options->move);
  command
      ->add_option("--move-bytes-max", options->move_bytes_max,
                   "Move at most this many bytes, such as 2GiB")
      ->check(
          [](const std::string& text) { return std::string(ParseBytes(text).status().message()); });
  command->add_option("--drain", options->drain,
                      "With --dry-run: plan as if this server were drained; may be repeated");
  command->add_flag("--split", options->split,
                    "A new plan by cost may split shards: where it has parts of one on different "
                    "servers, instead of leaving such a shard where it is");
  command->add_flag("--merge", options->merge,
                    "Merge neighbours at the end, down to the number of shards that the tables "
                    "would have if they were created by the plan");
  AddPlanOutput(command, &options->output);
  command->add_flag("--all", options->all, "Text: show every server and move");
  context->Runs(command, [context, options] { return Apply(*options, context); });
}

}  // namespace hotbed
