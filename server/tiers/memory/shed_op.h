// One shard's part in the division of memory among the shards of a server: it ages its rows, and
// gives memory back, slice by slice.
//
// NextRound may be called on any thread; everything else on the shard's executor. No row leaves or
// moves while an update is active: giving back continues afterwards.
#ifndef HOTBED_SERVER_TIERS_MEMORY_SHED_OP_H_
#define HOTBED_SERVER_TIERS_MEMORY_SHED_OP_H_

#include <atomic>
#include <cstdint>

#include "server/tiers/memory/residency.h"
#include "server/tiers/memory/row_table_state.h"

namespace hotbed {

class ShedOp {
 public:
  ShedOp(RowTableState* state, Residency* residency) : state_(state), residency_(residency) {}

  // Any thread. Ages the rows, then gives `cold_bytes` of rows without visits back, and
  // `forced_bytes` of any rows. What earlier rounds have left is forgotten.
  void NextRound(uint64_t cold_bytes, uint64_t forced_bytes);
  // A write or an update has ended: continues if there is something left to give back.
  void Continue() {
    if (left_bytes_ > 0) Step();
  }

 private:
  void Begin();
  void Step();

  RowTableState* const state_;
  Residency* const residency_;
  uint64_t left_bytes_ = 0;
  bool forced_ = false;
  uint64_t cold_bytes_left_ = 0;           // after the forced ones
  bool posted_ = false;                    // a Step is on its way
  std::atomic<uint64_t> cold_bytes_{0};    // of the round that begins
  std::atomic<uint64_t> forced_bytes_{0};  // likewise
  std::atomic<bool> begins_{false};        // Begin is on its way to the executor
};

}  // namespace hotbed

#endif  // HOTBED_SERVER_TIERS_MEMORY_SHED_OP_H_
