// TieredStore: one shard's rows over the hot tier, the rows being written back, and the spill tier.
//
// A read or an update first asks the hot tier (kernels, one pass), then WriteBack, then the spill
// tier on the I/O threads. What a read of the spill tier brings back counts only for rows that
// neither of the other two holds by then.
//
// While an Apply waits, no row leaves the hot tier and none enters it, so what it found there stays
// found.
#ifndef HOTBED_SERVER_TIERS_MEMORY_TIERED_SHARD_H_
#define HOTBED_SERVER_TIERS_MEMORY_TIERED_SHARD_H_

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "server/kernels/row_kernels.h"
#include "server/tiers/api/exchanged_rows.h"
#include "server/tiers/api/tiered_store.h"
#include "server/tiers/memory/hot_arena.h"
#include "server/tiers/memory/hot_tier.h"
#include "server/tiers/spill/io_gate.h"
#include "server/tiers/spill/io_queue.h"
#include "server/tiers/spill/row_block.h"
#include "server/tiers/spill/spill_fetch.h"
#include "server/tiers/spill/spill_tier.h"
#include "server/tiers/spill/write_back.h"

namespace hotbed {

class TieredShard : public TieredStore {
 public:
  struct Params {
    TierHost::ShardParams shard;
    SpillTier* spill = nullptr;
    IoQueue* io = nullptr;
    HotArena* arena = nullptr;
    RowKernels* kernels = nullptr;
    WriteBackBudget* write_back_budget = nullptr;
    bool huge_pages = true;
    bool has_spilled_rows = false;
    std::string meta;
    Lsn highest_lsn = 0;
    std::function<void()> ask_for_memory;            // others have borrowed what is ours
    std::function<void(TieredShard*)> before_close;  // forgets this shard
  };
  explicit TieredShard(Params params);
  ~TieredShard() override;

  bool Pull(const RowReads& reads, Done done) override;
  bool Apply(const RowUpdates& updates, Done done) override;
  void BeginReplay() override;
  void EndReplay() override;
  absl::StatusOr<bool> Warm(absl::string_view block) override;
  void WarmedAll() override;
  const std::string& meta() const override { return meta_; }
  Lsn highest_lsn() const override { return highest_lsn_; }
  void Sweep(Lsn applied_lsn, std::string meta, Done done) override;
  void SetAppliedLsn(Lsn lsn) override { applied_lsn_ = std::max(applied_lsn_, lsn); }
  bool PeekRow(uint64_t id, std::vector<uint8_t>* row) override;
  bool BeginPass(bool further, std::vector<uint64_t>* positions) override;
  void ReadPass(absl::Span<const uint64_t> positions, LiveRows* out) override;
  StoreStats Stats() const override;

  // Bytes of the hot budget for this shard, from any thread; takes effect on the executor. Rows
  // beyond it go when somebody needs the room.
  void SetQuota(uint64_t bytes);
  // The same before any other thread knows of the shard: takes effect at once.
  void StartWithQuota(uint64_t bytes);
  // Bytes of the shard if all its rows were resident: its weight when the budget is divided.
  uint64_t whole_bytes() const { return whole_bytes_; }
  // Its part of the server's memory for rows, of 1; any thread.
  void SetDeviceShare(double share) { device_share_.store(share, std::memory_order_relaxed); }
  double device_share() const { return device_share_.load(std::memory_order_relaxed); }

  // --- For a faster tier above (device_shard.h), on the executor; tiered_shard_exchange.cc. A row
  // is up there or here in the hot tier, never in both; what WriteBack and the spill tier have of a
  // row that is up there may be old. Whoever is above asks here only for rows that it has not.

  // Who has all rows, for the windows of pooled pulls; `progress` runs when a write has ended.
  void SetAbove(TieredStore* above, std::function<void()> progress);
  // Resident rows of `ids` leave the hot tier; others are passed over, and dirty ones too if so
  // asked. None while an Apply waits or the tier is being made smaller.
  void TakeRows(const std::vector<uint64_t>& ids, bool clean_only, ExchangedRows* taken);
  // Rows come (back) that are not resident here, as of the applied LSN. Clean ones may be let go
  // again at once: the spill tier has them.
  void PutRows(const ExchangedRows& rows);
  // Rows that stay above are written back, as of the applied LSN.
  void WriteRows(const ExchangedRows& rows);
  // Whether as many rows may be put or written now; else a write is under way, whose end is told.
  bool HasRoomFor(uint64_t rows);
  // Of writes that have failed and will be tried again; OK if none.
  absl::Status WriteError() const;
  // Pull of the bags `bags` alone, window after window, from above.
  bool PoolBags(const RowReads& reads, const std::vector<uint32_t>& bags, Done done);
  // The answer for id i of reads, from weights as they are stored.
  void AnswerRow(const RowReads& reads, uint32_t i, const uint8_t* payload, uint64_t position);
  uint64_t PositionOf(uint64_t id) const;
  uint32_t slice_rows() const { return slice_rows_; }
  uint32_t payload_bytes() const { return spill_shard_.payload_bytes; }

 private:
  struct PullOp {
    RowReads reads;
    Done done;
    GatherBatch gather;
    std::vector<uint32_t> missing;
    std::vector<uint64_t> positions;
    uint64_t fetch_number = 0;
  };
  // Bags of rows. Those with rows in the spill tier are made afterwards, window after window of
  // their ids, each a pull of rows as they are stored.
  struct PoolOp {
    RowReads reads;
    Done done;
    GatherPooledBatch gather;
    std::vector<uint32_t> missing;  // bags
    uint32_t next = 0;              // of missing: the bag at hand
    uint32_t bag = 0;               // whose ids begin at
    uint64_t bag_first = 0;
    uint32_t place = 0;         // of the next window in the bag at hand
    std::vector<uint64_t> ids;  // of the window
    std::vector<uint8_t> rows;
    std::vector<uint8_t> flags;
    std::vector<float> sum;  // of the bag at hand
  };
  struct ApplyOp {
    bool active = false;
    bool waits_for_room = false;
    bool fetched = false;
    RowUpdates updates;
    Done done;
    ProbeBatch probe;
    ApplyBatch resident;
    std::vector<uint32_t> slots;
    std::vector<uint32_t> missing;
    std::vector<uint64_t> positions;      // of missing[k]
    std::vector<const uint8_t*> records;  // of missing[k]: from the spill tier; null: not there
    std::shared_ptr<SpillFetch> fetch;    // owns them
    uint64_t fetch_number = 0;
  };
  struct SweepOp {
    bool active = false;
    bool scanning = false;
    bool writing_meta = false;  // all rows are written: nothing but the meta's end matters
    uint32_t cursor = 0;
    Lsn lsn = 0;
    std::string meta;
    uint64_t wait_for = 0;  // of write_back_.written()
    Done done;
  };
  // Taking rows out because the quota shrank.
  struct ShedOp {
    bool active = false;
    uint32_t cursor = 0;  // slots below are done
    int passes = 0;
  };
  // Written by the executor, read by anyone.
  struct Counters {
    std::atomic<uint64_t> rows_resident{0};
    std::atomic<uint64_t> rows_dirty{0};
    std::atomic<uint64_t> hot_bytes{0};
    std::atomic<uint64_t> overhead_bytes{0};
    std::atomic<uint64_t> hits{0};
    std::atomic<uint64_t> misses{0};
    std::atomic<uint64_t> evictions{0};
    std::atomic<uint64_t> writebacks{0};
  };

  RowTable* table() { return hot_->table(); }
  SpillFetch::Wiring FetchWiring() const;
  void Fail(Done done, absl::Status status);
  void PublishStats();
  void OnProgress();

  // tiered_shard_pull.cc
  PullOp* NewPullOp(const RowReads& reads);
  void Recycle(PullOp* op);
  bool AfterGather(PullOp* op, Done* done);
  void FetchForPull(PullOp* op);
  void OnPullFetched(PullOp* op, SpillFetch* fetch);
  void AnswerPart(PullOp* op, SpillFetch::Part* part);
  void Promote(const SpillFetch::Part& part, const std::vector<uint32_t>& rows);

  // tiered_shard_pool.cc
  bool PullPooled(const RowReads& reads, Done done);
  PoolOp* NewPoolOp(const RowReads& reads);
  void Recycle(PoolOp* op);
  bool AfterPooledGather(PoolOp* op);
  bool PoolWindows(PoolOp* op);
  void OnWindow(PoolOp* op, const absl::Status& status);
  void FillWindow(PoolOp* op);
  void TakeWindow(PoolOp* op);
  uint32_t TakePiece(PoolOp* op, uint32_t at);
  void EndPooled(PoolOp* op, const absl::Status& status);

  // tiered_shard_exchange.cc
  void TakeRow(uint32_t slot, ExchangedRows* taken);
  uint32_t PutSome(const ExchangedRows& rows, const std::vector<uint32_t>& picks, uint32_t first,
                   bool dirty);

  // tiered_shard_warm.cc
  uint32_t SlotsToWarm(const RowBlock& block, uint32_t* slots);
  // Into slots that are theirs already; `dirty`: the spill tier has not these values.
  void InsertRows(const uint64_t* positions, const uint32_t* slots, const uint8_t* const* sources,
                  uint32_t count, bool dirty);

  // tiered_shard_apply.cc
  bool AfterProbe();
  bool NeedsFetch() const;
  void FetchForApply();
  void OnApplyFetched(std::shared_ptr<SpillFetch> fetch);
  bool ContinueApply();
  void SkipReplayedRows();
  void ApplyMissing();
  uint32_t InsertMissing(uint32_t first, uint32_t count);
  void FinishApply(absl::Status status);
  uint32_t MakeSlots(uint32_t wanted, uint32_t* slots, Lsn stamp);

  // tiered_shard_sweep.cc
  void SweepStep();
  void WriteSweptMeta();
  void FinishSweep(const absl::Status& status);
  void OnQuota();
  void ShedStep();
  uint32_t EvictRange(uint32_t first, uint32_t limit);
  void ReplaceHotTier(bool direct);

  const TierHost::ShardParams shard_;
  const SpillShard spill_shard_;
  SpillTier* const spill_;
  IoQueue* const io_;
  Executor* const executor_;
  HotArena* const arena_;
  RowKernels* const kernels_;
  const bool huge_pages_;
  const std::function<void()> ask_for_memory_;
  const std::function<void(TieredShard*)> before_close_;
  const uint64_t whole_bytes_;
  const uint64_t direct_bytes_;
  const uint32_t slice_rows_;  // of background work between requests
  const std::shared_ptr<IoGate> gate_ = std::make_shared<IoGate>();
  const std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);

  std::string meta_;
  Lsn highest_lsn_ = 0;
  Lsn applied_lsn_ = 0;
  Lsn pass_lsn_ = 0;  // of the last BeginPass
  uint64_t evictions_before_replay_ = 0;
  // Rows may be in the spill tier that are not resident; else what is not resident exists nowhere.
  bool may_miss_ = false;
  bool replaying_ = false;
  // Rows whose resident value is ahead of the log being replayed: the LSN that was spilled with
  // them.
  absl::flat_hash_map<uint64_t, Lsn> replay_guard_;
  std::unique_ptr<HotTier> hot_;
  uint32_t hand_ = 0;
  int64_t rows_resident_ = 0;
  int64_t rows_dirty_ = 0;
  std::vector<std::unique_ptr<PullOp>> pull_ops_;
  std::vector<PullOp*> free_pull_ops_;
  std::vector<std::unique_ptr<PoolOp>> pool_ops_;
  std::vector<PoolOp*> free_pool_ops_;
  ApplyOp apply_;
  SweepOp sweep_;
  ShedOp shed_;
  TieredStore* above_ = this;
  std::function<void()> above_progress_;
  // What reads of the spill tier that began earlier bring back is not kept: the rows may be above
  // by now.
  uint64_t keep_from_fetch_ = 0;
  std::atomic<uint64_t> quota_{0};
  std::atomic<bool> quota_posted_{false};
  std::atomic<double> device_share_{0};
  std::atomic<bool> is_direct_{false};
  std::atomic<uint64_t> taken_{0};  // of hot_, as of the last operation
  Counters counters_;
  WriteBack write_back_;
};

}  // namespace hotbed

#endif  // HOTBED_SERVER_TIERS_MEMORY_TIERED_SHARD_H_
