// The shards living in this process: finds them, fences them by epoch, opens, activates and drops
// them.
//
// Thread-safe. Pulls and pushes read an immutable map of shards that is swapped when the assignment
// changes.
#ifndef HOTBED_SERVER_HOST_SHARD_HOST_H_
#define HOTBED_SERVER_HOST_SHARD_HOST_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/clock.h"
#include "common/file_system.h"
#include "common/ids.h"
#include "common/shard_record.h"
#include "common/table_spec.h"
#include "server/shard/replica_message.h"
#include "server/shard/requests.h"
#include "server/shard/shard_status.h"
#include "server/tiers/api/answer_memory.h"

namespace hotbed {

class DeviceTier;

struct ShardHostOptions {
  std::string data_dir;                 // log/, spill/, promises, IDENTITY inside
  uint64_t host_bytes = 1ull << 30;     // DECISIONS L10: everything is carved out of this
  uint64_t spill_bytes_max = 0;         // 0: no limit
  int64_t log_sync_interval_ms = 1000;  // 0: fdatasync before every acknowledgement
  uint64_t log_bytes_max = 4ull << 30;  // the sweeper keeps the log below
  uint64_t log_segment_bytes = 256ull << 20;
  int pool_threads = 2;              // misses, write-back and what a strand leaves over
  uint32_t pull_ids_max = 1u << 20;  // a segment, pull or push; beyond it INVALID_ARGUMENT
  // Of a shard. Beyond it a new one displaces those that have been silent longest, at least for
  // session_idle_ms, or gets RESOURCE_EXHAUSTED.
  uint32_t sessions_max = 1u << 16;
  int64_t session_idle_ms = 3'600'000;
  // Tables of class checkpoint are kept as they are so often, if pushed to; 0: at Shutdown only.
  int64_t checkpoint_interval_ms = 300'000;
  // Pushes to synchronous tables that wait for their step's commit; 0: what CarveHostBytes gives.
  uint64_t staged_bytes_max = 0;
  // Records kept in memory for other copies; 0: what CarveHostBytes gives.
  uint64_t replica_tail_bytes = 0;
  // A copy that an active record does without stays so long while the shard is short of copies: its
  // server may be asked for one again, and then needs the end of the log only.
  int64_t keep_left_ms = 60'000;
  uint64_t hot_bytes = 0;            // of the hot tier; 0: what CarveHostBytes leaves of host_bytes
  uint64_t copy_file_bytes_min = 0;  // as TierOptions has it; 0: its default
  // As TierOptions has it.
  std::function<absl::StatusOr<std::unique_ptr<DeviceTier>>()> open_device;
  FileSystem* files = nullptr;  // under log, promises and identity; null: the real one
};

// What the metrics, /statusz and heartbeats show. A snapshot; fields may be microseconds apart.
struct HostStatus {
  uint64_t host_bytes_limit = 0;
  uint64_t hot_bytes_limit = 0;
  uint64_t hot_bytes = 0;
  std::string device;  // whose memory holds the hottest rows; empty: none
  uint64_t device_bytes_limit = 0;
  uint64_t device_bytes = 0;
  uint64_t device_pinned_bytes = 0;       // of answers' memory
  uint64_t device_rows_direct_bytes = 0;  // as DeviceTier counts them
  uint64_t device_rows_copied_bytes = 0;
  std::string device_error;  // it has failed, for good
  uint64_t block_cache_bytes = 0;
  uint64_t memtable_bytes = 0;
  uint64_t spill_bytes = 0;
  uint64_t staged_bytes = 0;
  uint64_t staged_bytes_limit = 0;
  uint64_t log_bytes = 0;
  uint64_t log_refused_bytes = 0;  // of log_bytes: kept for refused shards alone
  uint64_t checkpoints = 0;        // kept of class checkpoint since the start
  uint64_t log_appends = 0;
  uint64_t log_writes = 0;
  uint64_t log_syncs = 0;
  uint64_t replica_tail_bytes = 0;  // records kept in memory for other copies
  uint64_t replica_tail_bytes_limit = 0;
  uint64_t records_sent = 0;  // to other copies
  uint64_t records_taken = 0;
  uint64_t replica_messages_refused = 0;
  uint64_t replicas_diverged = 0;  // shards found to differ from their primary, since the start
  uint64_t copies_sent = 0;        // copies of whole shards
  uint64_t copies_failed = 0;
  uint64_t copies_received = 0;
  uint64_t copied_bytes_sent = 0;
  uint64_t copied_bytes_received = 0;
  uint64_t copy_rate_now = 0;  // bytes a second that copies may take now; 0: no limit
  int64_t pull_p99_ns = 0;     // of the last second; 0: no pulls
  bool read_only = false;
  std::string read_only_reason;
  uint64_t spill_renewals = 0;         // of a damaged spill tier, since the process began
  std::optional<uint64_t> free_bytes;  // for rows: on the data disk, below spill_bytes_max
  std::vector<ShardStatus> shards;
};

class ShardHost : public ReplicaSink {
 public:
  // Opens the data directory: locks it, checks version and cluster, recovers log and spill. Shards
  // are not served before ApplyAssignment and activation.
  static absl::StatusOr<std::unique_ptr<ShardHost>> Open(const ShardHostOptions& options,
                                                         const Clock* clock);
  ~ShardHost() override = default;

  // --- data plane (pull_stream, push_stream, lookup_service)
  virtual std::shared_ptr<Shard> Find(ShardId shard) const = 0;  // null: not held here
  // dim and, for pulls, bytes of a row of a shard that Find returned.
  static uint32_t DimOf(const Shard& shard);
  virtual void Pull(PullWork* work) = 0;
  virtual void Push(PushWork* work) = 0;
  // The newest record known of a shard (for WRONG_EPOCH), whether or not it is held here.
  virtual std::optional<ShardRecord> RecordOf(ShardId shard) const = 0;

  // --- control (the coordinator link)
  struct Identity {
    ServerId server = 0;
    std::string cluster_id;
  };
  // From the data directory; zeros when it is new.
  virtual Identity identity() const = 0;
  // Writes IDENTITY once; another cluster's or server's is an error naming both.
  virtual absl::Status SetIdentity(const Identity& identity) = 0;
  // The incarnation of this process, before the first assignment.
  virtual void SetIncarnation(Incarnation incarnation) = 0;

  // What the coordinator last said: tables and records changed. Opens, re-opens (epoch) and drops
  // shards. Idempotent; records older than those known are ignored.
  virtual absl::Status ApplyAssignment(const std::vector<TableSpec>& tables,
                                       const std::vector<ShardRecord>& records,
                                       const std::vector<TableId>& tables_dropped) = 0;
  // Shards whose promise is durable and whose state is recovered, that wait for the active=true
  // compare-and-set. The link asks the coordinator, then reports the resulting records through
  // ApplyAssignment. Ask again until the list is empty.
  struct ShardEpoch {
    ShardId shard;
    Epoch epoch;
  };
  virtual std::vector<ShardEpoch> ShardsToActivate() const = 0;
  // Called (from any thread) when ShardsToActivate, JoinsReady or LostReplicas may have become
  // non-empty.
  virtual void SetActivationListener(std::function<void()> listener) = 0;

  // --- other copies
  // Before the first assignment; outlives the host's Shutdown. Without one, shards of several
  // members take no pushes.
  virtual void SetReplicaNetwork(ReplicaNetwork* network) = 0;
  // Learners that shards, whose primaries are here, count on already; told until the record has
  // them.
  struct JoinReady {  // a shard of this epoch, and another copy of it
    ShardId shard;
    Epoch epoch = 0;
    Member member;
  };
  virtual std::vector<JoinReady> JoinsReady() const = 0;
  // Members, and learners that are counted on, that answer nothing to their shard's primary, which
  // is here and commits nothing without them (ShardCore::SilentMembers). At most kSilentMax.
  virtual std::vector<JoinReady> SilentMembers() const = 0;
  static constexpr size_t kSilentMax = 4096;
  // Copies of whole shards on their way from here, those under way first.
  struct TransferProgress {
    ShardId shard;
    Member to;
    uint64_t bytes_copied = 0;
    uint64_t bytes_total = 0;
    uint64_t bytes_per_s = 0;
    uint32_t passes = 0;  // 1: all rows; further ones: those that have changed meanwhile
    uint64_t changed_bytes_per_s = 0;  // of rows, by pushes, before the last pass
    bool beyond_rate = false;          // TransferLimits::bytes_per_s does not hold it back any more
  };
  virtual std::vector<TransferProgress> Transfers() const = 0;
  struct TransferLimits {
    uint64_t bytes_per_s = 0;  // 0: no limit
    bool paused = false;
    uint32_t pull_p99_ms_max = 0;  // 0: copies never slow down for it
  };
  virtual void SetTransferLimits(const TransferLimits& limits) = 0;
  // Copies here, as a member, that are damaged, differ from their primary's or cannot take what it
  // has: told until the coordinator has taken this server out of the members, so that a new copy
  // can come. (Of the only member too: in an epoch that never was active it may go back to those of
  // the one before.) Also of learners that may be counted on (Shard::CopyLost).
  struct LostReplica {
    ShardId shard;
    Epoch epoch = 0;
    std::string why;  // for people
  };
  virtual std::vector<LostReplica> LostReplicas() const = 0;
  // Every shard of which rows are here, also those on their way in or out.
  virtual std::vector<ShardId> Held() const = 0;
  // Strict pulls of shards of several members are answered until then (Clock::NowNs() scale).
  virtual void SetLease(int64_t until_ns) = 0;

  virtual HostStatus Status() const = 0;
  // Every shard assigned here is recovered and active (or reports its error), and the device works.
  virtual bool Ready() const = 0;
  // Empty, or why the device has failed.
  virtual std::string DeviceError() const { return ""; }
  // For memory of answers; null: there is no device. May outlive the host.
  virtual std::shared_ptr<MemoryPinner> answer_pinner() const { return nullptr; }

  // Stops taking work, writes everything back, marks the data directory clean. Blocks.
  virtual absl::Status Shutdown() = 0;
};

}  // namespace hotbed

#endif  // HOTBED_SERVER_HOST_SHARD_HOST_H_
