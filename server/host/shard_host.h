// The shards of one server process: finds them, fences them by epoch, and opens, activates and
// drops them as the coordinator assigns. An interface, so that streams and the coordinator's link
// can be tested without shards; shard_host.cc implements it.
//
// Thread-safe. Pull and Push block on nothing; of the others, those that say so.
#ifndef HOTBED_SERVER_HOST_SHARD_HOST_H_
#define HOTBED_SERVER_HOST_SHARD_HOST_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/clock.h"
#include "common/files/file_system.h"
#include "common/ids.h"
#include "common/status_numbers.h"
#include "common/tables/shard_record.h"
#include "common/tables/table_spec.h"
#include "server/host/row_files.h"
#include "server/host/transfer/transfer_progress.h"
#include "server/shard/change_feed.h"
#include "server/shard/replica/given_out.h"
#include "server/shard/replica/replica_message.h"
#include "server/shard/request/requests.h"
#include "server/shard/shard_snapshot.h"
#include "server/shard/shard_status.h"
#include "server/tiers/api/answer_memory.h"

namespace hotbed {

class DeviceTier;

struct ShardHostOptions {
  std::string data_dir;  // log/, spill/, promises, IDENTITY inside
  // Where something is missing or damaged so that Open would fail, everything here is given up: it
  // is moved aside, and the shards that had a replica here are refused.
  bool adopt_incomplete = false;
  uint64_t host_bytes = 1ull << 30;     // all memory of the process (host_budget.h)
  uint64_t spill_bytes_max = 0;         // 0: no limit
  int64_t log_sync_interval_ms = 1000;  // 0: fdatasync before every acknowledgement
  uint64_t log_bytes_max =
      4ull << 30;  // write-back keeps the log below; beyond, pushes are refused
  uint64_t log_segment_bytes = 256ull << 20;
  int pool_threads = 2;              // for misses, write-back and the rest of a long strand queue
  uint32_t pull_ids_max = 1u << 20;  // per segment, pull or push; beyond it INVALID_ARGUMENT
  // Per shard. Beyond it a new session displaces the one that has been silent for longest, if that
  // is at least session_idle_ms; else it gets RESOURCE_EXHAUSTED.
  uint32_t sessions_max = 1u << 16;
  int64_t session_idle_ms = 3'600'000;
  // How often a checkpoint of the tables of class checkpoint is kept, if there were pushes to them;
  // 0: at Shutdown only.
  int64_t checkpoint_interval_ms = 300'000;
  // For pushes to synchronous tables that wait for their step's commit; 0: as CarveHostBytes says.
  uint64_t staged_bytes_max = 0;
  // For the sessions that the shards remember, of which each takes up to 64 bytes per shard; beyond
  // it as beyond sessions_max. 0: as CarveHostBytes says.
  uint64_t session_bytes_max = 0;
  // For records kept in memory for other replicas; 0: as CarveHostBytes says.
  uint64_t replica_tail_bytes = 0;
  // The memory for those who follow shards; null: nobody can.
  std::shared_ptr<ChangeMemory> change_memory;
  // For copies of shards into files and from them (CopyMemory); 0: as CarveHostBytes says.
  uint64_t copy_bytes_max = 0;
  // How long a replica that is no longer in its shard's record is kept while the shard lacks
  // replicas: this server may be asked to hold it again, and then needs only the end of the log.
  int64_t keep_left_ms = 60'000;
  // How long a shard at least remembers which rows were deleted, for readers of changes, unless it
  // has deleted more rows than it has.
  int64_t keep_deletions_ms = 7 * 24 * 3'600'000ll;
  uint64_t hot_bytes = 0;                // of the hot tier; 0: as CarveHostBytes says
  uint64_t snapshot_file_bytes_min = 0;  // see TierOptions; 0: its default
  // See TierOptions; null: no device.
  std::function<absl::StatusOr<std::unique_ptr<DeviceTier>>()> open_device;
  // Reads checkpoints for tables that begin with the rows of one; outlives the host. Null: none.
  RowSource* restores = nullptr;
  FileSystem* files = nullptr;  // for log, promises, catalog and identity; null: the real one
};

// A server's state for metrics, /statusz and heartbeats. Its fields may be microseconds apart.
struct HostStatus {
  StatusNumbers numbers;  // each part of the host adds its own
  std::string device;     // whose memory holds the hottest rows; empty: none
  StatusNumbers device_numbers;
  std::string device_error;  // why the device has failed, for good; empty: it works
  bool read_only = false;
  std::string read_only_reason;
  std::optional<uint64_t> free_bytes;  // for rows: on the data disk, below spill_bytes_max
  std::vector<ShardStatus> shards;
};

class ShardHost : public ReplicaSink {
 public:
  // Opens the data directory: locks it, checks its version, recovers the shards from the spill tier
  // and the log. Shards are not served before ApplyAssignment and activation. Blocks.
  static absl::StatusOr<std::unique_ptr<ShardHost>> Open(const ShardHostOptions& options,
                                                         const Clock* clock);
  ~ShardHost() override = default;

  // --- data plane (pull_stream, push_stream, lookup_service)
  virtual std::shared_ptr<Shard> Find(ShardId shard) const = 0;  // null: not held here
  // Find for each of `ids`, in order: for the segments of a message. What is returned keeps the
  // shards alive.
  virtual std::shared_ptr<const void> FindAll(absl::Span<const ShardId> ids,
                                              std::vector<Shard*>* shards) const = 0;
  // The dimension of a shard that Find returned; the name of its table, and whether it is hashed.
  static uint32_t DimOf(const Shard& shard);
  static const std::string& TableNameOf(const Shard& shard);
  static bool IsHashed(const Shard& shard);
  virtual void Pull(PullWork* work) = 0;
  virtual void Push(PushWork* work) = 0;
  // The newest record known of a shard (for WRONG_EPOCH), whether or not it is held here.
  virtual std::optional<ShardRecord> RecordOf(ShardId shard) const = 0;

  // --- control (the coordinator link)
  struct Identity {
    ServerId server = 0;
    std::string cluster_id;
    // The start (IdentityFile), which SetIdentity does not look at.
    uint64_t start = 0;
    uint64_t run = 0;
    std::vector<uint64_t> runs_before;
    uint64_t generation = 0;  // of the cluster's metadata (IdentityFile)
    std::string gave_up;      // what was missing, where --adopt-incomplete gave the data up
  };
  // From the data directory; server and cluster are empty while it is new.
  virtual Identity identity() const = 0;
  // The server has registered. FailedPrecondition: IDENTITY names another server or cluster.
  virtual absl::Status SetIdentity(const Identity& identity) = 0;
  // The incarnation of this process. Call it before the first assignment.
  virtual void SetIncarnation(Incarnation incarnation) = 0;

  // Learns the tables and records that have changed; opens and drops shards accordingly.
  // Idempotent; records older than the known ones are ignored. After an error, call it again.
  // Blocks.
  virtual absl::Status ApplyAssignment(const std::vector<TableSpec>& tables,
                                       const std::vector<ShardRecord>& records,
                                       const std::vector<TableId>& tables_dropped) = 0;
  // Shards whose promise is durable and whose state is recovered, so that they wait for the
  // compare-and-set to active=true. The link asks the coordinator for it and passes the resulting
  // records to ApplyAssignment, until the list is empty.
  struct ShardEpoch {
    ShardId shard;
    Epoch epoch;
  };
  virtual std::vector<ShardEpoch> ShardsToActivate() const = 0;
  // The listener runs, on any thread, when ShardsToActivate, JoinsReady or LostReplicas may have
  // become non-empty.
  virtual void SetActivationListener(std::function<void()> listener) = 0;

  // --- other replicas
  // Call it before the first assignment; the network outlives the host's Shutdown. Without one,
  // replicated shards take no pushes.
  virtual void SetReplicaNetwork(ReplicaNetwork* network) = 0;
  // Learners that already acknowledge for shards whose primaries are here. Each is listed until the
  // shard's record has it as a member.
  struct JoinReady {  // a shard in an epoch, and another replica of it
    ShardId shard;
    Epoch epoch = 0;
    Member member;
    friend bool operator==(const JoinReady& a, const JoinReady& b) = default;
  };
  virtual std::vector<JoinReady> JoinsReady() const = 0;
  // Members and acknowledging learners that do not answer their shard's primary, which is here and
  // commits nothing without them (ShardCore::SilentMembers). At most kSilentMax.
  virtual std::vector<JoinReady> SilentMembers() const = 0;
  static constexpr size_t kSilentMax = 4096;
  // Snapshot transfers from here to other servers: those in flight, then those that wait.
  virtual std::vector<TransferProgress> Transfers() const = 0;
  virtual void SetTransferLimits(const TransferLimits& limits) = 0;

  // --- checkpoints
  struct CopyOptions {
    ChangePosition above;            // not 0: only rows that have changed since, if that is known
    bool writes_back_first = false;  // so that a later copy finds unchanged rows unchanged
    uint64_t sink_bytes = 0;         // memory that the sink takes
    // Its error ends a copy that waits for memory.
    std::function<absl::Status()> wanted = [] { return absl::OkStatus(); };
  };
  // Takes rows for a later CopyTaken (shard_copy.h). Blocks.
  virtual absl::StatusOr<TakenRows> Take(ShardId /*shard*/, const ChangePosition& /*above*/) {
    return absl::UnimplementedError("this host takes no rows");
  }
  // Copies the rows of a shard, whose primary is here, as of one LSN (shard_copy.h), when there is
  // memory for it (CopyMemory). Blocks.
  virtual absl::StatusOr<CopiedShard> Copy(ShardId /*shard*/, const CopyOptions& /*options*/,
                                           RowSink* /*sink*/) {
    return absl::UnimplementedError("this host copies no shards");
  }
  // See shard_copy.h. Blocks.
  virtual absl::StatusOr<Snapshot> StillRows(const std::shared_ptr<Shard>& /*shard*/) {
    return absl::UnimplementedError("this host reads no shards");
  }
  struct RestoreProgress {
    std::vector<std::pair<ShardId, absl::Status>> shards;  // not ready, with the last try's error
    uint64_t bytes_read = 0;                               // since the process started
  };
  virtual RestoreProgress Restores(TableId /*table*/) const { return {}; }

  // Replicas here that are damaged, have diverged from their primary, or cannot take its records.
  // Each is listed until the coordinator has taken this server out of the shard's record, so that a
  // new replica can be made. An only member is listed too: if its epoch was never active, the
  // coordinator may go back to the members of the previous one. So are learners that may have
  // acknowledged (Shard::ReplicaLost).
  struct LostReplica {
    ShardId shard;
    Epoch epoch = 0;
    std::string why;  // for people
  };
  virtual std::vector<LostReplica> LostReplicas() const = 0;
  // The replicas here, for the coordinator when all members of a shard are gone. Blocks.
  struct HeldReplica {
    ShardId shard;
    LogEnd end;
    bool nothing = false;  // no replica is here, though the record asks for one
    bool damaged = false;
    bool behind = false;
    Epoch member_of = 0;
    uint64_t committed_step = 0;  // of a synchronous table
  };
  // All of them; or, also where nothing is here, those of shards whose record asks for what an
  // earlier process of this server held (ShardRecord::AsksFor). A fence, whose record names no
  // process, has to be promised first: until then a primary of an earlier epoch may still count on
  // the replica, and it grows.
  virtual std::vector<HeldReplica> HeldReplicas(bool asked_for) const = 0;
  // The facts that this server remembers of its cluster, for a coordinator that has lost its
  // metadata: the newest record known of each shard in HeldReplicas(false), its epoch no lower than
  // the one promised, and the tables of these shards.
  struct Recollection {
    std::vector<TableSpec> tables;
    std::vector<ShardRecord> records;
    std::map<ServerId, std::string> servers;  // all of the cluster, with their names
  };
  virtual Recollection Recollect() const { return {}; }
  // All servers of the cluster as the coordinator names them; kept for Recollect.
  virtual void LearnServers(const std::map<ServerId, std::string>& /*servers*/) {}
  // --- cuts of shards (server/cluster/cut_link.h)
  // Prepares the cut of a shard: brings its dirty rows to the spill tier while it is used. On the
  // server of its primary, where other replicas follow it, pushes are refused from then on, and all
  // of them hold everything that was taken. The epoch to commit the cut in; 0: the primary is
  // elsewhere, and nothing else is to be done here. After an error, call it again. Blocks.
  virtual absl::StatusOr<Epoch> PrepareCut(ShardId /*shard*/) { return 0; }
  // The same for two neighbours that are to be merged: pushes to both are refused from then on,
  // also where no other replica follows them. Where their logs end then.
  struct MergeReady {
    Epoch epoch = 0;
    Epoch epoch_with = 0;
    LogEnd end;
    LogEnd end_with;
  };
  virtual absl::StatusOr<MergeReady> PrepareMerge(ShardId /*lower*/, ShardId /*upper*/) {
    return MergeReady();
  }
  // The coordinator has refused the cut for good.
  virtual void GiveUpCut(ShardId /*shard*/) {}
  // Every shard that has rows here, including rows that are being received or deleted.
  virtual std::vector<ShardId> Held() const = 0;
  // Shards that were cut, and wait here for the records of parts that do not name this server.
  virtual std::vector<ShardId> PartsWanted() const { return {}; }
  // The highest numbers that the coordinator has given out; higher ones are taken from nobody.
  virtual void LearnGivenOut(uint64_t /*session*/, const std::vector<GivenOut::TableStep>&) {}
  // Strict pulls of replicated shards are answered until then (Clock::NowNs() scale).
  virtual void SetLease(int64_t until_ns) = 0;

  virtual HostStatus Status() const = 0;
  // The shards whose primary is here.
  struct Primaries {
    size_t shards = 0;
    size_t waiting = 0;  // for recovery or activation
    size_t refused = 0;  // answered with an error; why the first of them is
    std::string first_error;
  };
  virtual Primaries CountPrimaries() const = 0;
  // Each of them is active or reports its error, and the device works.
  bool Ready() const { return DeviceError().empty() && CountPrimaries().waiting == 0; }
  // Which shards wait for a decision of the coordinator about the replicas here; empty: none.
  virtual std::string UndecidedText() const { return ""; }
  // Empty, or why the device has failed.
  virtual std::string DeviceError() const { return ""; }
  // Pins the memory of answers for the device; null: there is no device. May outlive the host.
  virtual std::shared_ptr<MemoryPinner> answer_pinner() const { return nullptr; }

  // Stops taking work, writes all rows back, marks the data directory clean. Blocks; a further call
  // waits for the first one and has its result.
  virtual absl::Status Shutdown() = 0;
};

}  // namespace hotbed

#endif  // HOTBED_SERVER_HOST_SHARD_HOST_H_
