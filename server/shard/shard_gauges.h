// The values of a shard that other threads may read: the host, heartbeats, metrics and status
// pages. The strand publishes the values after each event; a reader may see values of different
// moments.
#ifndef HOTBED_SERVER_SHARD_SHARD_GAUGES_H_
#define HOTBED_SERVER_SHARD_SHARD_GAUGES_H_

#include <atomic>
#include <cstdint>

#include "common/fetch_lines.h"
#include "common/ids.h"
#include "server/protocol/shard_core.h"
#include "server/shard/shard_status.h"

namespace hotbed {

class ShardGauges {
 public:
  // --- the shard's strand
  struct Parts {
    bool served = false;
    bool wants_activation = false;
    bool watched = false;
    uint64_t staged_bytes = 0;
    uint64_t tail_bytes = 0;
  };
  void Publish(const ShardCore& core, const Parts& parts);
  // Brings to the cache what a pull or a push writes.
  void Fetch() const { FetchLines(this, 4 * sizeof(uint64_t)); }
  // A push was applied, and nothing else has changed.
  void PublishLsn(Lsn lsn) {
    commit_lsn_.store(lsn, kRelaxed);
    applied_lsn_.store(lsn, std::memory_order_release);
  }
  void SetBackups(uint64_t backups) { backups_.store(backups, kRelaxed); }
  void AddPulled(uint32_t rows) {
    rows_pulled_.store(rows_pulled_.load(kRelaxed) + rows, kRelaxed);
  }
  void AddPushed(uint32_t rows) {
    rows_pushed_.store(rows_pushed_.load(kRelaxed) + rows, kRelaxed);
  }

  // --- any thread
  void SetDurable(Lsn lsn) { durable_lsn_.store(lsn, kRelaxed); }
  void SetSpilledBytes(Lsn durable, uint64_t bytes) {
    spilled_bytes_.store(bytes, kRelaxed);
    sized_at_.store(durable, kRelaxed);
  }
  Lsn sized_at() const { return sized_at_.load(kRelaxed); }
  // Fills in the fields that are kept here.
  void Read(ShardStatus* status) const;

  Epoch epoch() const { return epoch_.load(kRelaxed); }
  Lsn applied_lsn() const { return applied_lsn_.load(std::memory_order_acquire); }
  Lsn durable_lsn() const { return durable_lsn_.load(kRelaxed); }
  bool primary() const { return primary_.load(kRelaxed); }
  bool active() const { return active_.load(kRelaxed); }
  bool wants_activation() const { return wants_activation_.load(kRelaxed); }
  bool read_only() const { return read_only_.load(kRelaxed); }
  bool watched() const { return watched_.load(kRelaxed); }
  uint64_t backups() const { return backups_.load(kRelaxed); }
  uint64_t rows_pushed() const { return rows_pushed_.load(kRelaxed); }
  uint64_t spilled_bytes() const { return spilled_bytes_.load(kRelaxed); }

 private:
  static constexpr auto kRelaxed = std::memory_order_relaxed;

  // First what pulls and pushes write, in one cache line.
  std::atomic<Lsn> applied_lsn_{0};
  std::atomic<Lsn> commit_lsn_{0};
  std::atomic<uint64_t> rows_pulled_{0};
  std::atomic<uint64_t> rows_pushed_{0};
  std::atomic<Epoch> epoch_{0};
  std::atomic<Lsn> durable_lsn_{0};
  std::atomic<bool> primary_{false};
  std::atomic<bool> active_{false};
  std::atomic<bool> wants_activation_{false};
  std::atomic<bool> read_only_{false};
  std::atomic<bool> watched_{false};
  std::atomic<uint64_t> backups_{0};
  std::atomic<uint64_t> sessions_{0};
  std::atomic<uint64_t> committed_step_{0};
  std::atomic<uint64_t> staged_bytes_{0};
  std::atomic<uint64_t> tail_bytes_{0};
  std::atomic<uint64_t> spilled_bytes_{0};  // an estimate, some time old
  std::atomic<Lsn> sized_at_{0};            // durable_lsn_ at that time
};

}  // namespace hotbed

#endif  // HOTBED_SERVER_SHARD_SHARD_GAUGES_H_
