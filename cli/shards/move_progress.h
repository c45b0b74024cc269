// The progress of moves, computed from the coordinator's list of unfinished moves. Pure functions.
#ifndef HOTBED_CLI_SHARDS_MOVE_PROGRESS_H_
#define HOTBED_CLI_SHARDS_MOVE_PROGRESS_H_

#include <cstdint>
#include <string>

#include "proto/control.pb.h"

namespace hotbed {

// The work when the wait began.
struct MoveWork {
  uint64_t moves = 0;
  uint64_t bytes = 0;  // 0: unknown, or nothing has to be transferred
};

struct MoveProgress {
  uint64_t moves_done = 0;
  uint64_t bytes_done = 0;   // of MoveWork::bytes; a move with unknown bytes counts its share
  uint64_t bytes_per_s = 0;  // of all snapshot transfers in the cluster
  // Bytes of the moves that are transferring now, as their servers report them.
  uint64_t copying_done = 0;
  uint64_t copying_total = 0;
  bool paused = false;
  std::string waits_for;  // shard and reason of the first move that is held up; or empty
};

// The work in the list itself, for a watch that begins in the middle.
MoveWork WorkOf(const v1::ListMovesReply& list);

// `names` gives the shards' tables their names.
MoveProgress ProgressOf(const MoveWork& work, const v1::ListMovesReply& list,
                        const v1::ClusterMap& names);

// The text after the bar: "1.2 GiB of 3 GiB, 210 MiB/s, 5 of 16 moves; orders/3: ..."
std::string MoveNote(const MoveWork& work, const MoveProgress& progress);

// "s0 -> s3", "s0 s1 -> s3 s1": the servers of a shard before and after, the primary first.
// "s0 + s2": a replica is added, for example after a server was lost.
std::string MoveText(const v1::ClusterMap& names, const v1::ShardMove& move);

}  // namespace hotbed

#endif  // HOTBED_CLI_SHARDS_MOVE_PROGRESS_H_
