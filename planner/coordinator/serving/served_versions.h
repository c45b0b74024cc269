// Versions of served tables (docs/serving.md): which of them serving servers have. Pure.
#ifndef HOTBED_PLANNER_COORDINATOR_SERVING_SERVED_VERSIONS_H_
#define HOTBED_PLANNER_COORDINATOR_SERVING_SERVED_VERSIONS_H_

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/status/status.h"
#include "proto/served_models.h"
#include "proto/serving.pb.h"

namespace hotbed {

using ServedVersions = absl::btree_map<uint64_t, v1::ServedVersion>;     // by number
using VersionChoices = absl::btree_map<std::string, v1::VersionChoice>;  // by model

// Null: there is none of that name.
const v1::ServedVersion* FindVersion(const ServedVersions& versions, const std::string& name);
// NotFound names the versions that there are.
absl::Status NoSuchVersion(const ServedVersions& versions, const std::string& name);
// InvalidArgument: no name of a version, which is a folder's name and a word; or of a model.
absl::Status CheckVersionName(const std::string& name);
absl::Status CheckModelName(const std::string& name);

// The models that have versions, ascending.
std::vector<std::string> ModelsOf(const ServedVersions& versions);
// The version that is current of `model`. Null: none is.
const v1::ServedVersion* CurrentOf(const ServedVersions& versions, const VersionChoices& choices,
                                   const std::string& model);
// The numbers of the versions that are current, of all models.
std::set<uint64_t> CurrentVersions(const VersionChoices& choices);
// Versions of other models have none of the tables of `version` any more.
void TakeTablesFromOthers(const v1::ServedVersion& version, ServedVersions* versions);
// Choices name no version that does not exist, and a model without versions has no choice, but for
// the default model, whose choice has the highest number.
void DropChoices(const ServedVersions& versions, VersionChoices* choices);

// The numbers, ascending, of the versions that servers are to have: of each model the current one
// and the one before it, the one that is to be current, and the newest.
std::vector<uint64_t> VersionsToKeep(const ServedVersions& versions, const VersionChoices& choices);
// Adds those that have a table of the orders.
void AddVersions(const ServedVersions& versions, const VersionChoices& choices,
                 v1::ServingOrders* orders);
void AddVersions(const ServedVersions& versions, const VersionChoices& choices,
                 v1::ServingMap* map);

}  // namespace hotbed

#endif  // HOTBED_PLANNER_COORDINATOR_SERVING_SERVED_VERSIONS_H_
