// The way to other servers over gRPC: a stream for each (server/peers/peer_stream.h). What it sends
// arrives at the peer's server/peers/transfer_stream.h.
//
// Its events run on the threads that poll the data port: what a push sets off there is then done
// without a hop between threads, and a write that is through wakes nobody else.
//
// Thread-safe. Send writes on the caller's thread where nothing is being written; the host is
// called from the polling threads only.
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
#include "server/peers/replica_inbox.h"
#include "server/peers/peer_stream.h"
#include "server/shard/replica_message.h"

namespace hotbed {

class GrpcReplicaNetwork final : public ReplicaNetwork {
 public:
  // `inbox`, `clock` and `queues` (one at least, whose events are RpcTags) outlive its Stop().
  GrpcReplicaNetwork(const PeerStreamOptions& options, ReplicaInbox* inbox, const Clock* clock,
                     std::vector<grpc::CompletionQueue*> queues);
  ~GrpcReplicaNetwork() override;  // Stop()

  void Send(ReplicaMessage message) override;
  uint64_t QueuedBytes(const Member& to) const override;
  void SetPeers(const std::vector<Peer>& peers) override;
  // Streams that were opened in another name end.
  void SetSelf(const Member& self, const std::string& cluster_id) override;

  // Ends all streams, while the queues are still polled; what is sent later is dropped. No call of
  // the host comes after it.
  void Stop();

 private:
  using Name = std::pair<ServerId, Incarnation>;

  // Opens no stream yet. The host hears OnPeerLost if something was meant for it already.
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
  // To whom something was sent that had no stream: they hear of it when they have one.
  absl::flat_hash_set<Name> unheard_ ABSL_GUARDED_BY(mu_);
  MetricSource gauges_;  // last: it reads the streams
};

}  // namespace hotbed

#endif  // HOTBED_SERVER_PEERS_REPLICA_LINK_H_
