// Serialises the calls of the shard host about each peer, whether they come from the data port's
// threads (messages) or from the streams to the peer (a loss). It also holds this process's
// identity, and the processes that the coordinator's map names: nobody else opens a stream, and a
// refused one leaves no trace.
//
// Only the newest stream of a peer is valid: messages of an older one are dropped, so that nothing
// sent before a reconnect arrives after it was sent again. When a stream ends or is replaced,
// replies of the peer may be lost with it, and the host gets OnPeerLost.
//
// Thread-safe. The host is called with the peer's lock held: it may send messages, but not call the
// inbox.
#ifndef HOTBED_SERVER_PEERS_REPLICA_INBOX_H_
#define HOTBED_SERVER_PEERS_REPLICA_INBOX_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "common/tables/shard_record.h"
#include "server/shard/replica/replica_message.h"

namespace hotbed {

class ReplicaInbox {
 public:
  // `sink` outlives it.
  explicit ReplicaInbox(ReplicaSink* sink) : sink_(sink) {}

  void SetSelf(const Member& self, const std::string& cluster_id);
  Member self() const;
  std::string cluster_id() const;

  // The servers of the map, with the incarnations that the coordinator gave them. Those named
  // before stay known: a map may be late.
  void SetPeers(const std::vector<Member>& peers);
  // A stream of `from` has begun; returns its number. FailedPrecondition: a newer process of that
  // server has opened a stream before. Unavailable: no map has named this process yet.
  absl::StatusOr<uint64_t> Open(const Member& from);
  // Delivers `messages` in order and empties the vector. False: the stream was replaced, and
  // nothing was delivered.
  bool Deliver(const Member& from, uint64_t stream, std::vector<ReplicaMessage>* messages);
  void Close(const Member& from, uint64_t stream);

  // Messages sent to `peer` are lost. `before` runs with the peer's lock held, just before
  // OnPeerLost, so that no reply to a message sent after `before` is delivered earlier.
  void Lost(const Member& peer, absl::FunctionRef<void()> before);

 private:
  struct Peer {
    absl::Mutex mu;
    uint64_t stream ABSL_GUARDED_BY(mu) = 0;          // 0: none
    Incarnation incarnation ABSL_GUARDED_BY(mu) = 0;  // the highest that has spoken
    Incarnation given ABSL_GUARDED_BY(mu) = 0;        // the highest that a map has named
  };
  // Null: no map has named it.
  Peer* Find(ServerId server) const;

  ReplicaSink* const sink_;
  mutable absl::Mutex mu_;
  Member self_ ABSL_GUARDED_BY(mu_);
  std::string cluster_id_ ABSL_GUARDED_BY(mu_);
  uint64_t streams_ ABSL_GUARDED_BY(mu_) = 0;
  absl::flat_hash_map<ServerId, std::unique_ptr<Peer>> peers_ ABSL_GUARDED_BY(mu_);
};

}  // namespace hotbed

#endif  // HOTBED_SERVER_PEERS_REPLICA_INBOX_H_
