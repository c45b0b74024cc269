// Whether a serving server may be stopped without harm to lookups.
#ifndef HOTBED_CLI_SERVING_SERVING_HOLD_H_
#define HOTBED_CLI_SERVING_SERVING_HOLD_H_

#include <cstdint>
#include <optional>
#include <string>

#include "proto/serving.pb.h"

namespace hotbed {

struct ServingHold {
  uint64_t missed = 0;    // ready copies here for which no other one of their part can answer yet
  std::string why;        // of the first of them
  uint64_t answered = 0;  // ready copies here for which another one of their part can answer
  uint64_t alone = 0;     // ready copies here that are the only ones of their part
  uint64_t coming = 0;    // copies here of cuts that are to follow, which nobody asks yet
};

// A copy can answer for another one of its part if its server is alive, it is ready, and it holds
// the versions that the other one holds. A copy of a cut that was present until now is missed
// unless another one answers for it: it goes by itself in some seconds. Nothing: no serving server
// of that name has reported, and none is to have a copy.
std::optional<ServingHold> HoldOfServing(const std::string& server, const v1::ServingMap& map);

}  // namespace hotbed

#endif  // HOTBED_CLI_SERVING_SERVING_HOLD_H_
