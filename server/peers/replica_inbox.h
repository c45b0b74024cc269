// Where what other servers say comes together: calls of the shard host, one at a time for each
// peer, whether they come from the data port's threads (messages) or from those of the streams to
// the peer (a loss). It also knows who this process is.
//
// A peer has one stream that counts, the newest: what an older one still brings is dropped, so that
// nothing sent before a reconnect arrives after what was sent again. When a stream ends, or another
// takes its place, answers of the peer may be lost with it: the host hears OnPeerLost.
//
// Thread-safe. The host is called with the peer's lock held: it may send, not call back.
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
#include "common/shard_record.h"
#include "server/shard/replica_message.h"

namespace hotbed {

class ReplicaInbox {
 public:
  // Servers remembered; one more is refused.
  static constexpr size_t kPeersMax = 4096;

  // `sink` outlives it.
  explicit ReplicaInbox(ReplicaSink* sink) : sink_(sink) {}

  void SetSelf(const Member& self, const std::string& cluster_id);
  Member self() const;
  std::string cluster_id() const;

  // A stream of `from` has begun; its number. FailedPrecondition: a newer process of that server
  // has spoken before.
  absl::StatusOr<uint64_t> Open(const Member& from);
  // Hands over in order and empties `messages`. False: the stream does not count any more; nothing
  // was handed over.
  bool Deliver(const Member& from, uint64_t stream, std::vector<ReplicaMessage>* messages);
  void Close(const Member& from, uint64_t stream);

  // What was sent to `peer` is lost. `before` runs with the peer's lock held, just before the host
  // hears of it: no answer to what is sent after it can come earlier.
  void Lost(const Member& peer, absl::FunctionRef<void()> before);

 private:
  struct Peer {
    absl::Mutex mu;
    uint64_t stream ABSL_GUARDED_BY(mu) = 0;  // 0: none
    Incarnation incarnation ABSL_GUARDED_BY(mu) = 0;
  };
  // Null: too many.
  Peer* Find(ServerId server);

  ReplicaSink* const sink_;
  mutable absl::Mutex mu_;
  Member self_ ABSL_GUARDED_BY(mu_);
  std::string cluster_id_ ABSL_GUARDED_BY(mu_);
  uint64_t streams_ ABSL_GUARDED_BY(mu_) = 0;
  absl::flat_hash_map<ServerId, std::unique_ptr<Peer>> peers_ ABSL_GUARDED_BY(mu_);
};

}  // namespace hotbed

#endif  // HOTBED_SERVER_PEERS_REPLICA_INBOX_H_
