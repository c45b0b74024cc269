// The update of one log record: find the rows, fetch those that no memory holds, then, once nothing
// can fail any more, update all of them.
//
// One at a time. Confined to the shard's executor. Errors: of a fetch, or of a write that had to
// make room; then no row has changed.
#ifndef HOTBED_SERVER_TIERS_MEMORY_UPDATE_OP_H_
#define HOTBED_SERVER_TIERS_MEMORY_UPDATE_OP_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "server/kernels/row_batches.h"
#include "server/tiers/api/rows.h"
#include "server/tiers/api/tiered_store.h"
#include "server/tiers/memory/residency.h"
#include "server/tiers/memory/row_table_state.h"
#include "server/tiers/spill/spill_fetch.h"

namespace hotbed {

class UpdateOp {
 public:
  // `ended` runs when an update has ended that Start could not finish.
  UpdateOp(RowTableState* state, Residency* residency,
           std::function<void(TieredStore::Done, const absl::Status&)> ended)
      : state_(state), residency_(residency), ended_(std::move(ended)) {}

  // True: all rows are updated and `done` has been dropped. False: `ended` gets `done` later.
  bool Start(const RowUpdates& updates, TieredStore::Done done);
  // A write has ended: an update that waited for it continues, or fails with its error.
  void OnWritten();

 private:
  bool Continue();
  bool NeedsFetch() const;
  void Fetch();
  void OnFetched(std::shared_ptr<SpillFetch> fetch);
  void Delete();
  void PassOverDeleted();
  void SkipReplayedRows();
  void PassOverUnadmitted();
  bool Admits(uint32_t number) const;
  void UpdateMissing();
  uint32_t InsertMissing(uint32_t first, uint32_t count);
  void SetFirstTouches(uint32_t slot);
  void Finish(const absl::Status& status);
  void End(const absl::Status& status);

  RowTableState* const state_;
  Residency* const residency_;
  const std::function<void(TieredStore::Done, const absl::Status&)> ended_;
  RowUpdates updates_;
  TieredStore::Done done_;
  bool waits_for_room_ = false;
  ApplyBatch resident_;
  std::vector<uint32_t> slots_;
  std::vector<uint32_t> missing_;        // numbers of ids that are not resident
  std::vector<uint64_t> positions_;      // of missing_[k]
  std::vector<const uint8_t*> records_;  // of missing_[k] in the spill tier; null: not there
  const uint8_t* enough_ = nullptr;      // of all ids, where the table filters (CountTouches)
  std::shared_ptr<SpillFetch> fetch_;    // owns the records; null: nothing has been fetched
  uint64_t fetch_number_ = 0;
};

}  // namespace hotbed

#endif  // HOTBED_SERVER_TIERS_MEMORY_UPDATE_OP_H_
