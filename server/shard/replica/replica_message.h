// The messages between the replicas of a shard, free of gRPC and protobuf, and the interfaces of
// the network that carries them (docs/protocol.md; proto/replica.proto is the form on the wire).
#ifndef HOTBED_SERVER_SHARD_REPLICA_REPLICA_MESSAGE_H_
#define HOTBED_SERVER_SHARD_REPLICA_REPLICA_MESSAGE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "common/ids.h"
#include "common/tables/shard_record.h"

namespace hotbed {

// Shared bytes: a record of the log, in memory once, on its way to any number of followers.
struct SharedBytes {
  std::shared_ptr<const void> owner;
  absl::Span<const uint8_t> bytes;
};

struct ReplicaMessage {
  // Values as in proto/replica.proto (TransferKind).
  enum class Kind : uint8_t {
    kNone = 0,
    // From the primary: the entries after (prev_epoch, prev_lsn), and the commit LSN. Without
    // entries it asks where the follower stands, or announces a commit.
    kAppend = 1,
    // ok: the follower's log equals the primary's up to `lsn`. Else the primary should continue
    // from `lsn` (a hint), or, with needs_snapshot, send all rows.
    kAppendReply = 2,
    // A snapshot transfer begins. `transfer` names it, and grows with each transfer that a primary
    // begins in an epoch. `lsn` is the LSN of the meta in kSnapshotEnd; entries above it follow by
    // kAppend. `bytes_total` is an estimate.
    kSnapshotBegin = 3,
    kSnapshotRows = 4,  // `chunk` counts from 0
    kSnapshotEnd = 5,   // the meta; `chunk` is the number of chunks
    // ok: `chunk` chunks are written (0: there is space for the first). One more than the number in
    // kSnapshotEnd, with `lsn`: everything is durable, and the follower takes entries above lsn.
    // Not ok: the transfer has failed.
    kSnapshotReply = 6,
  };
  Kind kind = Kind::kNone;
  ShardId shard;
  Epoch epoch = 0;
  Member to;
  Epoch prev_epoch = 0;
  Lsn prev_lsn = 0;
  Lsn commit = 0;
  Lsn lsn = 0;
  bool ok = false;
  bool needs_snapshot = false;
  Lsn applied = 0;  // kAppendReply, ok: the follower's rows; 0: unknown
  Lsn last = 0;     // kAppendReply, ok: where the follower's log ends; 0: it takes nothing now
  uint64_t transfer = 0;
  uint64_t chunk = 0;
  uint64_t bytes_total = 0;
  // With kAppend: the primary's rolling hash at hash_lsn (replica/rolling_hash.h); 0: none.
  uint64_t rolling_hash = 0;
  Lsn hash_lsn = 0;
  std::vector<SharedBytes> records;  // kAppend: whole records of the log, in order of LSN
  SharedBytes body;                  // kSnapshotRows, kSnapshotEnd
  // Not on the wire: more messages that arrived together follow at once, so that the log may write
  // their records together with those of the last message.
  bool more = false;
};

// The way to other servers. Thread-safe; never blocks.
class ReplicaNetwork {
 public:
  virtual ~ReplicaNetwork() = default;
  // Messages of one shard to one member arrive in order or not at all. After a loss, the sender's
  // sink gets OnPeerLost before any answer to a later message.
  virtual void Send(ReplicaMessage message) = 0;
  // Bytes that are not yet written to the stream to `to`; snapshot senders wait while they are
  // many. The maximum while messages would be dropped: the peer is unknown, or OnPeerLost is still
  // to come.
  virtual uint64_t QueuedBytes(const Member& to) const = 0;
  // The servers and their current addresses, from the link to the coordinator. Other servers are
  // unreachable.
  struct Peer {
    Member member;
    std::string address;  // of the data port
  };
  virtual void SetPeers(const std::vector<Peer>& peers) = 0;
  // The identity of this process, whenever it has registered; before the first Send.
  virtual void SetSelf(const Member& /*self*/, const std::string& /*cluster_id*/) {}
};

// Receives messages: the shard host. Calls come from the network's threads, one at a time for each
// peer.
class ReplicaSink {
 public:
  virtual ~ReplicaSink() = default;
  virtual void OnReplicaMessage(const Member& from, ReplicaMessage message) = 0;
  // Messages to `peer` that were not answered may be lost; so may its answers.
  virtual void OnPeerLost(const Member& peer) = 0;
};

}  // namespace hotbed

#endif  // HOTBED_SERVER_SHARD_REPLICA_REPLICA_MESSAGE_H_
