// What the commands share that move shards: their flags, the dial, and the wait.
#ifndef HOTBED_CLI_COMMANDS_MOVE_FLAGS_H_
#define HOTBED_CLI_COMMANDS_MOVE_FLAGS_H_

#include <string>

#include "absl/status/statusor.h"
#include "cli/base/command.h"
#include "cli/base/coordinator_stub.h"
#include "nlohmann/json.hpp"
#include "proto/control.pb.h"

namespace hotbed {

// The two limits of all copies in a cluster. They stay until they are changed.
struct DialFlags {
  std::string bandwidth;     // "200MiB/s", "none"; empty: as it is
  std::string pull_p99_max;  // "20ms", "none"; empty: as it is
};

struct MoveFlags {
  DialFlags dial;
  bool wait = true;
  bool dry_run = false;
};

void AddDialFlags(CLI::App* app, DialFlags* flags);
// --dry-run, --wait/--no-wait and the dial.
void AddMoveFlags(CLI::App* app, MoveFlags* flags);

// True when a flag says something. The values were checked when they were parsed.
bool SetDial(const DialFlags& flags, v1::ControlMovesRequest* request);
// Tells the coordinator, if there is anything to tell.
absl::Status ApplyDial(const DialFlags& flags, CoordinatorStub* coordinator);
std::string DialText(const v1::CopyLimits& limits);
nlohmann::ordered_json DialJson(const v1::CopyLimits& limits);

nlohmann::ordered_json GoalJson(const v1::ClusterMap& map, const v1::ShardGoal& goal);

// Sends the moves and says what came of it, up to the end unless flags say not to wait. `json` is
// printed with what is added, or nothing of it under -o table.
absl::Status CarryOut(CommandContext* context, const MoveFlags& flags, const v1::ClusterMap& map,
                      const v1::MoveShardsRequest& request, CoordinatorStub* coordinator,
                      nlohmann::ordered_json json);

}  // namespace hotbed

#endif  // HOTBED_CLI_COMMANDS_MOVE_FLAGS_H_
