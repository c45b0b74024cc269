// Counts requests that were refused for a number that the coordinator has not given out.
#ifndef HOTBED_SERVER_SHARD_REQUEST_NOT_GIVEN_H_
#define HOTBED_SERVER_SHARD_REQUEST_NOT_GIVEN_H_

#include "common/rare_counter.h"

namespace hotbed {

struct NotGiven {
  static NotGiven& Get() {  // never deleted
    static NotGiven* const counters = new NotGiven;
    return *counters;
  }
  static constexpr char kName[] = "hotbed_server_numbers_not_given_total";
  static constexpr char kHelp[] =
      "Requests refused for a number that the coordinator has not given out, as far as this server "
      "has heard.";
  RareCounter session{kName, kHelp, {{"number", "session"}}};
  RareCounter step{kName, kHelp, {{"number", "step"}}};
  RareCounter server{kName, kHelp, {{"number", "server"}}};
};

}  // namespace hotbed

#endif  // HOTBED_SERVER_SHARD_REQUEST_NOT_GIVEN_H_
