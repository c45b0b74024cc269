#include "server/host/shard_factory.h"

#include <utility>

namespace hotbed {

SharedValue<TableSpec> ShardFactory::Shared(const TableSpec& table) const {
  absl::MutexLock lock(&mu_);
  auto known = tables_.find(table.id);
  if (known != tables_.end() && known->second->changes == table.changes) return known->second;
  absl::erase_if(tables_, [](const auto& entry) { return entry.second.unique(); });  // dropped ones
  return tables_[table.id] = table;
}

std::shared_ptr<Shard> ShardFactory::Make(const TableSpec& table, ShardId id,
                                          const ShardRange& range, bool installed,
                                          std::optional<ShardOptions::Continued> continued) const {
  Shard::Options options;
  options.table = Shared(table);
  options.id = id;
  options.range = range;
  options.tiers = wiring_.tiers;
  options.log = table.durability == Durability::kCheckpoint ? nullptr : wiring_.log;
  options.pool = wiring_.pool;
  options.clock = wiring_.clock;
  options.ids_max = wiring_.options->pull_ids_max;
  options.core.sessions_max = wiring_.options->sessions_max;
  options.core.session_idle_ns_min = wiring_.options->session_idle_ms * kMillisecondNs;
  // A replica that was away for a moment continues from what the others still have in memory.
  options.core.keep_tail = table.durability == Durability::kReplicated || table.data_parallel;
  options.outlet = wiring_.outlet;
  options.replica_budget = wiring_.replica_budget;
  options.installed = installed;
  options.continued = continued;
  options.staged_bytes = staged_bytes_;
  options.staged_bytes_max = wiring_.options->staged_bytes_max;
  options.session_bytes = session_bytes_;
  options.session_bytes_max = wiring_.options->session_bytes_max;
  options.change_memory = wiring_.options->change_memory;
  options.log_full = options.log == nullptr ? nullptr : wiring_.log_full;
  // Appends that queued requests began are committed when the queue is empty, off the strand.
  options.strand.after_drain = [](void* log) { static_cast<ShardLog*>(log)->Commit(); };
  options.strand.after_drain_context = wiring_.log;
  return std::make_shared<Shard>(std::move(options), wiring_.promises->Get(id));
}

}  // namespace hotbed
