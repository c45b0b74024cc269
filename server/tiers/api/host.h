// The tiers of one server: the spill tier's RocksDB, the memory of all hot tiers, the device where
// there is one, and the I/O threads. Opens the TieredStore of each shard. Thread-safe.
#ifndef HOTBED_SERVER_TIERS_API_HOST_H_
#define HOTBED_SERVER_TIERS_API_HOST_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/clock.h"
#include "common/files/marks.h"
#include "common/ids.h"
#include "common/shared_value.h"
#include "common/status_numbers.h"
#include "common/tables/shard_record.h"
#include "common/tables/table_spec.h"
#include "common/threads/executor.h"
#include "server/tiers/api/answer_memory.h"
#include "server/tiers/api/fetch_hint.h"
#include "server/tiers/api/rows.h"
#include "server/tiers/api/tiered_store.h"

namespace hotbed {

class DeviceTier;

// A block of a snapshot transfer of at least this many bytes goes into a file of its own; fewer
// rows are not worth a file's syncs.
constexpr uint64_t kSnapshotFileBytesMin = 256 << 10;

struct TierOptions {
  // Opens the device whose memory holds the hottest rows. Null, or a null device: host memory is
  // the fastest tier. An error fails TierHost::Open.
  std::function<absl::StatusOr<std::unique_ptr<DeviceTier>>()> open_device;
  std::string spill_dir;
  uint64_t hot_bytes = 512ull << 20;  // budget of all shards' hot tiers
  uint64_t shard_bytes = 0;           // of hot_bytes, for each open shard besides its rows
  uint64_t block_cache_bytes = 64ull << 20;
  uint64_t memtable_bytes = 64ull << 20;
  uint64_t spill_bytes_max = 0;  // 0: no limit; beyond it write-back fails with ResourceExhausted
  uint64_t snapshot_file_bytes_min = kSnapshotFileBytesMin;
  int io_threads = 2;
  const Clock* clock = nullptr;  // for the division of memory among shards; null: the real one
  bool use_huge_pages = true;
  // How far the spill tier got, and where it says so from now on; null: nothing is known.
  Marks* marks = nullptr;
  uint64_t run = 0;         // the random id of this start (IdentityFile::run); 0: none
  bool must_exist = false;  // a spill tier that is missing is an error (DataLoss)
};

class TierHost {
 public:
  static absl::StatusOr<std::unique_ptr<TierHost>> Open(const TierOptions& options);
  virtual ~TierHost() = default;

  struct ShardParams {
    SharedValue<TableSpec> table;
    ShardId shard;
    ShardRange range;
    Executor* executor = nullptr;
    FetchHint* hint = nullptr;  // kept up to date while the store lives; may be null
    // Called off the executor, before rows with LSNs up to `lsn` go to RocksDB. On return the log
    // must hold those records, and have synced them if rows are to survive power loss.
    std::function<absl::Status(Lsn lsn)> before_write_back;
  };
  virtual absl::StatusOr<std::unique_ptr<TieredStore>> OpenShard(ShardParams params) = 0;
  // The parts of the memory for rows, 0 to 1, that the shards of the table keep whoever else asks,
  // and that they never exceed. Takes effect at once; rows beyond `most` leave.
  virtual void SetMemoryShare(TableId /*table*/, float /*least*/, float /*most*/) {}
  // Deletes a shard's rows and meta from the spill tier; the deletion is durable after the next
  // Flush. A kill in between may leave a part of the rows, so the caller must remember to delete
  // again. No TieredStore of the shard may be open; readers of its rows miss some from now on.
  virtual absl::Status DeleteShard(const SpillShard& shard) = 0;

  // The rows of `child` are a part of those of `parent`, from which it was cut: gives `child` the
  // parent's meta and highest LSN, unless it has a meta of its own. Neither is open. Durable with
  // the next Flush, and no later than whatever is written for `parent` from now on.
  virtual absl::Status InheritMeta(const SpillShard& parent, const SpillShard& child) = 0;

  // The state that was stored with a shard's rows; empty: none.
  virtual absl::StatusOr<std::string> ReadMeta(const SpillShard& /*shard*/) {
    return absl::UnimplementedError("these tiers read no metas");
  }
  // Stores the state, of which `highest` is the LSN, in place of the one that is there; empty:
  // none. From then on nothing tells which rows have changed before. The shard is not open. Durable
  // with the next Flush.
  virtual absl::Status ReplaceMeta(const SpillShard& /*shard*/, absl::string_view /*meta*/,
                                   Lsn /*highest*/) {
    return absl::UnimplementedError("these tiers replace no metas");
  }

  // For snapshots (docs/protocol.md). After a WriteBackAll, the rows are those of its LSN or later,
  // each stamped with its LSN, so that replay from that LSN makes them exact, as after a crash.
  // `above` not 0, the LSN of an earlier WriteBackAll: only rows stamped above it, which are all
  // rows that have changed since (of a deleted row its mark). The reader does not outlive the host.
  virtual absl::StatusOr<std::unique_ptr<ShardRowReader>> ReadShard(const SpillShard& shard,
                                                                    Lsn above) = 0;
  // As ReadShard, for an open shard and without a WriteBackAll: the rows are those of BeginPass's
  // LSN or later.
  virtual absl::StatusOr<std::unique_ptr<ShardRowReader>> ReadLive(const SpillShard& shard,
                                                                   LivePass pass) = 0;
  // The records of rows (`positions` ascend, each once) as the spill tier has them: record i lies
  // at records + i * record_bytes, and found[i] says whether it is there. DataLoss names shard and
  // id.
  virtual absl::Status ReadRows(const SpillShard& /*shard*/,
                                absl::Span<const uint64_t> /*positions*/, uint8_t* /*records*/,
                                uint8_t* /*found*/) {
    return absl::UnimplementedError("these tiers read no single rows");
  }
  // For rows that come from another server. The shard has no open TieredStore and no rows here
  // (DeleteShard). The writer does not outlive the host.
  virtual absl::StatusOr<std::unique_ptr<ShardRowWriter>> WriteShard(const SpillShard& shard) = 0;
  // The same for a shard that will be opened as soon as its rows are finished, with a log that
  // continues above `log_from` or a later LSN: as many rows as unused memory lasts for are in
  // memory then (TieredStore::TakeArrived). Tiers that cannot do this only write.
  virtual absl::StatusOr<std::unique_ptr<ShardRowWriter>> ReceiveShard(
      const SharedValue<TableSpec>& table, const ShardRange& range, ShardId shard,
      Lsn /*log_from*/) {
    return WriteShard(SpillShard(table, range, shard));
  }

  // The approximate bytes that a shard's rows take in the spill tier.
  virtual uint64_t SpilledBytes(const SpillShard& /*shard*/) { return 0; }
  // Gives back the disk space of rows of the shard that were replaced or deleted. Blocks.
  virtual absl::Status CompactShard(const SpillShard& /*shard*/) { return absl::OkStatus(); }

  // Takes away the marks of deleted rows of the shard, which may be open, whose LSNs are at most
  // `through`; the number of marks that stay. No reader for rows above an LSN below `through` sees
  // its deletions from now on. `go_on` is asked now and then; its error ends the call. Blocks while
  // it reads all rows of the shard.
  virtual absl::StatusOr<uint64_t> DropMarks(const SpillShard& /*shard*/, Lsn /*through*/,
                                             absl::FunctionRef<absl::Status()> /*go_on*/) {
    return 0;
  }

  // Makes everything written back so far durable: returns once it lies in SSTs. Call from a thread
  // that may block.
  virtual absl::Status Flush() = 0;

  // For tables of the durability class `checkpoint`: Freeze keeps a hard-linked snapshot of the
  // spill tier as it is now; RestoreTable puts the rows and metas of one table back to the last
  // frozen snapshot, or removes them when there is none.
  virtual absl::Status Freeze() = 0;
  virtual absl::Status RestoreTable(TableId table) = 0;

  struct Health {
    std::string background_error;  // RocksDB's: no space, I/O; empty when healthy
    bool damaged = false;          // a file is damaged and no write is accepted; see Renew
  };
  virtual Health GetHealth() const = 0;
  virtual void AddNumbers(StatusNumbers* /*numbers*/) const {}
  // The device whose memory holds the hottest rows; empty: none, and then it has no numbers.
  virtual std::string DeviceName() const { return ""; }
  virtual void AddDeviceNumbers(StatusNumbers* /*numbers*/) const {}
  // Permanent; empty when healthy. While it is not empty, shards with rows on the device answer
  // nothing.
  virtual std::string DeviceError() const { return ""; }
  // Pins memory of answers; null: there is no device. May outlive the host.
  virtual std::shared_ptr<MemoryPinner> answer_pinner() const { return nullptr; }
  // Clears a background error when space is back; OK when the spill tier accepts writes again.
  virtual absl::Status TryResume() = 0;
  // Starts over with an empty spill tier; frozen snapshots stay. No TieredStore may be open
  // (FailedPrecondition). Unavailable: a reader of ReadShard has not finished, or the disk fails,
  // and then nothing else works either; try again. Call from a thread that may block.
  virtual absl::Status Renew() = 0;
};

}  // namespace hotbed

#endif  // HOTBED_SERVER_TIERS_API_HOST_H_
