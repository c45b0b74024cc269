// What can be seen to be wrong with a call before anything is sent (DECISIONS S3, W5). Pure
// functions; errors name feature, table, id and limit.
#ifndef HOTBED_CLIENT_CHECK_FEATURES_H_
#define HOTBED_CLIENT_CHECK_FEATURES_H_

#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "client/batch_plan.h"
#include "client/cluster_map.h"

namespace hotbed {

// Tables of this client (`owner`) that still exist, ids inside bounded tables, no more ids than a
// call may have.
absl::Status CheckFeatures(absl::Span<const FeatureIds> features, const ClusterMap& map,
                           const void* owner);

// Buffers and row types of a pull.
absl::Status CheckPullFeatures(absl::Span<const PullFeature> features, RowType wire_type);
absl::Status CheckPushFeatures(absl::Span<const PushFeature> features);

}  // namespace hotbed

#endif  // HOTBED_CLIENT_CHECK_FEATURES_H_
