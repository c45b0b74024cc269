// Reads of memory for a snapshot transfer (TieredStore::BeginPass, spill/live_reader.h). Confined
// to the shard's executor.
#ifndef HOTBED_SERVER_TIERS_MEMORY_MEMORY_PASS_H_
#define HOTBED_SERVER_TIERS_MEMORY_MEMORY_PASS_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "common/ids.h"
#include "server/tiers/api/rows.h"
#include "server/tiers/memory/residency.h"
#include "server/tiers/memory/row_table_state.h"

namespace hotbed {

class MemoryPass {
 public:
  MemoryPass(RowTableState* state, Residency* residency) : state_(state), residency_(residency) {}

  // As TieredStore::BeginPass. False during replay, or when the tier has too many slots to be
  // walked between two requests.
  bool Begin(bool further, std::vector<uint64_t>* positions);
  // As TieredStore::ReadPass.
  void Read(absl::Span<const uint64_t> positions, LiveRows* out);

 private:
  RowTableState* const state_;
  Residency* const residency_;
  Lsn lsn_ = 0;  // applied when the pass began
};

}  // namespace hotbed

#endif  // HOTBED_SERVER_TIERS_MEMORY_MEMORY_PASS_H_
