// The cluster as one JSON document, for the console and for people's own programs: GET /api/cluster
// on the coordinator's admin port (docs/console.md lists its fields). Pure.
#ifndef HOTBED_PLANNER_COORDINATOR_CONSOLE_CLUSTER_DOCUMENT_H_
#define HOTBED_PLANNER_COORDINATOR_CONSOLE_CLUSTER_DOCUMENT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "proto/control.pb.h"
#include "proto/serving.pb.h"
#include "proto/types.pb.h"

namespace hotbed {

struct ClusterFacts {
  const v1::ClusterMap& map;
  const v1::ListMovesReply& moves;
  const v1::ListEventsReply& events;
  const v1::ServingMap& served;
  std::string address;  // of the coordinator
  bool serving = false;
  std::string trouble;  // why it does not serve, or empty
  int64_t unix_ms = 0;
  // 0: every shard. Otherwise neighbouring shards of a table are one entry, so that there are about
  // so many entries, and at least one per table.
  uint64_t entries_max = 0;
};

std::string ClusterDocument(const ClusterFacts& facts);

// Words for people and programs. A value that has no word is its number.
std::string WordOf(const std::vector<std::string>& words, int value);
const char* StateOf(const v1::ServerInfo& server);  // live, draining, read-only, down

}  // namespace hotbed

#endif  // HOTBED_PLANNER_COORDINATOR_CONSOLE_CLUSTER_DOCUMENT_H_
