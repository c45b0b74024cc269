// The shards that the words of a command line mean:
//
//   orders/7   orders/0-15   orders/all   all
//
// A table's name may hold slashes: what stands behind the last one is the shards. Pure functions.
#ifndef HOTBED_CLI_SHARDS_SHARD_SELECTION_H_
#define HOTBED_CLI_SHARDS_SHARD_SELECTION_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/control.pb.h"

namespace hotbed {

struct SelectedShard {
  v1::ShardRecord record;
  bool by_name = false;  // a word means this one alone, so it was meant in particular
};

// Each shard once, by table and index. InvalidArgument: a word of no such form, a range that runs
// backwards. NotFound: no such table (with the nearest name), an index that the table does not have
// (with those it has).
absl::StatusOr<std::vector<SelectedShard>> SelectShards(const v1::ClusterMap& map,
                                                        const std::vector<std::string>& words);

// What is asked of the coordinator.
struct WantedMoves {
  std::vector<v1::MoveShardsRequest::Move> moves;
  uint64_t passed_over = 0;  // of ranges: there already, or without a copy on `from`
};

// `from` 0: the primaries move. A shard that was named alone is asked for whatever is known of it,
// so that the coordinator says why it cannot be.
WantedMoves MovesTo(const std::vector<SelectedShard>& shards, uint64_t from, uint64_t to);

bool HoldsCopy(const v1::ShardRecord& record, uint64_t server);  // as primary or other member

}  // namespace hotbed

#endif  // HOTBED_CLI_SHARDS_SHARD_SELECTION_H_
