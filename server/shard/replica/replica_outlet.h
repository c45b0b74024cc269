// The requests of a shard to its host for the sake of its other replicas. Thread-safe; nothing here
// blocks, and nothing calls back into a shard.
#ifndef HOTBED_SERVER_SHARD_REPLICA_REPLICA_OUTLET_H_
#define HOTBED_SERVER_SHARD_REPLICA_REPLICA_OUTLET_H_

#include <cstdint>

#include "common/ids.h"
#include "common/tables/shard_record.h"
#include "server/shard/replica/replica_message.h"

namespace hotbed {

class ReplicaOutlet {
 public:
  virtual ~ReplicaOutlet() = default;
  virtual void Send(ReplicaMessage message) = 0;
  // Sends a snapshot of `shard`, whose primary is here, to `to`; ends in Shard::EndSnapshot.
  virtual void StartSnapshot(ShardId shard, const Member& to) = 0;
  // Makes the promise of `epoch` durable, then calls Shard::PromiseDurable.
  virtual void PromiseWanted(ShardId shard, Epoch epoch) = 0;
  // A shard wants its activation, has learners that are ready to join, or was refused: the
  // coordinator should hear of it now.
  virtual void HasNews() = 0;
  // The shard wants ticks, or has something for the coordinator, until Shard::watched() is false.
  virtual void Watch(ShardId /*shard*/) {}
  // A request waits in a shard, which is watched, until `ns` at the latest: calls
  // Shard::ExpireWaiting then.
  virtual void WaitsUntil(int64_t ns) = 0;
};

}  // namespace hotbed

#endif  // HOTBED_SERVER_SHARD_REPLICA_REPLICA_OUTLET_H_
