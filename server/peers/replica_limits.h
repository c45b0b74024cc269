// Bounds of the streams to other servers, free of gRPC.
#ifndef HOTBED_SERVER_PEERS_REPLICA_LIMITS_H_
#define HOTBED_SERVER_PEERS_REPLICA_LIMITS_H_

#include <cstdint>

namespace hotbed {

struct PeerStreamOptions {
  uint64_t queue_bytes_max = 64ull << 20;  // of one peer; beyond it messages are dropped
  uint64_t joined_bytes_max = 1 << 20;     // of one message on the wire, if it is several
  int64_t backoff_min_ms = 10;             // before the first new try; then twice as long each time
  int64_t backoff_max_ms = 1000;
  uint64_t jitter_seed = 0;
};

}  // namespace hotbed

#endif  // HOTBED_SERVER_PEERS_REPLICA_LIMITS_H_
