// The read copies of a served table, as the coordinator knows them.
#ifndef HOTBED_CLI_SERVING_SERVED_COPY_H_
#define HOTBED_CLI_SERVING_SERVED_COPY_H_

#include <cstdint>
#include <string>
#include <vector>

#include "proto/served_part.h"
#include "proto/serving.pb.h"

namespace hotbed {

struct ServedCopy {
  std::string server;
  ServedPart part;
  // ready, loading, ordered (the server has not begun with it) or away (the server is silent).
  std::string state;
  v1::ReplicaReport said;  // by the server, last
  uint64_t age_ms = 0;     // if it is ready: with the time since the server said so
};

// One per server that has a part of the table, in its order. There may be fewer than the table
// wants.
std::vector<ServedCopy> CopiesOf(const v1::ServedTable& table, const v1::ServingMap& map);

// The name of a version, or its number where there is none of it any more.
std::string VersionName(const v1::ServingMap& map, uint64_t number);

}  // namespace hotbed

#endif  // HOTBED_CLI_SERVING_SERVED_COPY_H_
