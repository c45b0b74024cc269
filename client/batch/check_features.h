// Finds the errors of a call that can be found before anything is sent, so that a wrong call
// changes nothing on any shard. Pure functions; errors name feature, table, id and limit.
#ifndef HOTBED_CLIENT_BATCH_CHECK_FEATURES_H_
#define HOTBED_CLIENT_BATCH_CHECK_FEATURES_H_

#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "client/batch/batch_plan.h"
#include "client/batch/resolve_ids.h"
#include "client/map/cluster_map.h"

namespace hotbed {

// Checks that the tables are this client's (`owner`) and still exist, and that the call has no more
// ids than it may have.
absl::Status CheckFeatures(absl::Span<const FeatureIds> features, const ClusterMap& map,
                           const void* owner);

// Resolves the ids (client/batch/resolve_ids.h): `features` then refer to `resolved`, which keeps
// its memory. Adds the ids that bounds mode `zero` skips to `zeroed`. OutOfRange names the first id
// that bounds mode `error` refuses.
absl::Status ResolveFeatures(absl::Span<FeatureIds> features, std::vector<ResolvedIds>* resolved,
                             uint64_t* zeroed);

// Checks the buffers and row types of a pull.
absl::Status CheckPullFeatures(absl::Span<const PullFeature> features, RowType wire_type);
// Checks the buffers of a push; `assign` as in PushOptions.
absl::Status CheckPushFeatures(absl::Span<const PushFeature> features, bool assign);
// The same for a delete, which names tables and ids alone.
absl::Status CheckDeletedFeatures(absl::Span<const PushFeature> features);

}  // namespace hotbed

#endif  // HOTBED_CLIENT_BATCH_CHECK_FEATURES_H_
