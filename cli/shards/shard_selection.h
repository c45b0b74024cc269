// The shards that the words of a command line name:
//
//   orders/7   orders/0-15   orders/all   all
//
// The name of a table may contain slashes: the part after the last slash names the shards. Pure
// functions.
#ifndef HOTBED_CLI_SHARDS_SHARD_SELECTION_H_
#define HOTBED_CLI_SHARDS_SHARD_SELECTION_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/control.pb.h"

namespace hotbed {

struct SelectedShard {
  v1::ShardRecord record;
  bool by_name = false;  // a word names exactly this shard
};

// Each shard once, by table and index. InvalidArgument: a malformed word, or a range that runs
// backwards. NotFound: no such table (with the nearest name), or no such index (with the range of
// indexes).
absl::StatusOr<std::vector<SelectedShard>> SelectShards(const v1::ClusterMap& map,
                                                        const std::vector<std::string>& words);

// The request to the coordinator.
struct WantedMoves {
  std::vector<v1::MoveShardsRequest::Move> moves;
  uint64_t passed_over = 0;  // of ranges: on the target already, or without a replica on `from`
};

// `from` 0: the primaries move. A shard that was named by itself is always requested, so that the
// coordinator says why it cannot move.
WantedMoves MovesTo(const std::vector<SelectedShard>& shards, uint64_t from, uint64_t to);

bool HoldsReplica(const v1::ShardRecord& record, uint64_t server);  // as primary or other member

}  // namespace hotbed

#endif  // HOTBED_CLI_SHARDS_SHARD_SELECTION_H_
