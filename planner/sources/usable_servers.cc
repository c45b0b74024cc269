#include "planner/sources/usable_servers.h"

#include "absl/strings/str_cat.h"

namespace hotbed {

PlanResult<std::vector<uint32_t>> UsableServers(const PlannerInput& input) {
  const std::vector<InputServer>& servers = input.topology.servers;
  std::vector<uint32_t> usable;
  for (uint32_t i = 0; i < servers.size(); ++i) {
    if (!servers[i].draining) usable.push_back(i);
  }
  if (usable.empty()) {
    return PlanError{PlanErrorKind::kStrictConstraints,
                     absl::StrCat("all ", servers.size(),
                                  " servers are draining; add one that is not, or stop draining")};
  }
  return usable;
}

}  // namespace hotbed
