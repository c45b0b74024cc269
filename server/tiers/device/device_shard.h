// TieredStore: one shard's rows over device memory (device_tier.h) and the tiers of the host
// (tiered_shard.h) below it.
//
// A row is on the device, or below, never in both; so the device's copy needs no LSN, and what the
// host writes back is never behind its stamp. An operation asks the device first, and below only
// for what is not there. Rows that are asked for again before long (heat_filter.h) come up in
// batches, with their state; whoever makes room for them goes down to the host's hot tier, dirty or
// clean. While rows are on their way they lie in `moving_`, and reads find them there.
//
// Everything that changes which rows are on the device, or any row, is a step, one at a time:
// an update (Apply), bringing rows up (promote), writing dirty ones back (collect). Steps of the
// background have their turn after each update. A pull never waits for a step.
//
// Confined to its shard's executor, like TieredStore. A device that has failed takes the shard with
// it once it has a table there: every call then ends with DeviceLostError.
#ifndef HOTBED_SERVER_TIERS_DEVICE_DEVICE_SHARD_H_
#define HOTBED_SERVER_TIERS_DEVICE_DEVICE_SHARD_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "server/tiers/api/host.h"
#include "server/tiers/api/tiered_store.h"
#include "server/tiers/device/device_tier.h"
#include "server/tiers/device/heat_filter.h"
#include "server/tiers/memory/tiered_shard.h"

namespace hotbed {

class DeviceShard : public TieredStore {
 public:
  // `device` outlives the shard.
  DeviceShard(DeviceTier* device, std::unique_ptr<TieredShard> below,
              const TierHost::ShardParams& shard);
  ~DeviceShard() override;

  bool Pull(const RowReads& reads, Done done) override;
  bool Apply(const RowUpdates& updates, Done done) override;
  void BeginReplay() override;
  void EndReplay() override;
  absl::StatusOr<bool> Warm(absl::string_view block) override { return below_->Warm(block); }
  const std::string& meta() const override { return below_->meta(); }
  Lsn highest_lsn() const override { return below_->highest_lsn(); }
  void WriteBackAll(Lsn applied_lsn, std::string meta, Done done) override;
  void SetAppliedLsn(Lsn lsn) override { below_->SetAppliedLsn(lsn); }
  bool PeekRow(uint64_t id, std::vector<uint8_t>* row) override;
  StoreStats Stats() const override;

  TieredShard* below() const { return below_.get(); }

 private:
  // Rows that are asked for and not on the device, at most so many remembered.
  static constexpr uint32_t kCandidatesMax = 4096;

  struct PullOp {
    RowReads reads;
    Done done;
    std::vector<uint32_t> picks;  // not on the device
  };
  struct ApplyOp {
    RowUpdates updates;
    Done done;
    std::vector<uint64_t> ids_below, ids_above;
    std::vector<const uint8_t*> gradients_below, gradients_above;
  };
  enum class Step { kNone, kApply, kPromote, kCollect };
  struct SweepOp {
    bool active = false;      // until `done`: no dirty row comes up from below
    bool collecting = false;  // the device's rows, before those below
    uint32_t slot = 0;
    Lsn lsn = 0;
    std::string meta;
    Done done;
  };
  // In device memory. Shared with the jobs that make and remove it, which may outlive the shard.
  struct DeviceTable {
    bool exists = false;
    uint32_t number = 0;
    uint32_t slots = 0;
  };

  bool has_table() const { return table_known_ && table_->exists; }
  // What a job that has ended does, if the shard is still there.
  template <typename F>
  absl::AnyInvocable<void()> Guarded(F f) {
    return [alive = alive_, f = std::move(f)]() mutable {
      if (*alive) f();
    };
  }
  std::shared_ptr<DeviceJob> NewJob(DeviceJob::Kind kind) const;
  // With what pulls of rows and of bags both say.
  std::shared_ptr<DeviceJob> NewReadJob(DeviceJob::Kind kind, const RowReads& reads) const;
  void Fail(Done done, absl::Status status);
  absl::Status Lost() const;

  // device_shard_pull.cc
  bool PullBelow(const std::shared_ptr<PullOp>& op);
  void OnPulled(const std::shared_ptr<PullOp>& op, DeviceJob* job);
  bool PullPooled(const RowReads& reads, Done done);
  void OnPooled(const std::shared_ptr<PullOp>& op, const std::vector<uint32_t>& incomplete);
  void NoteMisses(const uint64_t* ids, const std::vector<uint32_t>& missing);
  void NoteMisses(const uint64_t* ids, uint32_t count);
  void NoteMiss(uint64_t id);

  // device_shard_apply.cc
  void StartApply();
  bool ApplyBelowOnly();
  void OnProbed(DeviceJob* job);
  void ApplyBelow();
  void ApplyAbove();
  void FinishApply(const absl::Status& status);

  // device_shard_steps.cc
  void NextStep(bool background_first);
  bool StartBackground();
  bool StartPromote();
  void MakeTable();
  device::Status AddTable(device::DeviceRows* rows) const;
  void OnTableMade(const absl::Status& status);
  bool TakeAndPromote();
  void OnPromoted(const absl::Status& status, const std::vector<device::MovedRow>& victims,
                  const std::vector<uint32_t>& refused);
  bool StartCollect();
  void OnCollected(const absl::Status& status, const std::vector<device::MovedRow>& rows,
                   uint32_t slot);
  void EndSweep(const absl::Status& status);
  ExchangedRows Exchanged(const std::vector<device::MovedRow>& rows) const;

  DeviceTier* const device_;
  const std::unique_ptr<TieredShard> below_;
  const TableSpec spec_;
  const ShardRange range_;
  Executor* const executor_;
  const uint32_t dim_;
  const std::shared_ptr<IoGate> gate_ = std::make_shared<IoGate>();
  const std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
  const std::shared_ptr<DeviceTable> table_ = std::make_shared<DeviceTable>();

  bool table_known_ = false;      // the job that made it has ended
  uint64_t misses_to_table_ = 1;  // before memory for a table is asked for again
  uint64_t misses_since_table_ = 0;
  bool replaying_ = false;
  bool full_ = false;  // a row has had to make room
  Step step_ = Step::kNone;
  bool apply_waits_ = false;
  ApplyOp apply_;
  SweepOp sweep_;
  HeatFilter heat_{0};
  std::vector<uint64_t> candidates_;  // ids
  ExchangedRows moving_;
  absl::flat_hash_map<uint64_t, uint32_t> moving_at_;  // position -> of moving_
  std::atomic<int64_t> rows_{0};
  std::atomic<uint64_t> hits_{0};
};

}  // namespace hotbed

#endif  // HOTBED_SERVER_TIERS_DEVICE_DEVICE_SHARD_H_
