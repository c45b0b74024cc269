// Pooled pulls: pools bags whose rows are all resident in one pass of a kernel, and the other bags
// window after window of their ids.
//
// A window is a pull of rows as they are stored, so it meets resident rows, rows being written back
// and the spill tier as every pull does; its size (kPoolStageBytes) bounds the memory. Each piece
// of a bag is added to the sum of the pieces before it, in order, which gives the bits of one pass.
//
// Confined to the shard's executor.
#ifndef HOTBED_SERVER_TIERS_MEMORY_POOL_OPS_H_
#define HOTBED_SERVER_TIERS_MEMORY_POOL_OPS_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "server/kernels/row_batches.h"
#include "server/tiers/api/rows.h"
#include "server/tiers/api/tiered_store.h"
#include "server/tiers/memory/residency.h"
#include "server/tiers/memory/row_table_state.h"

namespace hotbed {

class PoolOps {
 public:
  // `source` answers the pulls of windows.
  PoolOps(RowTableState* state, Residency* residency, TieredStore* source)
      : state_(state), residency_(residency), source_(source) {}

  void set_source(TieredStore* source) { source_ = source; }

  // True: all bags are answered and `done` will not run; else as TieredStore::Pull.
  bool Start(const RowReads& reads, TieredStore::Done done);
  // The same for the bags numbered `bags` alone, all of them in windows.
  bool StartWindows(const RowReads& reads, const std::vector<uint32_t>& bags,
                    TieredStore::Done done);

 private:
  struct Op {
    TieredStore::Done done;
    GatherBatch gather;
    std::vector<uint32_t> missing;  // bags to make in windows; gather.missing_count of them
    // The bag in progress: its number in `missing`, its own number, the first of its ids, and how
    // many of its rows earlier windows have added.
    uint32_t next = 0;
    uint32_t bag = 0;
    uint64_t bag_first = 0;
    uint32_t place = 0;
    std::vector<float> sum;  // of the bag in progress
    // The window.
    std::vector<uint64_t> ids;
    std::vector<uint8_t> rows;
    std::vector<uint8_t> flags;
  };

  Op* New(const RowReads& reads);
  void Recycle(Op* op);
  bool RunWindows(Op* op);
  void OnWindow(Op* op, const absl::Status& status);
  void FillWindow(Op* op);
  void TakeWindow(Op* op);
  uint32_t TakePiece(Op* op, uint32_t at);
  void End(Op* op, const absl::Status& status);

  RowTableState* const state_;
  Residency* const residency_;
  TieredStore* source_;
  std::vector<std::unique_ptr<Op>> ops_;
  std::vector<Op*> free_;
};

}  // namespace hotbed

#endif  // HOTBED_SERVER_TIERS_MEMORY_POOL_OPS_H_
