// The Table that callers hold. It also keeps the newest state of each shard that this client has
// seen, which is not part of the map.
#ifndef HOTBED_CLIENT_MAP_TABLE_HANDLE_H_
#define HOTBED_CLIENT_MAP_TABLE_HANDLE_H_

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
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
  const void* owner() const { return owner_; }  // the client that opened the table
  // "table NAME shard INDEX", for messages.
  std::string WhereOf(uint32_t shard) const {
    return absl::StrCat("table ", name(), " shard ", shard);
  }

  // For read-your-writes and monotonic reads: notes the newest state in which this client saw
  // `shard`, which later pulls name as the LSN that they need.
  //
  // Over epochs: with one replica, a later epoch begins with everything that was acknowledged, and
  // a restart of durability `checkpoint` may use LSNs again that it forgot, so the LSN holds within
  // its epoch only. With several replicas, LSNs continue over epochs, and a replica that is not the
  // primary may be behind.
  void NoteAcknowledged(uint32_t shard, Epoch epoch, Lsn lsn) const {
    Acknowledged& seen = acknowledged_[shard];
    absl::MutexLock lock(&seen.mu);
    if (epoch > seen.epoch || (epoch == seen.epoch && lsn > seen.lsn)) {
      seen.lsn = LsnsContinue() ? std::max(seen.lsn, lsn) : lsn;
      seen.epoch = epoch;
    }
  }
  // The LSN that a pull of `shard` in `epoch` needs; 0: any.
  Lsn LsnMin(uint32_t shard, Epoch epoch) const {
    const Acknowledged& seen = acknowledged_[shard];
    absl::MutexLock lock(&seen.mu);
    if (seen.epoch == epoch) return seen.lsn;
    return LsnsContinue() && seen.epoch < epoch ? seen.lsn : 0;
  }

 private:
  bool LsnsContinue() const {
    const bool replicated = options_.replicas > 1 || options_.data_parallel;
    return replicated && options_.durability != Durability::kCheckpoint;
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
