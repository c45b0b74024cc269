// TieredStore over host memory: one shard's rows in the hot tier, in WriteBack, and in the spill
// tier.
//
// A read or an update first asks the hot tier (kernels, one pass), then WriteBack, then the spill
// tier on the I/O threads. A row read from the spill tier counts only if neither of the other two
// holds the row by then. This class is the face of its parts: each operation is a class of its own
// over RowTableState and Residency.
//
// Confined to the shard's executor, except where a comment says otherwise. While an Apply waits, no
// row leaves the hot tier and none enters it, so what it found there stays found.
#ifndef HOTBED_SERVER_TIERS_MEMORY_TIERED_SHARD_H_
#define HOTBED_SERVER_TIERS_MEMORY_TIERED_SHARD_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "server/tiers/api/exchanged_rows.h"
#include "server/tiers/api/host.h"
#include "server/tiers/api/tiered_store.h"
#include "server/tiers/memory/arriving_rows.h"
#include "server/tiers/memory/hot_arena.h"
#include "server/tiers/memory/memory_pass.h"
#include "server/tiers/memory/pool_ops.h"
#include "server/tiers/memory/pull_ops.h"
#include "server/tiers/memory/residency.h"
#include "server/tiers/memory/row_table_state.h"
#include "server/tiers/memory/shed_op.h"
#include "server/tiers/memory/update_op.h"
#include "server/tiers/memory/write_back_all_op.h"

namespace hotbed {

class alignas(64) TieredShard : public TieredStore {
 public:
  struct Params {
    TierHost::ShardParams shard;
    SpillTier* spill = nullptr;
    IoQueue* io = nullptr;
    HotArena* arena = nullptr;
    WriteBackBudget* write_back_budget = nullptr;
    bool huge_pages = true;
    bool has_spilled_rows = false;
    std::string meta;
    Lsn highest_lsn = 0;
    std::unique_ptr<ArrivingRows> arrived;           // of the same shard; null: none
    HotArena::Table* memory_of_table = nullptr;      // of the arena
    std::function<void()> memory_refused;            // any thread may call it at any time
    std::function<void(TieredShard*)> before_close;  // forgets this shard
  };
  explicit TieredShard(Params params);
  ~TieredShard() override;

  bool Pull(const RowReads& reads, Done done) override;
  bool Apply(const RowUpdates& updates, Done done) override;
  bool ApplyAtOnce(const RowUpdates& updates) override;
  void BeginReplay() override;
  void EndReplay() override;
  absl::StatusOr<bool> Warm(absl::string_view block) override;
  void WarmedAll() override;
  bool TakeArrived() override;
  const std::string& meta() const override { return write_back_all_.meta(); }
  Lsn highest_lsn() const override { return highest_lsn_; }
  void WriteBackAll(Lsn applied_lsn, std::string meta, Done done) override;
  std::string SaveTouchFilter() const override;
  absl::Status RestoreTouchFilter(absl::string_view saved) override;
  void SetAppliedLsn(Lsn lsn) override;
  bool PeekRow(uint64_t id, std::vector<uint8_t>* row) override;
  bool BeginPass(bool further, std::vector<uint64_t>* positions) override;
  void ReadPass(absl::Span<const uint64_t> positions, LiveRows* out) override;
  bool RankMemory(RowRanking* ranking, MemoryWalk* walk) override;
  bool VisitMemory(uint32_t rows_max, MemoryWalk* walk, RowVisitor visit) override;
  StoreStats Stats() const override;

  // The shard's part in the division of memory (memory_division.h); any thread.
  void NextRound(uint64_t cold_bytes, uint64_t forced_bytes) {
    shed_.NextRound(cold_bytes, forced_bytes);
  }
  HotArena::Account* account() { return &account_; }
  RowCounters* counters() { return &state_.counters; }
  // Accesses to rows in memory, and rows that came in: an upper bound of the rows visited.
  uint64_t visits() const {
    return hits() + state_.counters.inserted.load(std::memory_order_relaxed);
  }
  // Bytes of a resident row.
  uint64_t row_bytes() const { return row_bytes_; }
  // Bytes of the shard if all its rows were resident: its weight when the device is divided.
  uint64_t whole_bytes() const { return whole_bytes_; }
  // Its part, at most 1, of the server's memory for rows; any thread.
  void SetDeviceShare(double share) { device_share_.store(share, std::memory_order_relaxed); }
  double device_share() const { return device_share_.load(std::memory_order_relaxed); }

  // --- For a faster tier above (device/device_shard.h). A row is in that tier or in the hot tier,
  // never in both; WriteBack and the spill tier may hold older versions of a row that is above. The
  // tier above asks here only for rows that it does not have.

  // `above` has all rows and answers the windows of pooled pulls; `progress` runs when a write has
  // ended.
  void SetAbove(TieredStore* above, std::function<void()> progress);
  // As Residency::Take and Residency::Put.
  void TakeRows(const std::vector<uint64_t>& ids, bool clean_only, ExchangedRows* taken);
  void PutRows(const ExchangedRows& rows) { residency_.Put(rows); }
  // Writes back rows that stay above, as of the applied LSN.
  void WriteRows(const ExchangedRows& rows);
  // Whether `rows` rows may be put or written now; if not, a write is in flight whose end calls
  // `progress`.
  bool HasRoomFor(uint64_t rows);
  // The error of writes that have failed and will be retried; OK if none.
  absl::Status WriteError() const;
  // Pulls the bags `bags` alone, window after window, from above.
  bool PoolBags(const RowReads& reads, const std::vector<uint32_t>& bags, Done done);
  // The answer for id i of reads, from weights as they are stored.
  void AnswerRow(const RowReads& reads, uint32_t i, const uint8_t* payload, uint64_t position) {
    residency_.AnswerRow(reads, i, payload, position);
  }
  uint64_t PositionOf(uint64_t id) const { return state_.PositionOf(id); }
  uint32_t slice_rows() const { return state_.slice_rows; }
  uint32_t payload_bytes() const { return state_.spill_shard.payload_bytes; }

 private:
  uint64_t hits() const {
    const FetchHint* const hint = state_.shard.hint;
    return state_.counters.hits.load(std::memory_order_relaxed) +
           (hint == nullptr ? 0 : hint->rows_read());
  }
  void OnWritten();
  void AfterUpdate(Done done, const absl::Status& status);

  // All that ApplyAtOnce touches beside the table of rows is in the first cache line: this pointer,
  // and the begin of the state.
  TieredStore* above_ = this;
  RowTableState state_;
  const std::function<void(TieredShard*)> before_close_;
  const Lsn highest_lsn_;
  const uint64_t whole_bytes_;
  const uint64_t row_bytes_;
  const bool began_with_rows_;
  std::unique_ptr<ArrivingRows> arrived_;  // until TakeArrived; residency_ has its rows
  uint64_t evictions_before_replay_ = 0;
  std::function<void()> above_progress_;
  std::atomic<double> device_share_{0};
  HotArena* const arena_;
  HotArena::Account account_;
  Residency residency_;
  PullOps pulls_;
  PoolOps pools_;
  UpdateOp update_;
  WriteBackAllOp write_back_all_;
  ShedOp shed_;
  MemoryPass pass_;
};

}  // namespace hotbed

#endif  // HOTBED_SERVER_TIERS_MEMORY_TIERED_SHARD_H_
