// Assigns whole features to groups, in the orders of CachedEmbedding's LoadBalanceManager
// (do_fair=False), at its notebook's commit and later. Pure; safe from any thread. Each result has
// `groups` groups, which hold each feature 0 .. rows.size() - 1 exactly once. Needs groups >= 1,
// and all rows together below 2^62.
#ifndef HOTBED_PLANNER_SOURCES_GROUP_FEATURES_H_
#define HOTBED_PLANNER_SOURCES_GROUP_FEATURES_H_

#include <cstdint>
#include <vector>

namespace hotbed {

using FeatureGroups = std::vector<std::vector<uint32_t>>;

// The smallest difference between groups (the source's minimize_groupwise_diff). Features are
// ordered by rows, largest first (equal ones: later feature first). Each group begins with the next
// feature and takes the smallest features left while it is under the mean, then gives the last one
// back. The mean is that of the features left, with the source's own book-keeping. On about a sixth
// of small random inputs the source's rule repeats or forgets a feature: here the first group keeps
// a repeated one, and a forgotten one goes to the group with the fewest rows.
FeatureGroups GroupByDifference(const std::vector<uint64_t>& rows, uint32_t groups);

// By rows, ascending (equal ones: earlier feature first), cut into runs of floor(features /
// groups); the last takes the rest. With fewer features than groups, which the source refuses, runs
// of one.
FeatureGroups GroupAscending(const std::vector<uint64_t>& rows, uint32_t groups);

// The same runs of a shuffled order: numpy's, after np.random.seed(seed), for seeds below 2^32.
FeatureGroups GroupShuffled(uint32_t features, uint32_t groups, uint64_t seed);

}  // namespace hotbed

#endif  // HOTBED_PLANNER_SOURCES_GROUP_FEATURES_H_
