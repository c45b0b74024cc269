// The network to other servers over gRPC: one PeerStream per server. Its messages arrive at the
// peer's TransferStream.
//
// Events run on the threads that poll the data port, so the messages that a push causes need no hop
// between threads, and a completed write wakes no other thread.
//
// Thread-safe. Send writes on the caller's thread if no write is in flight; the host is called from
// the polling threads only.
#ifndef HOTBED_SERVER_PEERS_REPLICA_LINK_H_
#define HOTBED_SERVER_PEERS_REPLICA_LINK_H_

#include <grpcpp/completion_queue.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/synchronization/mutex.h"
#include "common/clock.h"
#include "common/metrics.h"
#include "server/peers/peer_stream.h"
#include "server/peers/replica_inbox.h"
#include "server/shard/replica/replica_message.h"

namespace hotbed {

class GrpcReplicaNetwork final : public ReplicaNetwork {
 public:
  // `inbox`, `clock` and `queues` (at least one; their events are RpcTags) outlive Stop().
  GrpcReplicaNetwork(const PeerStreamOptions& options, ReplicaInbox* inbox, const Clock* clock,
                     std::vector<grpc::CompletionQueue*> queues);
  ~GrpcReplicaNetwork() override;  // Stop()

  void Send(ReplicaMessage message) override;
  uint64_t QueuedBytes(const Member& to) const override;
  void SetPeers(const std::vector<Peer>& peers) override;
  // Streams opened with another identity end.
  void SetSelf(const Member& self, const std::string& cluster_id) override;

  // Ends all streams, while the queues are still polled. Messages sent later are dropped, and the
  // host is not called any more.
  void Stop();

 private:
  using Name = std::pair<ServerId, Incarnation>;

  // Opens no connection yet. The host gets OnPeerLost if messages for the peer were dropped before.
  void AddStream(const Peer& peer) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void RemoveStream(ServerId server) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  std::shared_ptr<PeerStream> Find(const Member& peer) const ABSL_SHARED_LOCKS_REQUIRED(mu_);
  void Forget(const Member& to);

  const PeerStreamOptions options_;
  ReplicaInbox* const inbox_;
  const Clock* const clock_;
  const std::vector<grpc::CompletionQueue*> queues_;
  std::atomic<int> live_{0};

  mutable absl::Mutex mu_;
  bool stopped_ ABSL_GUARDED_BY(mu_) = false;
  uint64_t streams_made_ ABSL_GUARDED_BY(mu_) = 0;
  Member self_ ABSL_GUARDED_BY(mu_);
  std::string cluster_id_ ABSL_GUARDED_BY(mu_);
  std::vector<Peer> peers_ ABSL_GUARDED_BY(mu_);
  absl::flat_hash_map<ServerId, std::shared_ptr<PeerStream>> streams_ ABSL_GUARDED_BY(mu_);
  // Peers whose messages were dropped for lack of a stream: the host gets OnPeerLost when they have
  // one.
  absl::flat_hash_set<Name> unheard_ ABSL_GUARDED_BY(mu_);
  MetricSource gauges_;  // last: it reads the streams
};

}  // namespace hotbed

#endif  // HOTBED_SERVER_PEERS_REPLICA_LINK_H_
