// The journals of shards: which rows were written to the spill tier lately. They are kept there,
// beside the rows, so that the rows that have changed since an LSN are found without reading all.
//
// A write of rows adds an entry in the same batch: the positions, and the highest of the LSNs that
// the rows carry. A journal is complete above its floor: a row of the spill tier with a higher LSN
// was written by a write that has an entry. A shard without a journal, or whose rows came in files
// (ShardRowWriter), has the highest LSN of its rows as floor.
//
// A journal has at most a sixteenth as many positions as the shard has rows, between
// kJournalPositionsMin and kJournalPositionsMax. Beyond that each position is kept only in its
// newest entry. If that leaves more than half of the limit, the oldest entries go and the floor
// rises.
#ifndef HOTBED_SERVER_TIERS_SPILL_ROW_JOURNAL_H_
#define HOTBED_SERVER_TIERS_SPILL_ROW_JOURNAL_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/types/span.h"
#include "common/ids.h"
#include "kv/kv_store.h"
#include "server/tiers/spill/spill_tier.h"

namespace hotbed {

// Thread-safe, but for each shard one Add at a time. Add needs some 8 MiB while it shortens a
// journal.
class RowJournals {
 public:
  // Adds to `batch` the entry of a write of rows to `positions` (ascending, unique), of which `lsn`
  // is the highest LSN. If the batch is not written, Forget must be called.
  absl::Status Add(const SpillShard& shard, absl::Span<const uint64_t> positions, Lsn lsn,
                   KvStore* store, KvBatch* batch) ABSL_LOCKS_EXCLUDED(mu_);
  // What memory knows of the shard's journal is not true any more: Begin, Delete, or a batch that
  // was not written. The next Add looks at the store.
  void Forget(ShardId shard) ABSL_LOCKS_EXCLUDED(mu_);
  void ForgetAll() ABSL_LOCKS_EXCLUDED(mu_);

  // A journal without entries for rows with LSNs up to `floor`.
  static void Begin(const SpillShard& shard, Lsn floor, KvBatch* batch);
  static absl::Status Delete(const SpillShard& shard, KvReads* store, KvBatch* batch);
  // The positions from `from` to the end of the shard's range, ascending and unique, of all rows
  // with LSNs above `above`, and of others; the first `positions_max` of them. Nothing: the journal
  // does not go back that far.
  static absl::StatusOr<std::optional<std::vector<uint64_t>>> Above(const SpillShard& shard,
                                                                    Lsn above, uint64_t from,
                                                                    uint64_t positions_max,
                                                                    KvReads* store);

 private:
  struct Journal {
    bool known = false;
    uint64_t next = 1;  // the number of the next entry
    uint64_t positions = 0;
    uint64_t positions_max = 0;
  };

  static absl::Status Load(const SpillShard& shard, KvStore* store, KvBatch* batch,
                           Journal* journal);
  static absl::Status Shorten(const SpillShard& shard, KvStore* store, KvBatch* batch,
                              Journal* journal);

  absl::Mutex mu_;
  std::map<ShardId, std::shared_ptr<Journal>> journals_ ABSL_GUARDED_BY(mu_);
};

inline constexpr uint64_t kJournalPositionsMin = 4096;
inline constexpr uint64_t kJournalPositionsMax = 256 << 10;

}  // namespace hotbed

#endif  // HOTBED_SERVER_TIERS_SPILL_ROW_JOURNAL_H_
