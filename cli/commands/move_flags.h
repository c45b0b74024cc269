// Shared by the commands that move shards: flags, transfer limits, and waiting.
#ifndef HOTBED_CLI_COMMANDS_MOVE_FLAGS_H_
#define HOTBED_CLI_COMMANDS_MOVE_FLAGS_H_

#include <string>

#include "absl/status/statusor.h"
#include "cli/base/command.h"
#include "cli/base/coordinator_stub.h"
#include "nlohmann/json.hpp"
#include "proto/control.pb.h"

namespace hotbed {

// The two limits on all snapshot transfers in a cluster. They stay until they are changed.
struct DialFlags {
  std::string bandwidth;     // "200MiB/s", "none"; empty: unchanged
  std::string pull_p99_max;  // "20ms", "none"; empty: unchanged
};

struct MoveFlags {
  DialFlags dial;
  bool wait = true;
  bool dry_run = false;
};

void AddDialFlags(CLI::App* app, DialFlags* flags);
// --dry-run, --wait/--no-wait and the transfer limits.
void AddMoveFlags(CLI::App* app, MoveFlags* flags);

// True if a flag was given. The values were checked when they were parsed.
bool SetDial(const DialFlags& flags, v1::ControlMovesRequest* request);
// Sends the limits to the coordinator if a flag was given.
absl::Status ApplyDial(const DialFlags& flags, CoordinatorStub* coordinator);
std::string DialText(const v1::TransferLimits& limits);
nlohmann::ordered_json DialJson(const v1::TransferLimits& limits);

nlohmann::ordered_json GoalJson(const v1::ClusterMap& map, const v1::ShardGoal& goal);

// Sends the moves and reports their result, waiting for their end unless --no-wait was given. With
// -o json, prints `json` with the result added.
absl::Status CarryOut(CommandContext* context, const MoveFlags& flags, const v1::ClusterMap& map,
                      const v1::MoveShardsRequest& request, CoordinatorStub* coordinator,
                      nlohmann::ordered_json json);

}  // namespace hotbed

#endif  // HOTBED_CLI_COMMANDS_MOVE_FLAGS_H_
