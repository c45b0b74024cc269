// TierHost over its parts; tests give it an I/O queue that they run by hand.
#ifndef HOTBED_SERVER_TIERS_TIER_HOST_H_
#define HOTBED_SERVER_TIERS_TIER_HOST_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/synchronization/mutex.h"
#include "server/tiers/api/host.h"
#include "server/tiers/api/tiered_store.h"
#include "server/tiers/device/device_tier.h"
#include "server/tiers/memory/arriving_rows.h"
#include "server/tiers/memory/hot_arena.h"
#include "server/tiers/memory/memory_division.h"
#include "server/tiers/memory/tiered_shard.h"
#include "server/tiers/memory/unopened_store.h"
#include "server/tiers/spill/io_queue.h"
#include "server/tiers/spill/spill_tier.h"
#include "server/tiers/spill/write_back.h"

namespace hotbed {

class TierHostImpl : public TierHost, public UnopenedStore::Opener {
 public:
  // `io` is the host's own unless a test keeps it; it outlives the host.
  static absl::StatusOr<std::unique_ptr<TierHostImpl>> Open(const TierOptions& options,
                                                            IoQueue* io);
  ~TierHostImpl() override;

  absl::StatusOr<std::unique_ptr<TieredStore>> OpenShard(ShardParams params) override;
  void SetMemoryShare(TableId table, float least, float most) override;
  absl::Status DeleteShard(const SpillShard& shard) override ABSL_LOCKS_EXCLUDED(mu_);
  absl::Status InheritMeta(const SpillShard& parent, const SpillShard& child) override {
    return spill_->InheritMeta(parent, child);
  }
  absl::StatusOr<std::string> ReadMeta(const SpillShard& shard) override {
    return spill_->ReadMeta(shard);
  }
  absl::Status ReplaceMeta(const SpillShard& shard, absl::string_view meta, Lsn highest) override {
    return spill_->ReplaceMeta(shard, meta, highest);
  }
  absl::StatusOr<std::unique_ptr<ShardRowReader>> ReadShard(const SpillShard& shard,
                                                            Lsn above) override {
    return spill_->Read(shard, above);
  }
  absl::StatusOr<std::unique_ptr<ShardRowReader>> ReadLive(const SpillShard& shard,
                                                           LivePass pass) override {
    return spill_->ReadLive(shard, std::move(pass));
  }
  absl::Status ReadRows(const SpillShard& shard, absl::Span<const uint64_t> positions,
                        uint8_t* records, uint8_t* found) override {
    return spill_->Fetch(shard, positions, records, found);
  }
  absl::StatusOr<std::unique_ptr<ShardRowWriter>> WriteShard(const SpillShard& shard) override {
    return spill_->NewWriter(shard, options_.snapshot_file_bytes_min);
  }
  absl::StatusOr<std::unique_ptr<ShardRowWriter>> ReceiveShard(const SharedValue<TableSpec>& table,
                                                               const ShardRange& range,
                                                               ShardId shard, Lsn log_from) override
      ABSL_LOCKS_EXCLUDED(mu_);
  absl::Status CompactShard(const SpillShard& shard) override { return spill_->Compact(shard); }
  absl::StatusOr<uint64_t> DropMarks(const SpillShard& shard, Lsn through,
                                     absl::FunctionRef<absl::Status()> go_on) override {
    return spill_->DropMarks(shard, through, go_on);
  }
  uint64_t SpilledBytes(const SpillShard& shard) override { return spill_->BytesOf(shard); }
  absl::Status Flush() override { return spill_->Flush(); }
  absl::Status Freeze() override { return spill_->Freeze(); }
  absl::Status RestoreTable(TableId table) override { return spill_->RestoreTable(table); }
  Health GetHealth() const override;
  void AddNumbers(StatusNumbers* numbers) const override;
  std::string DeviceName() const override { return device_ == nullptr ? "" : device_->name(); }
  void AddDeviceNumbers(StatusNumbers* numbers) const override {
    if (device_ != nullptr) device_->AddNumbers(numbers);
  }
  std::string DeviceError() const override;
  std::shared_ptr<MemoryPinner> answer_pinner() const override {
    return device_ == nullptr ? nullptr : device_->pinner();
  }
  absl::Status TryResume() override { return spill_->TryResume(); }
  absl::Status Renew() override;

  KvStore* spill_store() const { return spill_->store(); }  // for tests that damage it

 private:
  TierHostImpl(const TierOptions& options, uint64_t slab_bytes, uint64_t write_back_bytes);
  // UnopenedStore::Opener
  std::unique_ptr<TieredStore> OpenRows(ShardParams params, UnopenedStore::Found found) override
      ABSL_LOCKS_EXCLUDED(mu_);
  void ClosedUnopened() override ABSL_LOCKS_EXCLUDED(mu_);

  std::unique_ptr<TieredShard> MakeShard(ShardParams params, UnopenedStore::Found found,
                                         bool has_spilled_rows,
                                         std::unique_ptr<ArrivingRows> arrived)
      ABSL_LOCKS_EXCLUDED(mu_);
  // Null: no rows of this range have come to memory just now.
  std::unique_ptr<ArrivingRows> TakeArrived(ShardId shard, const ShardRange& range)
      ABSL_LOCKS_EXCLUDED(mu_);
  void Forget(TieredShard* shard);
  HotArena::Table* MemoryOf(TableId table) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void DivideDevice() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void OnMemoryRefused() ABSL_LOCKS_EXCLUDED(mu_);
  // Whether a round has seen enough to say which rows nobody visits.
  bool RoundIsOver(int64_t now_ns) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void DivideMemoryNow(int64_t now_ns) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const TierOptions options_;
  const Clock* const clock_;
  HotArena arena_;
  WriteBackBudget write_back_;
  std::unique_ptr<SpillTier> spill_;
  std::unique_ptr<DeviceTier> device_;  // null: none
  std::unique_ptr<IoQueue> own_io_;
  IoQueue* io_ = nullptr;
  mutable absl::Mutex mu_;
  struct OpenShardEntry {
    TieredShard* shard;
    uint64_t visits;  // of its rows, when the last round ended
  };
  std::vector<OpenShardEntry> shards_ ABSL_GUARDED_BY(mu_);
  size_t unopened_ ABSL_GUARDED_BY(mu_) = 0;  // stores besides those of shards_
  // Every table that has ever had a shard here is in it.
  absl::flat_hash_map<TableId, std::unique_ptr<HotArena::Table>> tables_ ABSL_GUARDED_BY(mu_);
  // Finished by the writers of ReceiveShard; for OpenShard.
  absl::flat_hash_map<ShardId, std::unique_ptr<ArrivingRows>> arrived_ ABSL_GUARDED_BY(mu_);
  // A shard in use was refused memory since the last transfer began.
  std::atomic<bool> memory_wanted_{false};
  // A round ages all rows and divides the memory; none ends while nobody is refused.
  std::atomic<int64_t> next_look_ns_{0};            // whether the round is over
  int64_t last_round_ns_ ABSL_GUARDED_BY(mu_) = 0;  // 0: never
};

}  // namespace hotbed

#endif  // HOTBED_SERVER_TIERS_TIER_HOST_H_
