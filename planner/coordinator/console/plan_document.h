// The placement in force, and the one that the planner would choose now: what `hotbed plan apply
// --dry-run` shows, as a document and as a picture (docs/console.md). Nothing is changed. Pure.
#ifndef HOTBED_PLANNER_COORDINATOR_CONSOLE_PLAN_DOCUMENT_H_
#define HOTBED_PLANNER_COORDINATOR_CONSOLE_PLAN_DOCUMENT_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "planner/cluster_problem.h"

namespace hotbed {

struct PlanDocument {
  std::string json;
  std::string svg;  // both placements, server by server; without a plan, why there is none
};

// Planning takes a while; of clusters with more shards, only `hotbed plan apply --dry-run` does it.
inline constexpr uint64_t kShardsPlannedMax = 200'000;

// `view`: an error is the trouble that the document tells.
PlanDocument PlanDocumentOf(const absl::StatusOr<ClusterView>& view, uint64_t plan_revision,
                            int64_t unix_ms);

}  // namespace hotbed

#endif  // HOTBED_PLANNER_COORDINATOR_CONSOLE_PLAN_DOCUMENT_H_
