// One shard's part in the division of memory among the shards of a server: it ages its rows, and
// gives memory back, slice by slice.
//
// NextRound may be called on any thread; everything else on the shard's executor. No row leaves or
// moves while an update is active: giving back continues afterwards.
#ifndef HOTBED_SERVER_TIERS_MEMORY_SHED_OP_H_
#define HOTBED_SERVER_TIERS_MEMORY_SHED_OP_H_

#include <cstdint>
#include <optional>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "server/tiers/memory/residency.h"
#include "server/tiers/memory/row_table_state.h"

namespace hotbed {

class ShedOp {
 public:
  ShedOp(RowTableState* state, Residency* residency) : state_(state), residency_(residency) {}

  // Any thread. Ages the rows, then gives `cold_bytes` of rows without visits back, and
  // `forced_bytes` of any rows. What earlier rounds have left is forgotten.
  void NextRound(uint64_t cold_bytes, uint64_t forced_bytes) ABSL_LOCKS_EXCLUDED(mu_);
  // A write, an update or the replay has ended: continues if there is something left to give back.
  void Continue() {
    if (left_bytes_ > 0) Step();
  }

 private:
  struct Round {
    uint64_t cold_bytes;
    uint64_t forced_bytes;
  };
  void Begin() ABSL_LOCKS_EXCLUDED(mu_);
  void Step();

  RowTableState* const state_;
  Residency* const residency_;
  uint64_t left_bytes_ = 0;
  bool forced_ = false;
  uint64_t cold_bytes_left_ = 0;  // after the forced ones
  bool posted_ = false;           // a Step is on its way
  absl::Mutex mu_;
  std::optional<Round> next_ ABSL_GUARDED_BY(mu_);  // while set, Begin is on its way
};

}  // namespace hotbed

#endif  // HOTBED_SERVER_TIERS_MEMORY_SHED_OP_H_
