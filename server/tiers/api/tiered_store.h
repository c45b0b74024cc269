// The rows of one shard over its tiers: device memory where there is some, host memory, and the
// spill tier (RocksDB).
//
// Threads: confined to the shard's Executor. One call at a time; completions arrive on that
// executor. A call that finds all its rows in memory finishes before it returns (true) and never
// runs `done`; a call that needs the spill tier returns false and runs `done` later. After Apply
// has returned false, the shard issues no other Apply before its `done`, since updates take effect
// in log order; pulls of resident rows may continue.
//
// A row is weights (in the table's weight type) plus fp32 optimizer state, one record in the spill
// tier: version byte, LSN, weights, state, checksum. A row that was never updated exists nowhere:
// reading it computes its first value. Reads never write.
//
// A deleted row leaves memory, and a mark takes its place: a record without values, with the LSN of
// the deletion, that goes the way of any other row that has changed. So whatever tells rows apart
// by their LSNs (the row guard of a replay, passes of transfers, incremental saves, streams) learns
// of the deletion where it would have learnt of an update, and a late copy of the row never comes
// back.
#ifndef HOTBED_SERVER_TIERS_API_TIERED_STORE_H_
#define HOTBED_SERVER_TIERS_API_TIERED_STORE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/ids.h"
#include "server/tiers/api/row_ranking.h"
#include "server/tiers/api/rows.h"

namespace hotbed {

struct StoreStats {
  uint64_t rows_resident = 0;
  uint64_t rows_dirty = 0;
  uint64_t hot_bytes = 0;       // slabs in use, index and per-row bytes
  uint64_t overhead_bytes = 0;  // part of hot_bytes: everything but weights and state
  uint64_t hits = 0;
  uint64_t misses = 0;  // rows looked up in the spill tier
  uint64_t evictions = 0;
  uint64_t writebacks = 0;
  bool began_with_rows = false;  // the spill tier had rows when the store was opened
  uint64_t rows_made = 0;        // by updates, since the store was opened
  uint64_t rows_deleted = 0;     // likewise
  uint64_t rows_held = 0;        // gradients for rows that were not admitted
  uint64_t filter_bytes = 0;     // memory of the filter of touches
  uint64_t filter_counters = 0;  // in it
  uint64_t filter_used = 0;      // of them, those above 0
  uint64_t device_rows = 0;
  uint64_t device_bytes = 0;  // weights and state of device_rows
  uint64_t device_hits = 0;   // part of hits
};

// The result of every call once the device that held the rows has failed. The failure is
// permanent, and no other failure has this code.
inline absl::Status DeviceLostError(absl::string_view message) {
  return absl::AbortedError(message);
}
inline bool IsDeviceLost(const absl::Status& status) { return absl::IsAborted(status); }

class TieredStore {
 public:
  using Done = absl::AnyInvocable<void(absl::Status)>;
  virtual ~TieredStore() = default;

  // DataLoss names shard and id when a spilled record fails its checksum; the caller must then use
  // no row of the batch. Each row is whole, but rows of one pull, or of one bag, may be from
  // different moments.
  virtual bool Pull(const RowReads& reads, Done done) = 0;
  // All or nothing: an error (I/O, DataLoss) leaves every row as it was. Pointers stay valid until
  // done.
  virtual bool Apply(const RowUpdates& updates, Done done) = 0;
  // Apply where all rows are in memory and nothing is in its way, and SetAppliedLsn of its LSN.
  // False: nothing was done.
  virtual bool ApplyAtOnce(const RowUpdates& /*updates*/) { return false; }

  // Recovery: between BeginReplay and EndReplay, Apply skips each row whose spilled LSN is not
  // below updates.lsn.
  virtual void BeginReplay() = 0;
  virtual void EndReplay() = 0;
  // Makes the rows of one block of TierHost::ReadShard resident while unused memory lasts, and
  // never evicts for them. Call after BeginReplay and before any other read or update, each block
  // once. False: memory is used up. DataLoss: the block is damaged.
  virtual absl::StatusOr<bool> Warm(absl::string_view /*block*/) { return false; }
  // True: the rows came to memory as they were written (TierHost::ReceiveShard), and nothing is to
  // be warmed. Call after BeginReplay and before any read or update.
  virtual bool TakeArrived() { return false; }
  // Every block was warmed: a row that is not resident exists nowhere.
  virtual void WarmedAll() {}

  // A small value stored with the shard's rows (sessions, applied LSN). WriteBackAll stores it and
  // opening the store reads it; empty when none was ever stored.
  virtual const std::string& meta() const = 0;

  // The counts of touches of ids without a row, where the table keeps such (AdmitBy::kBloom): a
  // function of the records that were applied. They are a part of what the shard stores as `meta`,
  // and come back in it, before anything is applied; those of ids outside of the shard are left
  // out. DataLoss: no such bytes.
  virtual std::string SaveTouchFilter() const { return ""; }
  virtual absl::Status RestoreTouchFilter(absl::string_view /*saved*/) { return absl::OkStatus(); }

  // The highest LSN that any spilled row or meta of the shard carried when the store was opened;
  // 0: none. The log continues above it, so that no LSN is ever used for two records.
  virtual Lsn highest_lsn() const { return 0; }

  // Writes back every row that is dirty now, in slices between other work, then `meta`. `done` runs
  // on the executor once the spill tier's memtable holds all of it; TierHost::Flush then makes it
  // durable. One such call at a time.
  virtual void WriteBackAll(Lsn applied_lsn, std::string meta, Done done) = 0;

  // The LSN that write-back stamps rows with; the shard sets it after each applied record.
  virtual void SetAppliedLsn(Lsn lsn) = 0;

  // Reads the current weights and state of row `id` if they can be had without waiting; rows that
  // the last update changed always can. False: they cannot.
  virtual bool PeekRow(uint64_t /*id*/, std::vector<uint8_t>* /*row*/) { return false; }

  // Begins a pass of a snapshot transfer that reads memory instead of writing everything back first
  // (TierHost::ReadLive); one transfer at a time. Lists, in no order, the positions of rows that
  // memory holds; in a `further` pass, of rows that may have changed since the last BeginPass.
  // False: memory cannot be read this way, and the rows have to be written back.
  virtual bool BeginPass(bool /*further*/, std::vector<uint64_t>* /*positions*/) { return false; }
  // Reads rows of the pass, or any rows. Each carries an LSN as of which its value is current,
  // never below the LSN of the last BeginPass.
  virtual void ReadPass(absl::Span<const uint64_t> /*positions*/, LiveRows* /*rows*/) {}

  // Where this store only stands in front of another one: that one, to be used in its place from
  // now on; else null.
  virtual std::unique_ptr<TieredStore> TakeReplacement() { return nullptr; }

  // One step of a walk over the rows in memory, which are offered to `ranking`. Between two steps
  // rows may change, come and leave. At the end, each row that memory held all the time was
  // offered, and each row that it did not hold is in the spill tier, among walk->leaving, or new.
  // False: memory cannot be read this way, and the rows have to be written back.
  virtual bool RankMemory(RowRanking* /*ranking*/, MemoryWalk* /*walk*/) { return false; }

  // As RankMemory, for any visitor: a step over about `rows_max` rows.
  using RowVisitor =
      absl::FunctionRef<void(uint64_t position, const uint8_t* weights, const uint8_t* state)>;
  virtual bool VisitMemory(uint32_t /*rows_max*/, MemoryWalk* /*walk*/, RowVisitor /*visit*/) {
    return false;
  }

  virtual StoreStats Stats() const = 0;  // any thread
};

}  // namespace hotbed

#endif  // HOTBED_SERVER_TIERS_API_TIERED_STORE_H_
