// What the copies of a shard say to each other, free of gRPC and protobuf, and the two sides of the
// seam that carries it (docs/protocol.md; proto/replica.proto is its form on the wire).
#ifndef HOTBED_SERVER_SHARD_REPLICA_MESSAGE_H_
#define HOTBED_SERVER_SHARD_REPLICA_MESSAGE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "common/ids.h"
#include "common/shard_record.h"

namespace hotbed {

// Bytes that live as long as anyone holds them: a record of the log, in memory once, on its way to
// any number of followers.
struct SharedBytes {
  std::shared_ptr<const void> owner;
  absl::Span<const uint8_t> bytes;
};

struct ReplicaMessage {
  // Values as in proto/replica.proto (TransferKind).
  enum class Kind : uint8_t {
    kNone = 0,
    // The primary's: entries that follow (prev_epoch, prev_lsn), and how far all is committed.
    // Without entries it asks where the follower stands, or tells of a commit.
    kAppend = 1,
    // ok: the follower's log holds what the primary's holds up to `lsn`. Else the primary is to go
    // on from `lsn` (a hint), or, with needs_snapshot, to send all rows.
    kAppendReply = 2,
    // A copy of all rows. `transfer` names it and grows with each one that a primary begins in an
    // epoch; `lsn`: the meta that will come is of this LSN (entries above follow by kAppend);
    // `bytes_total` is an estimate.
    kSnapshotBegin = 3,
    kSnapshotRows = 4,  // `chunk` counts from 0
    kSnapshotEnd = 5,   // the meta; `chunk`: how many there were
    // ok: `chunk` chunks are written, 0: there is room for the first; one more than kSnapshotEnd
    // said, with `lsn`: all is durable and the follower takes entries above lsn. Not ok: the copy
    // is off.
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
  uint64_t transfer = 0;
  uint64_t chunk = 0;
  uint64_t bytes_total = 0;
  // With kAppend: the primary's rolling hash at hash_lsn (server/shard/rolling_hash.h); 0: none.
  uint64_t rolling_hash = 0;
  Lsn hash_lsn = 0;
  std::vector<SharedBytes> records;  // kAppend: whole records of the log, in order of LSN
  SharedBytes body;                  // kSnapshotRows, kSnapshotEnd
  // Not sent: others that arrived with it are handed over at once, so that what they have written
  // can be written together with the last of them.
  bool more = false;
};

// The way to other servers. Thread-safe; never blocks.
class ReplicaNetwork {
 public:
  virtual ~ReplicaNetwork() = default;
  // Messages of one shard to one member arrive in order, or not at all: after a loss the sink of
  // the sender hears OnPeerLost before it is told of any answer to a later one.
  virtual void Send(ReplicaMessage message) = 0;
  // Not yet written to the stream to `to`: senders of copies wait while it is large. It is as large
  // as it may become while what is sent would be dropped: the peer is not known, or OnPeerLost has
  // yet to be told.
  virtual uint64_t QueuedBytes(const Member& to) const = 0;
  // Where servers listen now; the link to the coordinator tells. Others are unreachable.
  struct Peer {
    Member member;
    std::string address;  // of the data port
  };
  virtual void SetPeers(const std::vector<Peer>& peers) = 0;
  // Who this process is, once it is registered and whenever it is anew: before the first Send.
  virtual void SetSelf(const Member& /*self*/, const std::string& /*cluster_id*/) {}
};

// Who is spoken to: the shard host. Calls come from the network's threads, one at a time for each
// peer.
class ReplicaSink {
 public:
  virtual ~ReplicaSink() = default;
  virtual void OnReplicaMessage(const Member& from, ReplicaMessage message) = 0;
  // What was sent to `peer` and not answered may be lost; so may answers of it.
  virtual void OnPeerLost(const Member& peer) = 0;
};

}  // namespace hotbed

#endif  // HOTBED_SERVER_SHARD_REPLICA_MESSAGE_H_
