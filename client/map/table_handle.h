// The Table that callers hold, and what the client remembers of its shards beside the map.
#ifndef HOTBED_CLIENT_MAP_TABLE_HANDLE_H_
#define HOTBED_CLIENT_MAP_TABLE_HANDLE_H_

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "common/ids.h"
#include "hotbed/client.h"

namespace hotbed {

// Thread-safe. Lives as long as its client.
class TableHandle final : public Table {
 public:
  TableHandle(const void* owner, TableOptions options, uint32_t shard_count)
      : owner_(owner),
        options_(std::move(options)),
        shard_count_(shard_count),
        acknowledged_(new Acknowledged[shard_count]) {}

  const TableOptions& options() const override { return options_; }
  uint32_t shard_count() const override { return shard_count_; }
  TableId id() const { return options_.id; }
  const void* owner() const { return owner_; }  // the client that opened it

  // Read your writes, and never less than was read before: the newest state in which this client
  // saw `shard`. A pull names it if the epoch is still the same. A later epoch of a shard of one
  // copy begins with everything that was acknowledged (DECISIONS L2, L8), and what a restart of
  // class `checkpoint` forgot it may number anew; of several copies LSNs go on, and one that is
  // not the primary may be behind.
  void NoteAcknowledged(uint32_t shard, Epoch epoch, Lsn lsn) const {
    Acknowledged& seen = acknowledged_[shard];
    absl::MutexLock lock(&seen.mu);
    if (epoch > seen.epoch || (epoch == seen.epoch && lsn > seen.lsn)) {
      seen.lsn = LsnsGoOn() ? std::max(seen.lsn, lsn) : lsn;
      seen.epoch = epoch;
    }
  }
  Lsn LsnMin(uint32_t shard, Epoch epoch) const {
    const Acknowledged& seen = acknowledged_[shard];
    absl::MutexLock lock(&seen.mu);
    if (seen.epoch == epoch) return seen.lsn;
    return LsnsGoOn() && seen.epoch < epoch ? seen.lsn : 0;
  }

 private:
  bool LsnsGoOn() const {
    const bool copied = options_.copies > 1 || options_.data_parallel;
    return copied && options_.durability != Durability::kCheckpoint;
  }

  struct Acknowledged {
    mutable absl::Mutex mu;
    Epoch epoch ABSL_GUARDED_BY(mu) = 0;
    Lsn lsn ABSL_GUARDED_BY(mu) = 0;
  };

  const void* const owner_;
  const TableOptions options_;
  const uint32_t shard_count_;
  const std::unique_ptr<Acknowledged[]> acknowledged_;
};

}  // namespace hotbed

#endif  // HOTBED_CLIENT_MAP_TABLE_HANDLE_H_
