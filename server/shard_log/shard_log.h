// The log of all shards of one server, multiplexed into one chain of segment files (DECISIONS L1).
//
// Thread-safe. Appends of one shard are written in the order of their Append calls. Group commit:
// Append queues; whoever calls Commit while nobody writes becomes the writer and writes everything
// queued with one writev (and one fdatasync when sync_interval_ms is 0); completions run on that
// thread, in order, outside of all locks. Others' Commit returns at once: the current writer takes
// their records with it.
//
// A record is durable for its completion when it was handed to the operating system (or synced,
// with sync_interval_ms 0). An append that fails (disk full, I/O error) cuts the file back to the
// last whole record, fails everything queued behind it, and leaves the log read-only until
// TryResume succeeds. A failed fdatasync, or a cut that fails, poisons the log: only a restart
// helps. A record that was reported failed with any code but DataLoss is never found by recovery;
// DataLoss comes from a poisoned log, whose last records may or may not be found: the answer to the
// client is "unknown", not "failed".
//
// After the append of LSN n of a shard has failed, the log takes nothing of that shard above n
// until n (or a lower LSN) has come again, so that a log never has a hole where an update was
// refused. ForgetShard lifts that.
#ifndef HOTBED_SERVER_SHARD_LOG_SHARD_LOG_H_
#define HOTBED_SERVER_SHARD_LOG_SHARD_LOG_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/clock.h"
#include "common/file_system.h"
#include "common/ids.h"
#include "row_math/types.h"

namespace hotbed {

// DECISIONS L6. Values are part of the format.
enum class RecordKind : uint8_t {
  kPush = 1,
  kOpen = 2,
  kForget = 3,
  kNoop = 4,
  kOptions = 5,
  kStepCommit = 6,
  kDelete = 7,
};

// The fixed part of every record.
struct RecordHeader {
  RecordKind kind = RecordKind::kPush;
  bool open = false;  // a push that also opens its session here (DECISIONS S1)
  bool last_part = false;
  bool assign = false;  // the rows are values, not gradients (RowUpdates::assign)
  bool staged = false;  // a push to a synchronous table: applied by its step's kStepCommit
  RowType gradient_type = RowType::kFp32;
  ShardId shard;
  Epoch epoch = 0;
  Lsn lsn = 0;
  SessionId session = 0;
  Incarnation incarnation = 0;
  uint64_t seq = 0;
  uint64_t prev_seq = 0;
  UpdateScalars scalars;
  uint32_t id_count = 0;
  uint32_t dim = 0;
};

// A place in the chain of segments; grows from record to record.
struct LogPosition {
  uint64_t segment = 0;
  uint64_t offset = 0;
  friend auto operator<=>(const LogPosition& a, const LogPosition& b) = default;
};

// What recovery and followers read. Pointers are valid during the visit.
struct RecordView {
  RecordHeader header;
  LogPosition at;                      // where it begins
  const uint64_t* ids = nullptr;       // id_count, aligned
  const uint8_t* gradients = nullptr;  // id_count rows, contiguous
};

// One append, allocated by the caller and alive until `done` has run.
struct LogAppend {
  RecordHeader header;
  const uint64_t* ids = nullptr;
  // One pointer a row; contiguous rows are written as one piece.
  const uint8_t* const* gradients = nullptr;
  // Not empty: the whole record as EncodeRecord made it (segment_format.h), here or on another
  // server; `header` is what it says, ids and gradients are not looked at.
  absl::Span<const uint8_t> encoded;
  absl::AnyInvocable<void(absl::Status)> done;
};

struct ShardLogOptions {
  std::string dir;
  uint64_t segment_bytes = 256ull << 20;
  int64_t sync_interval_ms = 1000;  // 0: fdatasync before every completion; < 0: never by itself
  // Beyond it Append fails its completion with ResourceExhausted.
  uint64_t queue_bytes_max = 256ull << 20;
  // The machine has restarted since the log was written (see IdentityFile). Bytes that were not
  // synced then may be lost or garbled in any order, so the chain ends at its first record that is
  // not whole, and what follows is cut and reported. Where the machine ran on, only a record that
  // the end of the newest file cuts short is torn; all else is damage.
  bool rebooted = false;
};

class ShardLog {
 public:
  // Scans the chain: cuts a torn tail of the newest segment, remembers damage anywhere else (see
  // Damage).
  static absl::StatusOr<std::unique_ptr<ShardLog>> Open(const ShardLogOptions& options,
                                                        FileSystem* files, const Clock* clock);
  virtual ~ShardLog() = default;

  // Before the first Append: visits every whole record in file order, but for those that later ones
  // replaced: a record whose LSN is not above its shard's last one, and whose epoch is another one
  // than that of what stood there, takes the place of all from that LSN on (docs/protocol.md). The
  // visitor's error ends the visit.
  using Visitor = std::function<absl::Status(const RecordView&)>;
  virtual absl::Status Replay(const Visitor& visitor) = 0;

  // Damage inside the chain (not a torn tail). Recovery cannot know whose records lay in a
  // destroyed range, so a shard is refused if it is named here, or if `all_shards` is set;
  // `message` names segment file, offset and, when known, shard.
  struct Damage {
    bool all_shards = false;
    std::vector<ShardId> shards;
    std::string message;
  };
  virtual const std::vector<Damage>& damage() const = 0;

  // Where the next record will stand; all before it is synced. Records of a shard that is held here
  // anew count from there on. Blocks.
  virtual absl::StatusOr<LogPosition> End() = 0;

  virtual void Append(LogAppend* append) = 0;
  virtual void Commit() = 0;
  // Blocks until every record whose completion has run, or is running, is synced. For DECISIONS L3:
  // rows hold only what was completed. Never runs completions, so it may be called where a
  // completion would deadlock (a flush listener).
  virtual absl::Status Sync() = 0;

  // Records of `shard` with an LSN below `lsn` are not needed. Segments wholly below the need of
  // all shards are deleted; those behind a segment that is kept for a shard set aside are emptied.
  virtual void SetLeastNeeded(ShardId shard, Lsn lsn) = 0;
  // `shard` is not served any more: its records are kept for whoever repairs it, and what it alone
  // holds back is Usage::bytes_aside. Until ForgetShard.
  virtual void SetAside(ShardId shard) = 0;
  virtual void ForgetShard(ShardId shard) = 0;

  struct Usage {
    uint64_t bytes = 0;
    uint64_t bytes_aside = 0;  // of `bytes`: segments that only shards set aside hold back
    uint64_t segments = 0;
    uint64_t appends = 0;
    uint64_t writes = 0;
    uint64_t syncs = 0;
    bool read_only = false;
    std::string error;
    uint64_t unsynced_bytes = 0;  // written since the last sync: what a power loss may take
    int64_t unsynced_age_ns = 0;  // of the oldest of them
    uint64_t torn_bytes = 0;      // cut by Open
    std::string torn_message;     // where, and what is known of it; empty when nothing was cut
    // The shard that holds back the oldest segment.
    bool has_oldest = false;
    ShardId oldest_shard;
  };
  virtual Usage GetUsage() const = 0;
  // Tries the disk again after an append failed. OK: appends are taken again. FailedPrecondition:
  // poisoned. Must not be called from a completion.
  virtual absl::Status TryResume() = 0;
};

}  // namespace hotbed

#endif  // HOTBED_SERVER_SHARD_LOG_SHARD_LOG_H_
