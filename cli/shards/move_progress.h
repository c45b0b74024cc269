// How far moves are, out of what the coordinator says of those that are not done yet. Pure
// functions.
#ifndef HOTBED_CLI_SHARDS_MOVE_PROGRESS_H_
#define HOTBED_CLI_SHARDS_MOVE_PROGRESS_H_

#include <cstdint>
#include <string>

#include "proto/control.pb.h"

namespace hotbed {

// What there was to do when it began.
struct MoveWork {
  uint64_t moves = 0;
  uint64_t bytes = 0;  // 0: not known, or nothing has to be copied
};

struct MoveProgress {
  uint64_t moves_done = 0;
  uint64_t bytes_done = 0;   // of MoveWork::bytes; a move that has not said its bytes has its share
  uint64_t bytes_per_s = 0;  // of all copies in the cluster
  // Of the moves that are copying now, as they say themselves.
  uint64_t copying_done = 0;
  uint64_t copying_total = 0;
  bool paused = false;
  std::string waits_for;  // of the first move that does not go on: shard and reason; or empty
};

// The work that is in the list itself: of a watch that begins in the middle.
MoveWork WorkOf(const v1::ListMovesReply& list);

// `names` gives the shards' tables their names.
MoveProgress ProgressOf(const MoveWork& work, const v1::ListMovesReply& list,
                        const v1::ClusterMap& names);

// What stands behind the bar: "1.2 GiB of 3 GiB, 210 MiB/s, 5 of 16 moves; orders/3: ..."
std::string MoveNote(const MoveWork& work, const MoveProgress& progress);

// "s0 -> s3", "s0 s1 -> s3 s1": who holds a shard, the primary first, and who shall; "s0 + s2": a
// copy is made, as of a server that is lost.
std::string MoveText(const v1::ClusterMap& names, const v1::ShardMove& move);

}  // namespace hotbed

#endif  // HOTBED_CLI_SHARDS_MOVE_PROGRESS_H_
