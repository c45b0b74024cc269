// The log of all shards of one server, multiplexed into one chain of segment files: one sync then
// covers many shards.
//
// Thread-safe. Appends of one shard are written in the order of their Append calls. Group commit:
// Append queues; a thread that calls Commit while no other thread writes becomes the writer and
// writes everything queued as one record group (record_group.h), with one writev (and one fdatasync
// when sync_interval_ms is 0); completions run on that thread, in order, outside of all locks.
// Commit on any other thread returns at once: the current writer takes its records along.
//
// A completion reports a record durable once the operating system has it (or, with sync_interval_ms
// 0, once it is synced). An append that fails (disk full, I/O error) cuts the file back to the last
// whole record, fails everything queued behind it, and leaves the log read-only until TryResume
// succeeds. A failed fdatasync, or a cut that fails, poisons the log: only a restart helps.
// Recovery never finds a record that was reported failed with any code but DataLoss. DataLoss comes
// from a poisoned log, whose last records recovery may or may not find: the answer to the client is
// "unknown", not "failed".
//
// After the append of LSN n of a shard has failed, the log refuses all LSNs of that shard above n
// until n (or a lower LSN) is appended again, so that a log never has a hole where an update was
// refused. ForgetShard lifts that.
#ifndef HOTBED_SERVER_SHARD_LOG_SHARD_LOG_H_
#define HOTBED_SERVER_SHARD_LOG_SHARD_LOG_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/clock.h"
#include "common/files/file_system.h"
#include "common/files/marks.h"
#include "common/ids.h"
#include "common/status_numbers.h"
#include "row_math/types.h"

namespace hotbed {

// Values are part of the format.
enum class RecordKind : uint8_t {
  kPush = 1,
  kOpen = 2,
  kForget = 3,
  kNoop = 4,
  kOptions = 5,
  kStepCommit = 6,
  kDelete = 7,  // a push without gradients: its rows are deleted
};

// Whether a record of this kind changes the rows that its ids name.
inline bool ChangesRows(RecordKind kind) {
  return kind == RecordKind::kPush || kind == RecordKind::kDelete;
}

// The part of an entry that the state machine (server/protocol) knows too.
struct EntryHead {
  RecordKind kind = RecordKind::kPush;
  bool open = false;    // a push that also opens its session on this shard
  bool staged = false;  // a push to a synchronous table: applied by its step's kStepCommit
  Epoch epoch = 0;
  Lsn lsn = 0;
  SessionId session = 0;  // 0: a commit
  Incarnation incarnation = 0;
  uint64_t seq = 0;  // of a commit: the sequence of part 0 of its step
  uint64_t prev_seq = 0;
};

// The fixed part of every record.
struct RecordHeader : EntryHead {
  bool last_part = false;
  bool assign = false;  // the rows are values, not gradients (RowUpdates::assign)
  bool shows = false;   // each row ends with f32 shows and f32 clicks (GradientRows::shows)
  RowType gradient_type = RowType::kFp32;
  ShardId shard;
  UpdateScalars scalars;
  uint32_t id_count = 0;
  uint32_t dim = 0;
};

// Bytes of one row of a record: its gradient, shows and clicks; 0 for kinds without rows (dim 0).
inline uint64_t GradientRowBytes(const RecordHeader& header) {
  if (header.dim == 0) return 0;
  return RowWireBytes(header.gradient_type, header.dim) + (header.shows ? kShowBytes : 0);
}

// A position in the chain of segments; grows from record to record.
struct LogPosition {
  uint64_t segment = 0;
  uint64_t offset = 0;
  friend auto operator<=>(const LogPosition& a, const LogPosition& b) = default;
};

// A record as recovery and followers read it. Pointers are valid during the visit.
struct RecordView {
  RecordHeader header;
  LogPosition at;                      // where it, or its entry in a group, begins
  const uint64_t* ids = nullptr;       // id_count, aligned
  const uint8_t* gradients = nullptr;  // id_count rows, contiguous
};

// One append, allocated by the caller and alive until `done` has run.
struct LogAppend {
  RecordHeader header;
  const uint64_t* ids = nullptr;
  // One pointer per row; contiguous rows are written as one piece.
  const uint8_t* const* gradients = nullptr;
  // Not empty: the whole record as EncodeRecord made it (segment_format.h), here or on another
  // server. `header` repeats its header; ids and gradients are ignored.
  absl::Span<const uint8_t> encoded;
  absl::AnyInvocable<void(absl::Status)> done;
  // The log's own, from Append until `done`.
  struct Queued {
    uint64_t bytes = 0;        // of the record by itself
    uint32_t payload_crc = 0;  // the plain CRC32C of ids, gradients and padding
    absl::Status refused;      // set when it must not be written
  } queued;
};

struct ShardLogOptions {
  std::string dir;
  // Bounds a segment. A new file is as long as an eighth of the log when it begins, and at least 16
  // MiB: the log is cut by whole segments, so a short log needs short ones. A file that is written
  // over keeps its length.
  uint64_t segment_bytes = 256ull << 20;
  int64_t sync_interval_ms = 1000;  // 0: fdatasync before every completion; < 0: never by itself
  // Beyond it Append fails its completion with ResourceExhausted.
  uint64_t queue_bytes_max = 256ull << 20;
  // The machine has restarted since the log was written (see IdentityFile). Bytes that were not
  // synced may be lost or garbled in any order, so the chain ends at its first record that is not
  // whole, and everything after it is cut and reported. If the machine has kept running, only a
  // record that the end of the newest file cuts short is torn; anything else is damage.
  bool rebooted = false;
  // The random id of this start (IdentityFile::run), which each record that it writes carries.
  uint64_t run = 0;
  // How far the log reached, and where it says so from now on. Records that were written before
  // that and are not there are damage, however the files end; after a reboot, records that were
  // synced before that. Records beyond must be of the last start that wrote here. Null: nothing is
  // known.
  Marks* marks = nullptr;
};

class ShardLog {
 public:
  // Scans the chain: cuts a torn tail of the newest segment, remembers damage anywhere else (see
  // Damage). DataLoss: the marks know of a log, and there is none at all, or one that went on
  // elsewhere: a copy's.
  static absl::StatusOr<std::unique_ptr<ShardLog>> Open(const ShardLogOptions& options,
                                                        FileSystem* files, const Clock* clock);
  virtual ~ShardLog() = default;

  // Before the first Append: visits every whole record in file order, except records that later
  // ones replaced. A record whose LSN is not above its shard's last one, and whose epoch differs
  // from that of the record at this LSN, replaces all records from that LSN on (docs/protocol.md).
  // The visitor's error ends the visit.
  using Visitor = std::function<absl::Status(const RecordView&)>;
  virtual absl::Status Replay(const Visitor& visitor) = 0;

  // Damage inside the chain (not a torn tail). Recovery cannot know whose records lay in a
  // destroyed range, so a shard is refused if it is named here, or if `all_shards` is set;
  // `message` names segment file, offset and, when known, shard.
  struct Damage {
    bool all_shards = false;
    std::vector<ShardId> shards;
    std::string message;
    LogPosition end;  // records from here on are whole, but for further damage
  };
  virtual const std::vector<Damage>& damage() const = 0;

  // The position of the next record, after syncing all records before it. A shard that this server
  // receives again counts its records from there on. Blocks.
  virtual absl::StatusOr<LogPosition> End() = 0;

  virtual void Append(LogAppend* append) = 0;
  virtual void Commit() = 0;
  // Blocks until every record whose completion has run, or is running, is synced. Called before
  // rows go to disk, since rows contain only completed records. Never runs completions, so it may
  // be called where a completion would deadlock (a flush listener).
  virtual absl::Status Sync() = 0;

  // Records of `shard` with an LSN below `lsn` are not needed. Deletes segments that no shard
  // needs, or keeps some to write over; behind a segment that is kept for a shard set aside,
  // empties them instead.
  virtual void SetLeastNeeded(ShardId shard, Lsn lsn) = 0;
  // While a shard is set aside, because no write-back frees its records, segments that only such
  // shards need count as Usage::bytes_aside. ForgetShard ends it too.
  virtual void SetAside(ShardId shard, bool aside) = 0;
  virtual void ForgetShard(ShardId shard) = 0;
  // `child` was cut from `parent`: the records of `parent` that are here count as records of both
  // from now on, until SetLeastNeeded of each.
  virtual void Inherit(ShardId parent, ShardId child) = 0;

  struct Usage {
    uint64_t bytes = 0;
    uint64_t bytes_aside = 0;  // part of `bytes`: segments that only shards set aside need
    uint64_t bytes_spare = 0;  // besides: of old segments, which new ones are written over
    uint64_t segments = 0;
    uint64_t appends = 0;
    uint64_t writes = 0;
    uint64_t syncs = 0;
    bool read_only = false;
    std::string error;
    uint64_t unsynced_bytes = 0;  // written since the last sync: a power loss may take them
    int64_t unsynced_age_ns = 0;  // since the oldest of them was written
    uint64_t torn_bytes = 0;      // cut by Open
    std::string torn_message;     // where, and what is known of the bytes; empty: none were cut
    // A shard that needs the oldest segment.
    bool has_oldest = false;
    ShardId oldest_shard;
  };
  virtual Usage GetUsage() const = 0;
  void AddNumbers(StatusNumbers* numbers) const;
  // Tries the disk again after an append failed. OK: appends are accepted again.
  // FailedPrecondition: poisoned. Must not be called from a completion.
  virtual absl::Status TryResume() = 0;
  // Deletes the files that it keeps to write over, if the disk has less free than they take or
  // `disk_is_full`: others cannot write to it. Called from time to time.
  virtual void GiveBackSpares(bool /*disk_is_full*/) {}
};

}  // namespace hotbed

#endif  // HOTBED_SERVER_SHARD_LOG_SHARD_LOG_H_
