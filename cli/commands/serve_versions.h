// Versions of served tables, for commands.
#ifndef HOTBED_CLI_COMMANDS_SERVE_VERSIONS_H_
#define HOTBED_CLI_COMMANDS_SERVE_VERSIONS_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cli/base/command.h"
#include "leader/serving_calls.h"
#include "nlohmann/json_fwd.hpp"
#include "proto/serving.pb.h"

namespace hotbed {

// For 'hotbed serve status': each version, and what each server has of those that are kept.
nlohmann::ordered_json VersionsJson(const v1::ServingMap& map);
std::string VersionsText(const v1::ServingMap& map);

// Waits with a progress bar until the version is current: true, or false if another one is to be
// current meanwhile. After Ctrl-C it is Cancelled; servers go on.
absl::StatusOr<bool> AwaitCurrent(const CommandContext& context, const v1::ServedVersion& version,
                                  ServingCalls* calls);

}  // namespace hotbed

#endif  // HOTBED_CLI_COMMANDS_SERVE_VERSIONS_H_
