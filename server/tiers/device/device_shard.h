// TieredStore over device memory (device_tier.h) and the host's tiers below it
// (memory/tiered_shard.h): one shard's rows.
//
// A row is on the device or below, never in both. So rows on the device need no LSNs, and a row
// that the host writes back is never behind its stamp. An operation asks the device first, and the
// tiers below only for rows that are not there. Rows that are asked for again before long
// (heat_filter.h) come up in batches, with their state; rows that make room for them go down to the
// host's hot tier, dirty or clean. Rows in between lie in `moving_`, where reads find them.
//
// Whatever changes a row, or which rows are on the device, is a step, one at a time: an update
// (Apply), bringing rows up (promote), writing dirty rows back (collect). Background steps get a
// turn after each update. A pull never waits for a step. device_shard.cc holds the calls of
// TieredStore, device_shard_steps.cc the background steps.
//
// Confined to its shard's executor, like TieredStore. After a device failure, a shard that had a
// table there is lost too: every call ends with DeviceLostError.
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
  // How many rows that have missed are remembered.
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
  struct WriteBackOp {
    bool active = false;      // until `done`: no dirty row comes up from below
    bool collecting = false;  // rows of the device, before the rows below
    uint32_t slot = 0;
    Lsn lsn = 0;
    std::string meta;
    Done done;
  };
  // The shard's table in device memory. Shared with the jobs that make and remove it, which may
  // outlive the shard.
  struct DeviceTable {
    bool exists = false;
    uint32_t number = 0;
    uint32_t slots = 0;
  };

  bool has_table() const { return table_known_ && table_->exists; }
  // f, for a job to run when it has ended, unless the shard is gone by then.
  template <typename F>
  absl::AnyInvocable<void()> Guarded(F f) {
    return [alive = alive_, f = std::move(f)]() mutable {
      if (*alive) f();
    };
  }
  std::shared_ptr<DeviceJob> NewJob(DeviceJob::Kind kind) const;
  // A job with the arguments that pulls of rows and of bags share.
  std::shared_ptr<DeviceJob> NewReadJob(DeviceJob::Kind kind, const RowReads& reads) const;
  void Fail(Done done, absl::Status status);
  absl::Status Lost() const;

  bool PullBelow(const std::shared_ptr<PullOp>& op);
  void OnPulled(const std::shared_ptr<PullOp>& op, DeviceJob* job);
  bool PullPooled(const RowReads& reads, Done done);
  void OnPooled(const std::shared_ptr<PullOp>& op, const std::vector<uint32_t>& incomplete);
  void NoteMisses(const uint64_t* ids, const std::vector<uint32_t>& missing);
  void NoteMisses(const uint64_t* ids, uint32_t count);
  void NoteMiss(uint64_t id);

  void StartApply();
  bool ApplyBelowOnly();
  void OnProbed(DeviceJob* job);
  void ApplyBelow();
  void ApplyAbove();
  void DeleteRows();
  void DeleteAbove();
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
  void EndWriteBack(const absl::Status& status);
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
  uint64_t misses_to_table_ = 1;  // misses before the next attempt to make a table
  uint64_t misses_since_table_ = 0;
  bool replaying_ = false;
  bool full_ = false;  // a row has had to make room
  Step step_ = Step::kNone;
  bool apply_waits_ = false;
  ApplyOp apply_;
  WriteBackOp write_back_;
  HeatFilter heat_{0};
  std::vector<uint64_t> candidates_;  // ids
  ExchangedRows moving_;
  absl::flat_hash_map<uint64_t, uint32_t> moving_at_;  // position -> of moving_
  std::atomic<int64_t> rows_{0};
  std::atomic<uint64_t> hits_{0};
};

}  // namespace hotbed

#endif  // HOTBED_SERVER_TIERS_DEVICE_DEVICE_SHARD_H_
