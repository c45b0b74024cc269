// The state that all shards of one server share for replication: the memory budget for records
// that replicas have not taken yet, the server's lease, the numbers that its coordinator has given
// out, and counters. Thread-safe; outlives the shards.
#ifndef HOTBED_SERVER_SHARD_REPLICA_BUDGET_H_
#define HOTBED_SERVER_SHARD_REPLICA_BUDGET_H_

#include <atomic>
#include <cstdint>

#include "server/shard/given_out.h"

namespace hotbed {

struct ReplicaBudget {
  uint64_t tail_bytes_max = 0;         // set before the first shard
  std::atomic<int64_t> tail_bytes{0};  // memory of the records kept for other replicas
  // Strict pulls of replicated shards are answered until then (Clock::NowNs() scale).
  std::atomic<int64_t> lease_until_ns{0};
  GivenOut given;

  // Counters since the start of the server.
  std::atomic<uint64_t> messages_refused{0};   // damaged, or of a kind that the shard cannot take
  std::atomic<uint64_t> replicas_diverged{0};  // found by the rolling hash
  std::atomic<uint64_t> records_sent{0};
  std::atomic<uint64_t> records_taken{0};
};

}  // namespace hotbed

#endif  // HOTBED_SERVER_SHARD_REPLICA_BUDGET_H_
