// What a shard asks of its host for the sake of its other copies, and what all shards of a server
// share there. Thread-safe; nothing here blocks, and nothing calls back into a shard.
#ifndef HOTBED_SERVER_SHARD_REPLICA_OUTLET_H_
#define HOTBED_SERVER_SHARD_REPLICA_OUTLET_H_

#include <atomic>
#include <cstdint>

#include "common/ids.h"
#include "common/shard_record.h"
#include "server/shard/replica_message.h"

namespace hotbed {

class ReplicaOutlet {
 public:
  virtual ~ReplicaOutlet() = default;
  virtual void Send(ReplicaMessage message) = 0;
  // All rows of `shard`, whose primary is here, are to go to `to`; ends in Shard::EndSnapshot.
  virtual void StartCopy(ShardId shard, const Member& to) = 0;
  // `epoch` is to be promised durably, then Shard::PromiseDurable.
  virtual void PromiseWanted(ShardId shard, Epoch epoch) = 0;
  // A shard has begun to want its activation, or to have learners that are ready to join.
  virtual void HasNews() = 0;
  // A request waits in a shard until `ns` at the latest: Shard::ExpireWaiting is to be called then.
  virtual void WaitsUntil(int64_t ns) = 0;

  // Strict pulls of shards of several members are answered until then (Clock::NowNs() scale).
  std::atomic<int64_t> lease_until_ns{0};
  // Records kept for other copies.
  std::atomic<int64_t> tail_bytes{0};
  uint64_t tail_bytes_max = 0;  // set before the first shard
  // Counters.
  std::atomic<uint64_t> messages_refused{0};  // damaged, or not what the shard can take
  std::atomic<uint64_t> copies_differ{0};     // found by the rolling hash
  std::atomic<uint64_t> records_sent{0};
  std::atomic<uint64_t> records_taken{0};
};

}  // namespace hotbed

#endif  // HOTBED_SERVER_SHARD_REPLICA_OUTLET_H_
