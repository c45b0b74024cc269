// The facts about one shard's rows that several of its operations share: which shard it is, the
// parts of the server it uses, and the flags by which operations keep out of each other's way.
//
// Confined to the shard's executor, except for `counters`, `gate` and the constants, which any
// thread may use.
#ifndef HOTBED_SERVER_TIERS_MEMORY_ROW_TABLE_STATE_H_
#define HOTBED_SERVER_TIERS_MEMORY_ROW_TABLE_STATE_H_

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "row_math/position.h"
#include "server/kernels/cpu_kernels.h"
#include "server/tiers/api/host.h"
#include "server/tiers/memory/touch_filter.h"
#include "server/tiers/spill/io_gate.h"
#include "server/tiers/spill/io_queue.h"
#include "server/tiers/spill/spill_fetch.h"
#include "server/tiers/spill/spill_tier.h"
#include "server/tiers/spill/write_back.h"

namespace hotbed {

// Written on the executor, read by any thread.
struct RowCounters {
  std::atomic<uint64_t> hits{0};
  std::atomic<uint64_t> rows_resident{0};
  std::atomic<uint64_t> rows_dirty{0};
  std::atomic<uint64_t> hot_bytes{0};
  std::atomic<uint64_t> overhead_bytes{0};
  std::atomic<uint64_t> misses{0};
  std::atomic<uint64_t> evictions{0};
  std::atomic<uint64_t> writebacks{0};
  std::atomic<uint64_t> inserted{0};  // rows that came into memory
  std::atomic<uint64_t> made{0};      // rows that an update made
  std::atomic<uint64_t> deleted{0};
  std::atomic<uint64_t> held{0};  // gradients that were not applied: their rows are not admitted
  std::atomic<uint64_t> filter_used{0};  // TouchFilter::used
  // For the division of memory among shards (TierHostImpl), which sets the last two to 0.
  std::atomic<uint64_t> cold_bytes{0};     // of rows without visits and free slots at the last Age
  std::atomic<uint64_t> refused_bytes{0};  // of rows that found no free slot
  std::atomic<uint64_t> wanted_bytes{0};   // of those among them that had missed a moment before
};

inline void Count(std::atomic<uint64_t>* counter, uint64_t n) {
  counter->fetch_add(n, std::memory_order_relaxed);
}

// The same for a counter that only the executor writes.
inline void CountAlone(std::atomic<uint64_t>* counter, uint64_t n) {
  counter->store(counter->load(std::memory_order_relaxed) + n, std::memory_order_relaxed);
}

struct RowTableState {
  struct Wiring {
    SpillTier* spill = nullptr;
    IoQueue* io = nullptr;
    WriteBackBudget* write_back_budget = nullptr;
    Lsn highest_lsn = 0;                   // of the shard's rows in the spill tier
    bool has_spilled_rows = false;         // the spill tier holds rows of the shard
    std::function<void()> progress;        // runs on the executor when a write has ended
    std::function<void()> memory_refused;  // refused_bytes has grown
  };
  RowTableState(TierHost::ShardParams params, Wiring wiring)
      : shard(std::move(params)),
        spill_shard(shard.table, shard.range, shard.shard),
        spill(wiring.spill),
        io(wiring.io),
        slice_rows(static_cast<uint32_t>(
            std::clamp<uint64_t>(kSliceBytes / spill_shard.record_bytes(), 8, kSliceRowsMax))),
        memory_refused(std::move(wiring.memory_refused)),
        write_back(spill_shard,
                   {spill, io, shard.executor, gate, wiring.write_back_budget, wiring.highest_lsn,
                    shard.before_write_back, std::move(wiring.progress)}),
        may_miss_(wiring.has_spilled_rows) {
    if (!shard.table->life.admission.Filters()) return;
    filter = std::make_unique<TouchFilter>(shard.table, shard.range);
  }
  RowTableState(const RowTableState&) = delete;

  // The spill tier may hold rows that are not resident; otherwise a row that is not resident exists
  // nowhere.
  bool may_miss() const { return may_miss_; }
  void SetMayMiss(bool may_miss) {
    may_miss_ = may_miss;
    if (shard.hint != nullptr) shard.hint->SetAbsentIsInitial(!may_miss);
  }
  uint64_t PositionOf(uint64_t id) const { return shard.table->hashed ? Mix64(id) : id; }
  SpillFetch::Wiring FetchWiring() const { return {spill, io, shard.executor, gate}; }
  // f, to run on the executor unless the shard is gone by then.
  template <typename F>
  auto Guarded(F f) const {
    return [alive = alive, f = std::move(f)](auto&&... args) mutable {
      if (*alive) f(std::forward<decltype(args)>(args)...);
    };
  }

  static constexpr uint64_t kSliceBytes = 1ull << 20;
  static constexpr uint32_t kSliceRowsMax = 2048;

  // The bytes at the begin that an update of rows in memory touches: applied_lsn, kernels, filter,
  // the flags of the present update, and the count of hits.
  static constexpr size_t kUpdateBytes = 5 * sizeof(uint64_t);

  Lsn applied_lsn = 0;
  const CpuKernelSet& kernels = CpuKernels();
  std::unique_ptr<TouchFilter> filter;  // null: the table has none
  bool replaying = false;
  bool update_active = false;  // between Apply and its end
  bool update_waits = false;   // and now for I/O: no row may enter or leave the hot tier
  RowCounters counters;

  const TierHost::ShardParams shard;
  const SpillShard spill_shard;
  SpillTier* const spill;
  IoQueue* const io;
  const uint32_t slice_rows;  // background work does this many rows between requests
  const std::shared_ptr<IoGate> gate = std::make_shared<IoGate>();
  const std::shared_ptr<bool> alive = std::make_shared<bool>(true);
  const std::function<void()> memory_refused;

  bool has_marks = false;  // rows were deleted: their marks are in the spill tier or on their way
  // A faster tier above has taken rows: of a row that is not here, it and the spill tier may have
  // versions of which this one does not know.
  bool lends_rows = false;
  bool collecting = false;  // WriteBackAll walks over the slots
  // Reads of the spill tier with lower numbers keep nothing they bring back: a faster tier may hold
  // newer versions of the rows.
  uint64_t keep_from_fetch = 0;
  // Replay: rows whose resident value is ahead of the log, with the LSN they were spilled with.
  absl::flat_hash_map<uint64_t, Lsn> replay_guard;
  WriteBack write_back;

 private:
  bool may_miss_;
};

}  // namespace hotbed

#endif  // HOTBED_SERVER_TIERS_MEMORY_ROW_TABLE_STATE_H_
