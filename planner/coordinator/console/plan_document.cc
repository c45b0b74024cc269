#include "planner/coordinator/console/plan_document.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "common/html_escape.h"
#include "common/status_macros.h"
#include "planner/plan_by_cost.h"
#include "planner/report/plan_svg.h"

namespace hotbed {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kMovesMax = 100;  // in the document

struct Plans {
  PlannerInput problem;
  PlannerOutput before;
  PlannerOutput after;
};

absl::StatusOr<Plans> PlansOf(const ClusterView& view) {
  uint64_t shards = 0;
  for (const ClusterTable& table : view.tables) shards += table.shards.size();
  if (shards > kShardsPlannedMax) {
    return absl::FailedPreconditionError(
        absl::StrCat("the cluster has ", shards, " shards, and up to ", kShardsPlannedMax,
                     " are planned here; 'hotbed plan apply --dry-run' plans more"));
  }
  if (shards == 0) return absl::FailedPreconditionError("there is no table yet");
  Plans plans = {.problem = ClusterProblem(view)};
  plans.before = LivePlanOf(plans.problem);
  PlanResult<PlannerOutput> planned = PlanCluster(plans.problem);
  if (!planned.ok()) return ToStatus(planned.error());
  plans.after = std::move(planned.value());
  plans.before.strategy = "the placement in force";  // for the picture's heading
  plans.after.strategy = "the plan by cost";
  return plans;
}

uint64_t BytesOf(const PlacedServer& server) {
  return server.bytes.device + server.bytes.host + server.bytes.spill;
}

Json MsOf(const PlacedServer& server) {
  return server.perf.has_value() ? Json(server.perf->Total()) : Json(nullptr);
}

const char* StateOf(const InputServer& server) {
  return server.unreachable ? "down" : server.draining ? "draining" : "live";
}

Json ServersOf(const Plans& plans) {
  Json servers = Json::array();
  for (size_t s = 0; s < plans.problem.topology.servers.size(); ++s) {
    const PlacedServer& before = plans.before.servers[s];
    const PlacedServer& after = plans.after.servers[s];
    servers.push_back({{"name", after.name},
                       {"state", StateOf(plans.problem.topology.servers[s])},
                       {"bytes_before", BytesOf(before)},
                       {"bytes_after", BytesOf(after)},
                       {"step_ms_before", MsOf(before)},
                       {"step_ms_after", MsOf(after)}});
  }
  return servers;
}

Json MovesOf(const PlannerOutput& plan) {
  Json moves = Json::array();
  for (size_t i = 0; i < std::min(plan.moves.size(), kMovesMax); ++i) {
    const PlannedMove& move = plan.moves[i];
    moves.push_back({{"table", move.table},
                     {"first", move.row_first},
                     {"limit", move.row_limit},
                     {"from", move.from},
                     {"to", move.to},
                     {"bytes", move.bytes},
                     {"reason", move.reason}});
  }
  return moves;
}

std::string Sentence(absl::string_view text) {
  return absl::StrCat(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"560\" height=\"40\" "
      "font-family=\"sans-serif\" font-size=\"12\"><rect width=\"100%\" height=\"100%\" "
      "fill=\"#fff\"/><text x=\"12\" y=\"24\" fill=\"#222\">",
      HtmlEscape(text), "</text></svg>\n");
}

}  // namespace

PlanDocument PlanDocumentOf(const absl::StatusOr<ClusterView>& view, uint64_t plan_revision,
                            int64_t unix_ms) {
  Json document = {{"unix_ms", unix_ms}, {"plan_revision", plan_revision}, {"trouble", ""}};
  PlanDocument made;
  const absl::StatusOr<Plans> plans = view.ok() ? PlansOf(*view) : view.status();
  if (plans.ok()) {
    uint64_t bytes = 0;
    for (const PlannedMove& move : plans->after.moves) bytes += move.bytes;
    document["slowest_step_ms_before"] = plans->before.cost.max_server_ms;
    document["slowest_step_ms_after"] = plans->after.cost.max_server_ms;
    document["move_bytes"] = bytes;
    document["moves_total"] = plans->after.moves.size();
    document["moves"] = MovesOf(plans->after);
    document["servers"] = ServersOf(*plans);
    made.svg = PlanDiffSvg(plans->before, plans->after);
  } else {
    document["trouble"] = std::string(plans.status().message());
    made.svg = Sentence(absl::StrCat("No plan: ", plans.status().message()));
  }
  made.json = document.dump(-1, ' ', false, Json::error_handler_t::replace);
  return made;
}

}  // namespace hotbed
