// Whole features to groups: the orders of CachedEmbedding's LoadBalanceManager (do_fair=False), at
// its notebook's commit and later. Pure; safe from any thread. Each answer has `groups` groups,
// which hold each feature 0 .. rows.size() - 1 exactly once; needs groups >= 1, and all rows
// together below 2^62.
#ifndef HOTBED_PLANNER_SOURCES_GROUP_FEATURES_H_
#define HOTBED_PLANNER_SOURCES_GROUP_FEATURES_H_

#include <cstdint>
#include <vector>

namespace hotbed {

using FeatureGroups = std::vector<std::vector<uint32_t>>;

// The smallest difference between groups (the source's minimize_groupwise_diff): features by rows,
// largest first (equal ones: later feature first). Each group begins with the next of them and is
// filled with the smallest ones left while it is under the mean, of which the last is given back.
// The mean is of what is left, with the source's own book-keeping. Where the source's rule repeats
// or forgets a feature (it does on about a sixth of small random inputs), the first of the groups
// keeps it, and a forgotten one goes to the group with the fewest rows.
FeatureGroups GroupByDifference(const std::vector<uint64_t>& rows, uint32_t groups);

// By rows, ascending (equal ones: earlier feature first), cut into runs of floor(features /
// groups); the last takes the rest. With fewer features than groups, which the source refuses, runs
// of one.
FeatureGroups GroupAscending(const std::vector<uint64_t>& rows, uint32_t groups);

// The same runs of a shuffled order: numpy's, after np.random.seed(seed), for seeds below 2^32.
FeatureGroups GroupShuffled(uint32_t features, uint32_t groups, uint64_t seed);

}  // namespace hotbed

#endif  // HOTBED_PLANNER_SOURCES_GROUP_FEATURES_H_
