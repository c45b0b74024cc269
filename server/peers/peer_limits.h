// Bounds of the streams between servers, free of gRPC.
#ifndef HOTBED_SERVER_PEERS_PEER_LIMITS_H_
#define HOTBED_SERVER_PEERS_PEER_LIMITS_H_

#include <cstdint>

#include "security/identity.h"

namespace hotbed {

// Bounds of the stream to one other server.
struct PeerStreamOptions {
  uint64_t queue_bytes_max = 64ull << 20;  // bytes that wait; beyond it messages are dropped
  uint64_t joined_bytes_max = 1 << 20;     // bytes per wire message that joins several messages
  int64_t backoff_min_ms = 10;             // before the first retry; doubles with each further one
  int64_t backoff_max_ms = 1000;
  uint64_t jitter_seed = 0;
  ClientIdentity identity;  // towards other servers
};

// Bounds of received messages until they are applied or written.
struct PeerLimits {
  // Half for log records, half for rows of snapshot transfers.
  uint64_t transfer_bytes_max = 64ull << 20;
  // Committed log records that shards keep in memory for replicas that may need them. A record
  // from another server stays where it was received, so this is added to the half for log records.
  uint64_t replica_tail_bytes_max = 0;
};

}  // namespace hotbed

#endif  // HOTBED_SERVER_PEERS_PEER_LIMITS_H_
