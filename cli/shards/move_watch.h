// Waits for moves, with a line that says how far they are: percent, bytes, bytes a second, time
// left, moves done, and what the first one waits for that does not go on. Thread-compatible.
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
  uint64_t number = 0;  // of the request whose moves these are; 0: all
  MoveWork work;
  // Asked when no move is listed any more: whether that is the end. Empty: it is.
  std::function<absl::StatusOr<bool>(const v1::ClusterMap& map)> ended;
};

// Returns when the moves have ended. Cancelled at Ctrl-C: they go on, and the message says how to
// watch or stop them. Unavailable: no coordinator answered for a minute (the moves are kept in the
// metadata store; the next one goes on with them).
absl::Status WatchMoves(const CommandContext& context, CoordinatorStub* coordinator,
                        const MoveWatchOptions& options, const Clock* clock);

}  // namespace hotbed

#endif  // HOTBED_CLI_SHARDS_MOVE_WATCH_H_
