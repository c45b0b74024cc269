// Makes the shards of a server, all wired to the same log, tiers, threads and limits. Thread-safe.
#ifndef HOTBED_SERVER_HOST_SHARD_FACTORY_H_
#define HOTBED_SERVER_HOST_SHARD_FACTORY_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "common/clock.h"
#include "common/shared_value.h"
#include "common/status_numbers.h"
#include "common/tables/shard_record.h"
#include "common/tables/table_spec.h"
#include "common/threads/thread_pool.h"
#include "server/host/promise_keeper.h"
#include "server/host/shard_host.h"
#include "server/shard/replica/replica_budget.h"
#include "server/shard/replica/replica_outlet.h"
#include "server/shard/shard.h"
#include "server/shard_log/shard_log.h"
#include "server/tiers/api/host.h"

namespace hotbed {

class ShardFactory {
 public:
  // All outlive the shards' work.
  struct Wiring {
    const ShardHostOptions* options = nullptr;  // complete
    TierHost* tiers = nullptr;
    ShardLog* log = nullptr;
    ThreadPool* pool = nullptr;
    const PromiseKeeper* promises = nullptr;
    ReplicaOutlet* outlet = nullptr;
    ReplicaBudget* replica_budget = nullptr;
    const std::atomic<bool>* log_full = nullptr;
    const Clock* clock = nullptr;
  };
  explicit ShardFactory(const Wiring& wiring) : wiring_(wiring) {}

  // The shard's rows must be here, or none at all. `installed`: they came with a snapshot transfer
  // just now. `continued`: see ShardOptions. Blocks on the tiers.
  std::shared_ptr<Shard> Make(const TableSpec& table, ShardId id, const ShardRange& range,
                              bool installed,
                              std::optional<ShardOptions::Continued> continued = {}) const;

  void AddNumbers(StatusNumbers* numbers) const {
    numbers->Add("staged_bytes", "hotbed_server_staged_bytes",
                 "Pushes to synchronous tables that wait for their step's commit.",
                 static_cast<uint64_t>(staged_bytes_->load(std::memory_order_relaxed)));
    numbers->Add("session_bytes", "hotbed_server_session_bytes",
                 "Memory of the sessions that all shards remember.",
                 static_cast<uint64_t>(session_bytes_->load(std::memory_order_relaxed)));
    numbers->Add("session_bytes_limit", "hotbed_server_session_limit_bytes",
                 "Limit of hotbed_server_session_bytes (--session-bytes-max).",
                 wiring_.options->session_bytes_max);
    const ChangeMemory* const changes = wiring_.options->change_memory.get();
    if (changes == nullptr) return;
    numbers->Add("change_bytes", "hotbed_server_change_bytes",
                 "Memory of lists of rows and changes for those who follow tables.",
                 changes->feed_bytes() + changes->answer_bytes());
    numbers->Add("change_bytes_limit", "hotbed_server_change_limit_bytes",
                 "Limit of hotbed_server_change_bytes: a third of --export-bytes-max.",
                 changes->bytes_max());
  }

 private:
  // The table, as other shards here have it already if they do.
  SharedValue<TableSpec> Shared(const TableSpec& table) const ABSL_LOCKS_EXCLUDED(mu_);

  const Wiring wiring_;
  mutable absl::Mutex mu_;
  // As made last.
  mutable absl::flat_hash_map<TableId, SharedValue<TableSpec>> tables_ ABSL_GUARDED_BY(mu_);
  // Shared: a request may keep a shard for a moment longer than the host lives.
  const std::shared_ptr<std::atomic<int64_t>> staged_bytes_ =
      std::make_shared<std::atomic<int64_t>>(0);
  const std::shared_ptr<std::atomic<int64_t>> session_bytes_ =
      std::make_shared<std::atomic<int64_t>>(0);
};

}  // namespace hotbed

#endif  // HOTBED_SERVER_HOST_SHARD_FACTORY_H_
