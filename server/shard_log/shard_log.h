// The log of all shards of one server, multiplexed into one chain of segment files (DECISIONS L1).
//
// Thread-safe. Appends of one shard are written in the order of their Append calls. Group commit: Append queues; whoever
// calls Commit while nobody writes becomes the writer and writes everything queued with one writev (and one fdatasync when
// sync_interval_ms is 0); completions run on that thread, in order, outside of all locks. Others' Commit returns at once:
// the current writer takes their records with it.
//
// A record is durable for its completion when it was handed to the operating system (or synced, with sync_interval_ms 0).
// An append that fails (disk full, I/O error) cuts the file back to the last whole record, fails everything queued behind
// it, and leaves the log read-only until TryResume succeeds. A failed fdatasync, or a cut that fails, poisons the log: only a
// restart helps. A record that was reported failed is never found by recovery.
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
  bool open = false;       // a push that also opens its session here (DECISIONS S1)
  bool last_part = false;
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

// What recovery and followers read. Pointers are valid during the visit.
struct RecordView {
  RecordHeader header;
  const uint64_t* ids = nullptr;         // id_count, aligned
  const uint8_t* gradients = nullptr;    // id_count rows, contiguous
};

// One append, allocated by the caller and alive until `done` has run.
struct LogAppend {
  RecordHeader header;
  const uint64_t* ids = nullptr;
  const uint8_t* const* gradients = nullptr;  // one pointer a row; contiguous rows are written as one piece
  absl::AnyInvocable<void(absl::Status)> done;
};

struct ShardLogOptions {
  std::string dir;
  uint64_t segment_bytes = 256ull << 20;
  int64_t sync_interval_ms = 1000;  // 0: fdatasync before every completion; < 0: never by itself
  uint64_t queue_bytes_max = 256ull << 20;  // beyond it Append fails its completion with ResourceExhausted
};

class ShardLog {
 public:
  // Scans the chain: cuts a torn tail of the newest segment, remembers damage anywhere else (see Damage).
  static absl::StatusOr<std::unique_ptr<ShardLog>> Open(const ShardLogOptions& options, FileSystem* files,
                                                        const Clock* clock);
  virtual ~ShardLog() = default;

  // Before the first Append: visits every whole record in file order. The visitor's error ends the visit.
  using Visitor = std::function<absl::Status(const RecordView&)>;
  virtual absl::Status Replay(const Visitor& visitor) = 0;

  // Damage inside the chain (not a torn tail). Recovery cannot know whose records lay in a destroyed range, so a shard is
  // refused if it is named here, or if `all_shards` is set; `message` names segment file, offset and, when known, shard.
  struct Damage {
    bool all_shards = false;
    std::vector<ShardId> shards;
    std::string message;
  };
  virtual const std::vector<Damage>& damage() const = 0;

  virtual void Append(LogAppend* append) = 0;
  virtual void Commit() = 0;
  // Blocks until everything appended before the call is synced. For DECISIONS L3.
  virtual absl::Status Sync() = 0;

  // Records of `shard` with an LSN below `lsn` are not needed. Segments wholly below the need of all shards are deleted.
  virtual void SetLeastNeeded(ShardId shard, Lsn lsn) = 0;
  virtual void ForgetShard(ShardId shard) = 0;

  struct Usage {
    uint64_t bytes = 0;
    uint64_t segments = 0;
    uint64_t appends = 0;
    uint64_t writes = 0;
    uint64_t syncs = 0;
    bool read_only = false;
    std::string error;
    // The shard that holds back the oldest segment, and how many bytes could go if it were swept.
    bool has_oldest = false;
    ShardId oldest_shard;
  };
  virtual Usage GetUsage() const = 0;
  virtual absl::Status TryResume() = 0;
};

}  // namespace hotbed

#endif  // HOTBED_SERVER_SHARD_LOG_SHARD_LOG_H_
