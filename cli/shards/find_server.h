// Finds a server of a map by the word that a person typed. Pure functions.
#ifndef HOTBED_CLI_SHARDS_FIND_SERVER_H_
#define HOTBED_CLI_SHARDS_FIND_SERVER_H_

#include <string>

#include "absl/status/statusor.h"
#include "proto/control.pb.h"

namespace hotbed {

// By name or by number; of two servers with one name, the live one. NotFound names the word and the
// nearest known name, or the command that lists names.
absl::StatusOr<v1::ServerInfo> FindServer(const v1::ClusterMap& map, const std::string& word);

}  // namespace hotbed

#endif  // HOTBED_CLI_SHARDS_FIND_SERVER_H_
