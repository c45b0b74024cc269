// Pulls of rows: gathers resident rows, answers from rows being written back, fetches the rest from
// the spill tier, and makes resident what it fetched.
//
// A row that was fetched counts only if neither the hot tier nor WriteBack holds it by then.
// Confined to the shard's executor. Any number of pulls may wait for fetches at a time.
#ifndef HOTBED_SERVER_TIERS_MEMORY_PULL_OPS_H_
#define HOTBED_SERVER_TIERS_MEMORY_PULL_OPS_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "server/kernels/row_batches.h"
#include "server/tiers/api/rows.h"
#include "server/tiers/api/tiered_store.h"
#include "server/tiers/memory/residency.h"
#include "server/tiers/memory/row_table_state.h"
#include "server/tiers/spill/spill_fetch.h"

namespace hotbed {

class PullOps {
 public:
  PullOps(RowTableState* state, Residency* residency) : state_(state), residency_(residency) {}

  // True: all rows are answered and `done` will not run; else as TieredStore::Pull.
  bool Start(const RowReads& reads, TieredStore::Done done);

 private:
  struct Op {
    TieredStore::Done done;
    GatherBatch gather;
    std::vector<uint32_t> missing;  // numbers of ids
    std::vector<uint64_t> positions;
    uint64_t fetch_number = 0;
  };

  Op* New(const GatherBatch& gather);
  void Recycle(Op* op);
  bool AnswerFromMemory(GatherBatch* gather);
  void Fetch(Op* op);
  void OnFetched(Op* op, SpillFetch* fetch);
  void AnswerPart(Op* op, SpillFetch::Part* part);
  void Promote(const SpillFetch::Part& part, const std::vector<uint32_t>& rows);

  RowTableState* const state_;
  Residency* const residency_;
  std::vector<std::unique_ptr<Op>> ops_;
  std::vector<Op*> free_;
};

}  // namespace hotbed

#endif  // HOTBED_SERVER_TIERS_MEMORY_PULL_OPS_H_
