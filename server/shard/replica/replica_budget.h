// The state that all shards of one server share for replication: the memory budget for records
// that replicas have not taken yet, the server's lease, the numbers that its coordinator has given
// out, and counters. Thread-safe; outlives the shards.
#ifndef HOTBED_SERVER_SHARD_REPLICA_REPLICA_BUDGET_H_
#define HOTBED_SERVER_SHARD_REPLICA_REPLICA_BUDGET_H_

#include <atomic>
#include <cstdint>

#include "common/status_numbers.h"
#include "server/shard/replica/given_out.h"

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

  void AddNumbers(StatusNumbers* numbers) const {
    const auto get = [](const auto& counter) {
      return static_cast<uint64_t>(counter.load(std::memory_order_relaxed));
    };
    numbers->Add("records_sent", "hotbed_server_records_sent_total",
                 "Log records sent to other replicas.", get(records_sent));
    numbers->Add("records_taken", "hotbed_server_records_taken_total",
                 "Log records taken from primaries.", get(records_taken));
    numbers->Add(
        "replica_messages_refused", "hotbed_server_replica_messages_refused_total",
        "Records of other replicas that were damaged or not of the shard; requested again.",
        get(messages_refused));
    numbers->Add("replicas_diverged", "hotbed_server_replicas_diverged_total",
                 "Shards whose rolling hash was found to differ from their primary's.",
                 get(replicas_diverged));
    numbers->Add("replica_tail_bytes_limit", "hotbed_server_replica_tail_limit_bytes",
                 "Limit of hotbed_server_replica_tail_bytes.", tail_bytes_max);
    numbers->Add("replica_tail_bytes", "hotbed_server_replica_tail_bytes",
                 "Log records kept in memory for other replicas.", get(tail_bytes));
  }
};

}  // namespace hotbed

#endif  // HOTBED_SERVER_SHARD_REPLICA_REPLICA_BUDGET_H_
