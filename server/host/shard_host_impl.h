// The shard host's own parts. Only shard_host*.cc include this.
#ifndef HOTBED_SERVER_HOST_SHARD_HOST_IMPL_H_
#define HOTBED_SERVER_HOST_SHARD_HOST_IMPL_H_

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/synchronization/mutex.h"
#include "common/thread_pool.h"
#include "server/host/catalog_file.h"
#include "server/host/copy_pace.h"
#include "server/host/copy_receiver.h"
#include "server/host/copy_sender.h"
#include "server/host/host_budget.h"
#include "server/host/shard_host.h"
#include "server/shard/pull_latency.h"
#include "server/shard/replica_budget.h"
#include "server/shard/replica_outlet.h"
#include "server/shard/shard.h"
#include "server/shard_log/identity_file.h"
#include "server/shard_log/promise_file.h"
#include "server/shard_log/shard_log.h"

namespace hotbed {

class ShardHostImpl : public ShardHost, private ReplicaOutlet, private CopyReceiver::Site {
 public:
  ShardHostImpl(const ShardHostOptions& options, const Clock* clock);
  // Without Shutdown before: as a kill leaves it, but in order. Nothing is written back.
  ~ShardHostImpl() override;
  absl::Status Start();

  std::shared_ptr<Shard> Find(ShardId shard) const override;
  void Pull(PullWork* work) override;
  void Push(PushWork* work) override;
  std::optional<ShardRecord> RecordOf(ShardId shard) const override;

  Identity identity() const override;
  absl::Status SetIdentity(const Identity& identity) override;
  void SetIncarnation(Incarnation incarnation) override;
  absl::Status ApplyAssignment(const std::vector<TableSpec>& tables,
                               const std::vector<ShardRecord>& records,
                               const std::vector<TableId>& tables_dropped) override;
  std::vector<ShardEpoch> ShardsToActivate() const override;
  void SetActivationListener(std::function<void()> listener) override;
  void SetReplicaNetwork(ReplicaNetwork* network) override;
  void OnReplicaMessage(const Member& from, ReplicaMessage message) override;
  void OnPeerLost(const Member& peer) override;
  std::vector<JoinReady> JoinsReady() const override;
  std::vector<JoinReady> SilentMembers() const override;
  std::vector<CopyProgress> Copies() const override;
  std::vector<LostCopy> CopiesLost() const override;
  void SetCopyLimits(const CopyLimits& limits) override { pace_.SetLimits(limits); }
  std::vector<ShardId> Held() const override;
  void SetLease(int64_t until_ns) override {
    replica_budget_.lease_until_ns.store(until_ns, std::memory_order_release);
  }
  HostStatus Status() const override;
  bool Ready() const override;
  std::string DeviceError() const override { return tiers_->DeviceError(); }
  std::shared_ptr<MemoryPinner> answer_pinner() const override { return tiers_->answer_pinner(); }
  absl::Status Shutdown() override;

 private:
  struct Entry {
    std::shared_ptr<Shard> shard;  // null: another server's
    ShardRecord record;            // epoch 0: recovered from disk, not heard of yet
  };
  using ShardMap = absl::flat_hash_map<ShardId, Entry>;

  // The current map, by way of this thread's copy of the pointer: no lock and no shared write
  // unless it changed. Valid until the next call on this thread.
  const ShardMap& Map() const;
  // The same, for who enters strands meanwhile: what these run may be a next call.
  std::shared_ptr<const ShardMap> HeldMap() const;
  void Publish(ShardMap map);
  template <typename Segment>
  void RefuseUnknown(Segment* segment) const;

  // ReplicaOutlet: what shards ask for.
  void Send(ReplicaMessage message) override;
  void StartCopy(ShardId shard, const Member& to) override;
  void PromiseWanted(ShardId shard, Epoch epoch) override;
  void HasNews() override;
  void WaitsUntil(int64_t ns) override;

  // CopyReceiver::Site.
  bool Wants(ShardId shard, const Member& from, Epoch epoch) const override;
  absl::Status Begin(ShardId shard, const Member& from, Epoch epoch, Lsn lsn) override;
  absl::Status Write(ShardId shard, absl::string_view block) override;
  absl::Status Finish(ShardId shard, absl::string_view meta) override;
  void Abandon(ShardId shard) override;
  void Reply(ReplicaMessage message) override { Send(std::move(message)); }
  // A shard whose rows are being written, by the receiver's thread alone.
  struct Arriving {
    TableSpec table;
    ShardRange range;
    std::shared_ptr<ShardRowWriter> rows;
  };
  absl::StatusOr<Arriving> ArrivingOf(ShardId shard) const ABSL_LOCKS_EXCLUDED(control_mu_);
  absl::Status OpenInstalled(ShardId shard, const Arriving& arriving, const LogPosition& log_from)
      ABSL_LOCKS_EXCLUDED(control_mu_);
  absl::Status CheckArriving(ShardId shard) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(control_mu_);
  absl::Status PublishInstalled(ShardId id, const std::shared_ptr<Shard>& shard,
                                const LogPosition& log_from) ABSL_LOCKS_EXCLUDED(control_mu_);

  // Short and urgent: promises, ticks, requests that have waited for long enough. One thread.
  void TickLoop();
  bool TickWakes() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(tick_mu_) {
    return ticks_stop_ || tick_now_;
  }
  void TickShards(bool all);
  void ExpireWaiting(int64_t now_ns);

  // Start, in order.
  absl::Status OpenFiles();
  absl::Status OpenTiers();
  absl::Status OpenLog();
  absl::Status RecoverShards();
  absl::Status WipeUnfinished();
  absl::Status SaveBootId();
  absl::Status ReplayLog(const ShardMap& map);
  void RetryReplay(const ShardMap& map);
  std::shared_ptr<Shard> MakeShard(const TableSpec& table, ShardId id, const ShardRange& range,
                                   bool installed = false);
  Member Self() const;
  std::string PathOf(const char* name) const;

  // ApplyAssignment, in order.
  absl::Status LearnTables(const std::vector<TableSpec>& tables, const ShardMap& map)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(control_mu_);
  absl::Status AddShards(const std::vector<ShardRecord>& records, ShardMap* map)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(control_mu_);
  static bool IsOpen(const ShardMap& map, ShardId shard) {
    const auto it = map.find(shard);
    return it != map.end() && it->second.shard != nullptr;
  }
  // Publishes the map, then tells the shards; those that have no copy here any more are dropped.
  // Not `all`: only what is open learns its record.
  void LearnRecords(const std::vector<ShardRecord>& records, bool all, ShardMap map)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(control_mu_);
  // Whether this server, which the record does without, may be asked for a copy again.
  bool MayReturn(const ShardRecord& record) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(control_mu_);
  void DropLeft(std::vector<std::shared_ptr<Shard>> left)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(control_mu_);
  // Those that were kept for as long as they may be.
  void DropKeptLeft(int64_t now_ns) ABSL_LOCKS_EXCLUDED(control_mu_);
  void TellShards(const std::vector<std::pair<std::shared_ptr<Shard>, ShardRecord>>& told);
  // What shards have asked to be promised, in one write; what fails stays wanted.
  absl::Status KeepPromises() ABSL_LOCKS_EXCLUDED(promise_mu_);
  absl::Status SweepWhereLost();
  void DropTables(const std::vector<TableId>& tables, ShardMap* map)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(control_mu_);
  void CallListener();

  // Upkeep: one thread.
  void UpkeepLoop();
  void Upkeep(int64_t now_ns);
  void SizeSomeShards();
  void ResumeWrites(const TierHost::Usage& tiers);
  void FinishDrops();
  absl::Status MarkDropped(const std::vector<std::shared_ptr<Shard>>& shards)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(control_mu_);
  void ForgetDropped(const std::vector<std::shared_ptr<Shard>>& deleted)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(control_mu_);
  void AddMissing() ABSL_EXCLUSIVE_LOCKS_REQUIRED(control_mu_);
  void ForgetDroppedTables(Catalog* catalog) ABSL_EXCLUSIVE_LOCKS_REQUIRED(control_mu_);
  absl::Status SaveCatalog(Catalog changed) ABSL_EXCLUSIVE_LOCKS_REQUIRED(control_mu_);
  void SweepWhereDue(int64_t now_ns);
  // A spill tier that is damaged takes nothing any more. Copies in it that others have too are
  // given up; once no shard depends on it, it begins anew, and they come back as copies of those
  // others.
  void RenewWhereDamaged(const TierHost::Usage& usage, int64_t now_ns);
  // What shards without another copy there are, for people; empty: none.
  std::string GiveUpCopies(int64_t now_ns);
  bool NothingDependsOnTier() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(control_mu_);
  absl::Status BeginTierAnew();
  absl::Status ForgetRows(const std::vector<std::shared_ptr<Shard>>& closed)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(control_mu_);
  // Writes back the shards, flushes, and lets the log go up to there. The first error; the others
  // are tried all the same.
  absl::Status SweepShards(const std::vector<std::shared_ptr<Shard>>& shards);
  std::vector<std::shared_ptr<Shard>> Shards() const;
  uint64_t NoteLogFull();
  void KeepCheckpointWhereDue(int64_t now_ns);
  absl::Status KeepCheckpoint(const std::vector<std::shared_ptr<Shard>>& shards);
  absl::Status KeepPaused(const std::vector<std::shared_ptr<Shard>>& shards);
  absl::Status KeepLastCheckpoint(const std::vector<std::shared_ptr<Shard>>& shards);
  void StopUpkeep();
  void StopCopies();
  void CloseShards();
  absl::Status AwaitIdle(const std::vector<std::shared_ptr<Shard>>& shards);

  const ShardHostOptions options_;
  const Clock* const clock_;
  FileSystem* const files_;
  const HostBudget budget_;
  ReplicaBudget replica_budget_;
  const uint64_t staged_bytes_max_;
  std::unique_ptr<WritableFile> lock_;
  std::unique_ptr<TierHost> tiers_;
  std::unique_ptr<ShardLog> log_;
  std::unique_ptr<PromiseFile> promises_;
  std::unique_ptr<ThreadPool> pool_;
  bool was_clean_ = false;
  bool rebooted_ = false;
  std::atomic<bool> log_full_{false};
  std::atomic<uint64_t> checkpoints_{0};
  std::atomic<uint64_t> spill_renewals_{0};
  // Shared: a request may keep a shard for a moment longer than the host lives.
  const std::shared_ptr<std::atomic<int64_t>> staged_bytes_ =
      std::make_shared<std::atomic<int64_t>>(0);

  mutable absl::Mutex map_mu_;
  std::shared_ptr<const ShardMap> map_ ABSL_GUARDED_BY(map_mu_);
  std::atomic<uint64_t> map_version_{0};  // unique in the process; 0: none

  // One assignment, drop or shutdown at a time.
  mutable absl::Mutex control_mu_;
  std::map<ShardId, Arriving> arriving_ ABSL_GUARDED_BY(control_mu_);
  Catalog catalog_ ABSL_GUARDED_BY(control_mu_);
  std::map<TableId, TableSpec> tables_ ABSL_GUARDED_BY(control_mu_);  // as told, held here or not
  std::set<TableId> tables_dropped_ ABSL_GUARDED_BY(control_mu_);
  std::vector<std::shared_ptr<Shard>> dropping_ ABSL_GUARDED_BY(control_mu_);
  std::map<ShardId, int64_t> left_ns_ ABSL_GUARDED_BY(control_mu_);  // kept for MayReturn, since
  // Assigned here while what was here of them was on its way out, or rows on their way in.
  std::set<ShardId> missing_ ABSL_GUARDED_BY(control_mu_);
  bool shut_down_ ABSL_GUARDED_BY(control_mu_) = false;

  absl::Mutex keep_mu_ ABSL_ACQUIRED_BEFORE(promise_mu_);  // one write of promises at a time
  absl::Mutex promise_mu_;
  std::map<ShardId, Epoch> unpromised_ ABSL_GUARDED_BY(promise_mu_);  // wanted, not durable yet

  mutable absl::Mutex identity_mu_;
  IdentityFile identity_ ABSL_GUARDED_BY(identity_mu_);
  Incarnation incarnation_ ABSL_GUARDED_BY(identity_mu_) = 0;

  absl::Mutex listener_mu_;
  std::function<void()> listener_ ABSL_GUARDED_BY(listener_mu_);

  std::atomic<ReplicaNetwork*> network_{nullptr};
  CopyPace pace_;
  mutable PullLatency pull_latency_;
  std::atomic<int64_t> pull_p99_ns_{0};
  std::unique_ptr<CopySender> sender_;
  std::unique_ptr<CopyReceiver> receiver_;

  absl::Mutex tick_mu_;
  bool ticks_stop_ ABSL_GUARDED_BY(tick_mu_) = false;
  bool tick_now_ ABSL_GUARDED_BY(tick_mu_) = false;
  std::atomic<int64_t> waits_until_ns_{0};  // requests wait in shards, the last until then
  std::atomic<bool> news_{false};
  std::thread ticker_;

  mutable absl::Mutex trouble_mu_;
  std::string tier_trouble_ ABSL_GUARDED_BY(trouble_mu_);  // why a damaged tier stays as it is

  absl::Mutex upkeep_mu_;
  bool upkeep_stops_ ABSL_GUARDED_BY(upkeep_mu_) = false;
  std::thread upkeep_;
  // Of the upkeep thread.
  absl::flat_hash_map<ShardId, int64_t> swept_ns_;
  int64_t ticked_ns_ = 0;
  int64_t damaged_since_ns_ = 0;  // the spill tier; 0: it is not
  size_t sized_ = 0;
  int64_t checkpoint_ns_ = 0;
  absl::flat_hash_map<ShardId, Lsn> checkpoint_lsn_;  // in the last one
};

}  // namespace hotbed

#endif  // HOTBED_SERVER_HOST_SHARD_HOST_IMPL_H_
