// A server of a map by what people call it. Pure functions.
#ifndef HOTBED_CLI_SHARDS_FIND_SERVER_H_
#define HOTBED_CLI_SHARDS_FIND_SERVER_H_

#include <string>

#include "absl/status/statusor.h"
#include "proto/control.pb.h"

namespace hotbed {

// By name (of two with one name the live one), or by number. NotFound names it and the nearest
// known name, or where names are to be seen.
absl::StatusOr<v1::ServerInfo> FindServer(const v1::ClusterMap& map, const std::string& word);

}  // namespace hotbed

#endif  // HOTBED_CLI_SHARDS_FIND_SERVER_H_
