// The state that all streams from other servers share at one data port. Thread-safe.
#ifndef HOTBED_SERVER_PEERS_PEER_PLANE_H_
#define HOTBED_SERVER_PEERS_PEER_PLANE_H_

#include <atomic>
#include <cstdint>
#include <memory>

#include "server/net/stream_watch.h"
#include "server/peers/peer_limits.h"
#include "server/peers/replica_inbox.h"
#include "server/peers/transfer_budget.h"
#include "server/shard/replica/replica_message.h"

namespace hotbed {

struct PeerPlane {
  // `sink` outlives it.
  PeerPlane(const PeerLimits& limits, int64_t write_timeout_ms, ReplicaSink* sink)
      : write_timeout_ms(write_timeout_ms),
        inbox(sink),
        budget(std::make_shared<TransferBudget>(
            limits.transfer_bytes_max / 2 + limits.replica_tail_bytes_max,
            limits.transfer_bytes_max / 2)) {}

  const int64_t write_timeout_ms;  // as DataPlaneLimits::write_timeout_ms
  ReplicaInbox inbox;
  const std::shared_ptr<TransferBudget> budget;
  StreamWatch watch;
  std::atomic<uint32_t> streams{0};  // open now
  std::atomic<uint64_t> calls{0};    // call objects alive, including those that wait for a peer
};

}  // namespace hotbed

#endif  // HOTBED_SERVER_PEERS_PEER_PLANE_H_
