// The rows of one shard over its tiers: device memory where there is some, host memory, and the
// spill tier (RocksDB).
//
// Confined to its shard's Executor: one call at a time, and completions arrive on that executor. A
// call that finds all its rows in memory finishes before it returns (true) and never runs `done`;
// one that needs the spill tier returns false and runs `done` later. After Apply has returned
// false, the shard issues no other Apply before its `done` (DECISIONS C2); pulls of resident rows
// may go on.
//
// A row is weights (in the table's weight type) plus fp32 optimizer state, one record in the spill
// tier: version byte, LSN, weights, state, checksum. A row that was never updated exists nowhere:
// reading it computes its first value. Reads never write.
#ifndef HOTBED_SERVER_TIERS_API_TIERED_STORE_H_
#define HOTBED_SERVER_TIERS_API_TIERED_STORE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/executor.h"
#include "common/ids.h"
#include "common/shard_record.h"
#include "common/table_spec.h"
#include "row_math/types.h"
#include "server/tiers/api/answer_memory.h"
#include "server/tiers/api/fetch_hint.h"

namespace hotbed {

// Rows of [column_first, column_limit) of the shard's range. Ids are the caller's (not positions)
// and lie in the range.
struct RowReads {
  const uint64_t* ids = nullptr;
  uint32_t count = 0;
  RowType type = RowType::kFp32;
  uint8_t* rows = nullptr;         // a row an id, or a bag, of RowWireBytes(type, dim), unaligned
  uint8_t* flags = nullptr;        // count bytes or null; bit 0 = the row exists
  AnswerMemory* answer = nullptr;  // in which the rows lie; null: memory of any kind
  // Not pooled: only ids[picks[k]], k < count; rows and flags stand as for all. Null: all.
  const uint32_t* picks = nullptr;
  // Pooled (row_math/pooling.h): the ids are `bags` bags, none empty, one behind the other.
  RowPooling pooling = RowPooling::kNone;
  const uint32_t* bag_lengths = nullptr;
  uint32_t bags = 0;
  const float* weights = nullptr;  // kSum: one an id, or null
  uint8_t* arg_max = nullptr;      // kMax: dim u32 a bag, unaligned, or null
};

// A pooled pull that meets the spill tier holds rows of at most so many bytes (or one row) at a
// time, until they are in their bags.
constexpr uint64_t kPoolStageBytes = 256ull << 10;

struct RowUpdates {
  const uint64_t* ids = nullptr;  // unique
  uint32_t count = 0;
  RowType gradient_type = RowType::kFp32;     // fp32, fp16 or bf16
  const uint8_t* const* gradients = nullptr;  // one pointer a row, to dim unaligned elements
  UpdateScalars scalars;
  bool assign = false;  // gradients are the rows' new weights; the state begins anew
  Lsn lsn = 0;          // of the record that these updates are; grows from call to call
};

struct StoreStats {
  uint64_t rows_resident = 0;
  uint64_t rows_dirty = 0;
  uint64_t hot_bytes = 0;       // slabs in use, index and per-row bytes
  uint64_t overhead_bytes = 0;  // of hot_bytes: all that is neither weights nor state
  uint64_t hits = 0;
  uint64_t misses = 0;  // asked of the spill tier
  uint64_t evictions = 0;
  uint64_t writebacks = 0;
  uint64_t device_rows = 0;
  uint64_t device_bytes = 0;  // weights and state of these
  uint64_t device_hits = 0;   // of hits
};

// How calls end once the device that had the rows has failed: for good, and nothing else ends so.
inline absl::Status DeviceLostError(absl::string_view message) {
  return absl::AbortedError(message);
}
inline bool IsDeviceLost(const absl::Status& status) { return absl::IsAborted(status); }

// Rows that memory has, on their way to another server.
struct LiveRows {
  std::vector<uint8_t> records;  // one a position, as spilled, but for version byte and checksum
  std::vector<uint8_t> found;    // one a position: memory has it
  bool all = false;              // a row that memory has not exists nowhere
};

class TieredStore {
 public:
  using Done = absl::AnyInvocable<void(absl::Status)>;
  virtual ~TieredStore() = default;

  // DataLoss names shard and id when a spilled record fails its checksum; no row of the batch is
  // then to be used. Rows of one pull may be of different states, each one whole; so may those of
  // a bag.
  virtual bool Pull(const RowReads& reads, Done done) = 0;
  // All or nothing: an error (I/O, DataLoss) leaves every row as it was. Pointers stay valid until
  // done.
  virtual bool Apply(const RowUpdates& updates, Done done) = 0;

  // Recovery: between BeginReplay and EndReplay, Apply skips each row whose spilled LSN is not
  // below updates.lsn.
  virtual void BeginReplay() = 0;
  virtual void EndReplay() = 0;
  // After BeginReplay and before anything else is read or updated: the rows of a block of
  // TierHost::ReadShard, each block once, become resident as far as there is memory that nobody
  // uses; none makes room for them. False: there is no more. DataLoss: the block is damaged.
  virtual absl::StatusOr<bool> Warm(absl::string_view /*block*/) { return false; }
  // Every block has been brought in: what is not resident then exists nowhere.
  virtual void WarmedAll() {}

  // A small value stored with the shard's rows (sessions, applied LSN); written by Sweep, read at
  // open. Empty when none was ever flushed.
  virtual const std::string& meta() const = 0;

  // The highest LSN that any spilled row or meta of the shard carries, as found at open; 0: none.
  // The log goes on above it (DECISIONS L3).
  virtual Lsn highest_lsn() const { return 0; }

  // Writes back every row that is dirty now, in slices between other work, then `meta`; `done` runs
  // on the executor when all of it has been handed to the spill tier's memtable. TierHost::Flush
  // then makes it durable. One sweep at a time.
  virtual void Sweep(Lsn applied_lsn, std::string meta, Done done) = 0;

  // The LSN that write-back stamps: the shard tells it after each applied record.
  virtual void SetAppliedLsn(Lsn lsn) = 0;

  // Weights and state of the row `id` as they are now, if they can be had at once: those that the
  // update just finished has changed can. False: not.
  virtual bool PeekRow(uint64_t /*id*/, std::vector<uint8_t>* /*row*/) { return false; }

  // A copy of the rows as they are, without a sweep, by TierHost::ReadLive; one at a time. A pass
  // begins: positions, in no order, of the rows that memory has; in a `further` one, of those that
  // may have changed since the last BeginPass. False: it cannot be had, they have to be swept.
  virtual bool BeginPass(bool /*further*/, std::vector<uint64_t>* /*positions*/) { return false; }
  // Rows of the pass. Each LSN is that as of which the row is as it is, which is not below that of
  // BeginPass.
  virtual void ReadPass(absl::Span<const uint64_t> /*positions*/, LiveRows* /*rows*/) {}

  virtual StoreStats Stats() const = 0;  // any thread
};

class DeviceTier;

// A block of a copy of so many bytes goes into a file of its own; fewer rows are not worth a file's
// syncs.
constexpr uint64_t kCopyFileBytesMin = 256 << 10;

struct TierOptions {
  // The device whose memory holds the hottest rows, and that memory; null, or a null device: host
  // memory is the fastest tier. An error is Open's.
  std::function<absl::StatusOr<std::unique_ptr<DeviceTier>>()> open_device;
  std::string spill_dir;
  uint64_t hot_bytes = 512ull << 20;  // budget of all shards' hot tiers
  uint64_t block_cache_bytes = 64ull << 20;
  uint64_t memtable_bytes = 64ull << 20;
  uint64_t spill_bytes_max = 0;  // 0: no limit; beyond it write-back fails with ResourceExhausted
  uint64_t copy_file_bytes_min = kCopyFileBytesMin;
  int io_threads = 2;
  bool use_huge_pages = true;
};

// The rows of a shard as they lie in the spill tier at one moment, read in blocks by a thread that
// may block. A block is records as they are spilled, each after its position, under a checksum of
// its own (server/tiers/spill/row_block.h); another server's spill tier takes it as it is.
class ShardRowReader {
 public:
  virtual ~ShardRowReader() = default;
  // About `bytes_max` of rows (one at least); empty at the end. DataLoss names shard and id.
  virtual absl::StatusOr<std::string> Next(uint64_t bytes_max) = 0;
  virtual uint64_t bytes_total() const = 0;  // an estimate
};

// A pass of a copy from memory (TieredStore::BeginPass).
struct LivePass {
  Lsn above = 0;  // that of the pass before; 0: the first
  std::vector<uint64_t> positions;
  // ReadPass, on the shard's executor; of some of them, ascending. Not called on that executor.
  std::function<absl::Status(absl::Span<const uint64_t>, LiveRows*)> read;
};

// Writes the blocks of a shard's ShardRowReader into the spill tier: those of one pass in order,
// then perhaps those of a further one, whose rows take the place of what came before. Nothing may
// be read of it before Finish, and what is left of an unfinished one is deleted by DeleteShard.
// Thread-compatible; calls block.
class ShardRowWriter {
 public:
  virtual ~ShardRowWriter() = default;
  // DataLoss: damaged; InvalidArgument: rows of another shard or size, or not in order of position.
  // With these nothing of the block was written; any other error is final.
  virtual absl::Status Write(absl::string_view block) = 0;
  // With the shard's meta the copy is whole: all of it is durable.
  virtual absl::Status Finish(absl::string_view meta) = 0;
};

// One a server: the spill tier's RocksDB, the memory of the hot tiers, the I/O threads.
// Thread-safe.
class TierHost {
 public:
  static absl::StatusOr<std::unique_ptr<TierHost>> Open(const TierOptions& options);
  virtual ~TierHost() = default;

  // `before_write_back(lsn)` is called, off the executor, before rows of LSNs up to `lsn` are
  // handed to RocksDB: the log must hold them by then, and be synced if rows are to survive power
  // loss (DECISIONS L3).
  struct ShardParams {
    TableSpec table;
    ShardId shard;
    ShardRange range;
    Executor* executor = nullptr;
    FetchHint* hint = nullptr;  // told where the rows are, while the store lives; may be null
    std::function<absl::Status(Lsn lsn)> before_write_back;
  };
  virtual absl::StatusOr<std::unique_ptr<TieredStore>> OpenShard(ShardParams params) = 0;
  // Deletes a shard's rows and meta from the spill tier, for good after the next Flush: a kill in
  // between may leave a part of them, so that somebody has to know. No TieredStore of it may be
  // open; what reads its rows misses some from then on.
  virtual absl::Status DeleteShard(const TableSpec& table, const ShardRange& range,
                                   ShardId shard) = 0;

  // For snapshots (docs/protocol.md): with a sweep before it, the rows are those of the sweep's LSN
  // or later, each stamped, so that replay from that LSN makes them exact, as after a crash. The
  // reader does not outlive the host. `above` not 0, the LSN of an earlier sweep: only rows stamped
  // above it, which are all that have changed since (rows are never removed).
  virtual absl::StatusOr<std::unique_ptr<ShardRowReader>> ReadShard(const TableSpec& table,
                                                                    const ShardRange& range,
                                                                    ShardId shard, Lsn above) = 0;
  // The same of a shard that is open, without a sweep: the rows are those of BeginPass's LSN or
  // later.
  virtual absl::StatusOr<std::unique_ptr<ShardRowReader>> ReadLive(const TableSpec& table,
                                                                   const ShardRange& range,
                                                                   ShardId shard,
                                                                   LivePass pass) = 0;
  // For rows that come from another server: of a shard without an open TieredStore, of which
  // nothing is here (DeleteShard). The writer does not outlive the host.
  virtual absl::StatusOr<std::unique_ptr<ShardRowWriter>> WriteShard(const TableSpec& table,
                                                                     const ShardRange& range,
                                                                     ShardId shard) = 0;

  // About how many bytes a shard's rows take in the spill tier.
  virtual uint64_t SpilledBytes(const TableSpec& /*table*/, const ShardRange& /*range*/,
                                ShardId /*shard*/) {
    return 0;
  }

  // Makes all that was handed over durable: returns when it lies in SSTs. Call from a thread that
  // may block.
  virtual absl::Status Flush() = 0;

  // Class `checkpoint` (DECISIONS L8): Freeze keeps a hard-linked copy of the spill as it is now;
  // Restore puts the rows and metas of one table back to the last frozen copy, or to nothing when
  // there is none.
  virtual absl::Status Freeze() = 0;
  virtual absl::Status RestoreTable(TableId table) = 0;

  struct Usage {
    uint64_t hot_bytes_limit = 0;
    uint64_t hot_bytes = 0;
    uint64_t block_cache_bytes = 0;
    uint64_t memtable_bytes = 0;
    uint64_t spill_bytes = 0;
    uint64_t io_queue_depth = 0;
    std::string background_error;  // RocksDB's: no space, I/O; empty when well
    bool damaged = false;          // a file of it is, and it takes no more writes: see Renew
    std::string device;            // empty: none
    uint64_t device_bytes_limit = 0;
    uint64_t device_bytes = 0;
    uint64_t device_pinned_bytes = 0;       // of answers' memory
    uint64_t device_rows_direct_bytes = 0;  // as DeviceTier counts them
    uint64_t device_rows_copied_bytes = 0;
    std::string device_error;  // for good; empty when well
  };
  virtual Usage GetUsage() const = 0;
  // As in Usage. While it is not empty, shards with rows on the device answer nothing.
  virtual std::string DeviceError() const { return ""; }
  // For memory of answers; null: there is no device. May outlive the host.
  virtual std::shared_ptr<MemoryPinner> answer_pinner() const { return nullptr; }
  // Clears a background error when space is back; OK when the spill takes writes again.
  virtual absl::Status TryResume() = 0;
  // Begins anew without any row of any shard; frozen copies stay. No TieredStore may be open
  // (FailedPrecondition). Unavailable: a reader of ReadShard is not through yet; or the disk
  // fails, and then nothing else works either: try again. Call from a thread that may block.
  virtual absl::Status Renew() = 0;
};

}  // namespace hotbed

#endif  // HOTBED_SERVER_TIERS_API_TIERED_STORE_H_
