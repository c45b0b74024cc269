// Waits for moves and shows one line of progress: percent, bytes, bytes per second, time left,
// moves done, and the reason if one is held up. Thread-compatible.
#ifndef HOTBED_CLI_SHARDS_MOVE_WATCH_H_
#define HOTBED_CLI_SHARDS_MOVE_WATCH_H_

#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/statusor.h"
#include "cli/base/command.h"
#include "cli/base/coordinator_stub.h"
#include "cli/shards/move_progress.h"
#include "common/clock.h"

namespace hotbed {

struct MoveWatchOptions {
  std::string label;    // before the bar
  uint64_t number = 0;  // of the request whose moves are watched; 0: all
  MoveWork work;
  // Called when no move is listed any more; true ends the wait. Empty: the wait ends.
  std::function<absl::StatusOr<bool>(const v1::ClusterMap& map)> ended;
};

// Returns when the moves have ended. Cancelled: Ctrl-C; the moves continue, and the message names
// the commands that watch or stop them. Unavailable: no coordinator answered for a minute (the
// moves are kept in the metadata store, and the next coordinator continues them).
absl::Status WatchMoves(const CommandContext& context, CoordinatorStub* coordinator,
                        const MoveWatchOptions& options, const Clock* clock);

}  // namespace hotbed

#endif  // HOTBED_CLI_SHARDS_MOVE_WATCH_H_
