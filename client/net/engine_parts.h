// The parts of a client by which it sends requests and follows the cluster.
#ifndef HOTBED_CLIENT_NET_ENGINE_PARTS_H_
#define HOTBED_CLIENT_NET_ENGINE_PARTS_H_

#include <cstdint>

#include "client/map/cluster_map.h"
#include "client/map/map_follower.h"
#include "client/net/client_counters.h"
#include "client/net/message_limits.h"
#include "client/net/retry.h"
#include "client/net/timer.h"
#include "client/net/transport.h"
#include "common/clock.h"
#include "hotbed/client.h"

namespace hotbed {

// All outlive the engines that use them. The transport may call back until it is destroyed, so it
// goes before the engines do, and after their Shutdown.
struct EngineParts {
  const ClientOptions* options;
  const void* owner;  // the client that tables must belong to
  const Clock* clock;
  ClusterMapHolder* map;
  MapFollower* follower;
  Transport* transport;
  Timer* timer;
  RetryPolicy* retry;
  ClientCounters* counters;

  uint64_t SegmentBytesMaxOf(const ClusterMap& cluster) const {
    return SegmentBytesMax(options->message_bytes_max, cluster.message_bytes_max(),
                           transport->MessageBytesMax());
  }
};

}  // namespace hotbed

#endif  // HOTBED_CLIENT_NET_ENGINE_PARTS_H_
