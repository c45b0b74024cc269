#include "server/shard/shard_gauges.h"

namespace hotbed {

void ShardGauges::Publish(const ShardCore& core, const Parts& parts) {
  epoch_.store(core.epoch(), kRelaxed);
  primary_.store(core.primary(), kRelaxed);
  active_.store(parts.served && core.active(), kRelaxed);
  wants_activation_.store(parts.wants_activation, kRelaxed);
  read_only_.store(core.read_only(), kRelaxed);
  watched_.store(parts.watched, kRelaxed);
  sessions_.store(core.session_count(), kRelaxed);
  committed_step_.store(core.committed_step(), kRelaxed);
  staged_bytes_.store(parts.staged_bytes, kRelaxed);
  tail_bytes_.store(parts.tail_bytes, kRelaxed);
  commit_lsn_.store(core.commit_lsn(), kRelaxed);
  applied_lsn_.store(core.applied_lsn(), std::memory_order_release);
}

void ShardGauges::Read(ShardStatus* status) const {
  status->epoch = epoch();
  status->active = active();
  status->read_only = read_only();
  status->applied_lsn = applied_lsn();
  status->durable_row_lsn = durable_lsn();
  status->sessions = sessions_.load(kRelaxed);
  status->committed_step = committed_step_.load(kRelaxed);
  status->staged_bytes = staged_bytes_.load(kRelaxed);
  status->rows_pulled = rows_pulled_.load(kRelaxed);
  status->rows_pushed = rows_pushed();
  status->primary = primary();
  status->followers = backups();
  status->commit_lsn = commit_lsn_.load(kRelaxed);
  status->tail_bytes = tail_bytes_.load(kRelaxed);
}

}  // namespace hotbed
