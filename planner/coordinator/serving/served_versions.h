// Versions of served tables (docs/serving.md): which of them serving servers have. Pure.
#ifndef HOTBED_PLANNER_COORDINATOR_SERVING_SERVED_VERSIONS_H_
#define HOTBED_PLANNER_COORDINATOR_SERVING_SERVED_VERSIONS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/status/status.h"
#include "proto/serving.pb.h"

namespace hotbed {

using ServedVersions = absl::btree_map<uint64_t, v1::ServedVersion>;  // by number

// Null: there is none of that name.
const v1::ServedVersion* FindVersion(const ServedVersions& versions, const std::string& name);
// NotFound names the versions that there are.
absl::Status NoSuchVersion(const ServedVersions& versions, const std::string& name);
// InvalidArgument: no name of a version, which is a folder's name and a word.
absl::Status CheckVersionName(const std::string& name);

// The numbers, ascending, of the versions that servers are to have: the current one and the one
// before it, the one that is to be current, and the newest.
std::vector<uint64_t> VersionsToKeep(const ServedVersions& versions,
                                     const v1::VersionChoice& choice);
// Adds those that have a table of the orders.
void AddVersions(const ServedVersions& versions, const v1::VersionChoice& choice,
                 v1::ServingOrders* orders);
void AddVersions(const ServedVersions& versions, const v1::VersionChoice& choice,
                 v1::ServingMap* map);

}  // namespace hotbed

#endif  // HOTBED_PLANNER_COORDINATOR_SERVING_SERVED_VERSIONS_H_
