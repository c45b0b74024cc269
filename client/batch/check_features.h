// What can be seen to be wrong with a call before anything is sent (DECISIONS S3, W5). Pure
// functions; errors name feature, table, id and limit.
#ifndef HOTBED_CLIENT_BATCH_CHECK_FEATURES_H_
#define HOTBED_CLIENT_BATCH_CHECK_FEATURES_H_

#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "client/batch/batch_plan.h"
#include "client/batch/resolve_ids.h"
#include "client/map/cluster_map.h"

namespace hotbed {

// Tables of this client (`owner`) that still exist, no more ids than a call may have.
absl::Status CheckFeatures(absl::Span<const FeatureIds> features, const ClusterMap& map,
                           const void* owner);

// What the tables make of the ids (client/batch/resolve_ids.h): `features` then name `resolved`, which
// keeps its memory. Adds up the ids that bounds mode `zero` made nothing. OutOfRange names the
// first id that bounds mode `error` refuses.
absl::Status ResolveFeatures(absl::Span<FeatureIds> features, std::vector<ResolvedIds>* resolved,
                             uint64_t* zeroed);

// Buffers and row types of a pull.
absl::Status CheckPullFeatures(absl::Span<const PullFeature> features, RowType wire_type);
// `assign`: as PushOptions has it.
absl::Status CheckPushFeatures(absl::Span<const PushFeature> features, bool assign);

}  // namespace hotbed

#endif  // HOTBED_CLIENT_BATCH_CHECK_FEATURES_H_
