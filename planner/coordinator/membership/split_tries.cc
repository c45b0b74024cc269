#include "planner/coordinator/membership/split_tries.h"

#include <algorithm>
#include <utility>

#include "common/tables/shard_record.h"

namespace hotbed {

void SplitTries::Choose(const ClusterState& state, int64_t now_ns, size_t count,
                        std::vector<v1::CutShardRequest>* large) {
  std::map<uint64_t, Try> tries;
  std::vector<v1::CutShardRequest> chosen;
  for (v1::CutShardRequest& request : *large) {
    const ShardRecord* const record = state.FindVisibleShard(request.shard());
    if (record == nullptr) continue;
    Try known = tries_[request.shard()];
    if (known.range_limit != record->range.limit) known = {record->range.limit, 0, 0};
    if (now_ns >= known.not_before_ns && chosen.size() < count) {
      known.pause_ns =
          known.pause_ns == 0 ? kFirstPauseNs : std::min(2 * known.pause_ns, kPauseMaxNs);
      known.not_before_ns = now_ns + known.pause_ns;
      chosen.push_back(std::move(request));
    }
    tries[record->shard.packed()] = known;
  }
  tries_ = std::move(tries);
  *large = std::move(chosen);
}

}  // namespace hotbed
