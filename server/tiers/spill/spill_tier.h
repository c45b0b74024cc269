// Rows on disk: one RocksDB for all shards of a server. Thread-safe; calls block.
//
// Key, big-endian: table id u32, column slice u16 (the slice's first column), position u64. Two
// slices beyond every dim hold values of a shard as a whole, its meta and its highest LSN, with the
// shard's index as position. Row record, little-endian: version byte (low half 1, high half the
// weight type), LSN u64, weights, optimizer state, CRC-32C of the key and of all bytes before. The
// mark of a deleted row has 2 in the low half of its version byte, and neither weights nor state.
#ifndef HOTBED_SERVER_TIERS_SPILL_SPILL_TIER_H_
#define HOTBED_SERVER_TIERS_SPILL_SPILL_TIER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/types/span.h"
#include "common/files/marks.h"
#include "common/ids.h"
#include "kv/kv_store.h"
#include "server/tiers/api/rows.h"

namespace hotbed {

// Rows to write. Record k lies at records + k * record_bytes; only its payload is filled in.
struct SpillRows {
  const uint64_t* positions = nullptr;
  uint8_t* records = nullptr;
  uint32_t count = 0;
  Lsn lsn = 0;
  bool deleted = false;  // the rows are deleted: the records become their marks
};

class RowBlock;
class RowJournals;

class SpillTier {
 public:
  ~SpillTier();
  // Rows live in dir/rows, frozen snapshots in dir/frozen-N. DataLoss: with `marks` (else null),
  // the rows are not those that the last Flush left, or later ones.
  static absl::StatusOr<std::unique_ptr<SpillTier>> Open(const std::string& dir,
                                                         const KvOptions& options,
                                                         Marks* marks = nullptr, uint64_t run = 0);

  // Reads the records of `positions` (sorted, unique): found[i] says whether row i is there
  // (kRowThere) or was deleted, records + i * record_bytes holds it or its mark. DataLoss names
  // shard and id.
  absl::Status Fetch(const SpillShard& shard, absl::Span<const uint64_t> positions,
                     uint8_t* records, uint8_t* found);
  static Lsn LsnOf(const uint8_t* record);
  static const uint8_t* PayloadOf(const uint8_t* record) { return record + kSpillHeaderBytes; }

  // Completes the records and writes all of them, in order of position, with `highest_lsn`: not
  // below the LSN of any row of the shard, written now or before. If a row occurs twice, the last
  // one counts. Many rows become a file of their own (KvFile). If a write fails, rows may be
  // missing, but each one that is there is covered by the highest LSN and by the journal.
  absl::Status Write(const SpillShard& shard, absl::Span<const SpillRows> rows, Lsn highest_lsn);

  absl::StatusOr<bool> HasRows(const SpillShard& shard);
  // The highest_lsn of the last Write; 0: none.
  absl::StatusOr<Lsn> HighestLsn(const SpillShard& shard);
  absl::StatusOr<std::string> ReadMeta(const SpillShard& shard);  // empty: none
  absl::Status WriteMeta(const SpillShard& shard, absl::string_view meta);
  // TierHost::ReplaceMeta and InheritMeta.
  absl::Status ReplaceMeta(const SpillShard& shard, absl::string_view meta, Lsn highest);
  absl::Status InheritMeta(const SpillShard& parent, const SpillShard& child);
  // Files that hold rows of this shard alone are deleted at once and durably, other rows with the
  // next Flush; a kill in between leaves a part of them. Readers of the shard may miss rows from
  // now on.
  absl::Status Delete(const SpillShard& shard);
  // Gives back the disk space of rows that were replaced or deleted. Blocks.
  absl::Status Compact(const SpillShard& shard);
  uint64_t BytesOf(const SpillShard& shard);  // about
  // TierHost::DropMarks.
  absl::StatusOr<uint64_t> DropMarks(const SpillShard& shard, Lsn through,
                                     absl::FunctionRef<absl::Status()> go_on)
      ABSL_LOCKS_EXCLUDED(marks_mu_);

  // Reads the shard's rows with LSNs above `above` (0: all) as they are now, in blocks
  // (row_block.h): those that the journal names, or all of them where it does not go back that far.
  // The reader does not outlive the tier.
  absl::StatusOr<std::unique_ptr<ShardRowReader>> Read(const SpillShard& shard, Lsn above);
  absl::StatusOr<std::unique_ptr<ShardRowReader>> ReadLive(const SpillShard& shard, LivePass pass);
  // Takes blocks of another tier's reader; blocks of at least `file_bytes_min` bytes go into files
  // of their own (spill_snapshot.h). `written`, unless it is null, hears of each block that is
  // written. The writer does not outlive the tier.
  absl::StatusOr<std::unique_ptr<ShardRowWriter>> NewWriter(
      const SpillShard& shard, uint64_t file_bytes_min,
      std::function<void(const RowBlock&)> written = nullptr);

  absl::Status Freeze();
  absl::Status RestoreTable(TableId table);

  absl::Status Flush();
  KvStore::Usage GetUsage() const;
  absl::Status TryResume();
  // TierHost::Renew.
  absl::Status Renew();

  // For tests that look at the store or damage it; not while Renew runs.
  KvStore* store() const {
    absl::MutexLock lock(&mu_);
    return store_.get();
  }

 private:
  SpillTier(std::string dir, const KvOptions& options, Marks* marks, uint64_t run);
  absl::Status CheckState() const;
  // Rows of a copy of the directory have the manifest of these rows and more, so the file RUN
  // beside it names the start that opened the rows last.
  absl::Status CheckRun() const;
  absl::Status MarkRun();
  absl::Status CheckFrozen(const std::vector<uint64_t>& numbers) const;
  // The manifest may be replaced until MarkState has returned OK.
  absl::Status MarkChanges();
  absl::Status MarkState();
  absl::Status OpenStore(bool must_exist) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  KvOptions RowsOptions() const;
  std::string FrozenDir(uint64_t number) const;
  absl::Status OpenEmpty() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // The caller keeps the store while it uses it; Renew does not wait but fails.
  absl::StatusOr<std::shared_ptr<KvStore>> Use() const;
  absl::StatusOr<std::string> ReadShardValue(const SpillShard& shard, uint16_t slice);

  const std::string dir_;
  const KvOptions options_;
  Marks* const marks_;
  const uint64_t run_;
  const std::unique_ptr<RowJournals> journals_;
  // Held exclusively between a look at marks and their end, so that no row is written in between.
  absl::Mutex marks_mu_;
  mutable absl::Mutex mu_;
  std::shared_ptr<KvStore> store_ ABSL_GUARDED_BY(mu_);  // null: Renew could not open it again
};

}  // namespace hotbed

#endif  // HOTBED_SERVER_TIERS_SPILL_SPILL_TIER_H_
