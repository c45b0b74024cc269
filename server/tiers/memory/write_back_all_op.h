// TieredStore::WriteBackAll, and the meta that it stores: copies dirty rows to WriteBack slice by
// slice, waits for each slice's write so that requests run in between, then writes the meta.
//
// One at a time. Confined to the shard's executor.
#ifndef HOTBED_SERVER_TIERS_MEMORY_WRITE_BACK_ALL_OP_H_
#define HOTBED_SERVER_TIERS_MEMORY_WRITE_BACK_ALL_OP_H_

#include <cstdint>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "server/tiers/api/tiered_store.h"
#include "server/tiers/memory/residency.h"
#include "server/tiers/memory/row_table_state.h"

namespace hotbed {

class WriteBackAllOp {
 public:
  WriteBackAllOp(RowTableState* state, Residency* residency, std::string meta)
      : state_(state), residency_(residency), meta_(std::move(meta)) {}

  void Start(Lsn applied_lsn, std::string meta, TieredStore::Done done);
  // A write has ended: takes the next step, if this is running.
  void OnWritten() {
    if (active_) Step();
  }
  // The last meta that was written, or that the shard was opened with.
  const std::string& meta() const { return meta_; }

 private:
  void Step();
  void WriteMeta();
  void Finish(absl::Status status);

  RowTableState* const state_;
  Residency* const residency_;
  std::string meta_;
  bool active_ = false;
  bool writing_meta_ = false;  // all rows are written: only the end of the meta's write matters
  uint32_t cursor_ = 0;    // slot; while state_->collecting, dirty rows may be left from here on
  uint64_t wait_for_ = 0;  // until WriteBack::written() reaches this
  Lsn lsn_ = 0;
  std::string next_meta_;
  TieredStore::Done done_;
};

}  // namespace hotbed

#endif  // HOTBED_SERVER_TIERS_MEMORY_WRITE_BACK_ALL_OP_H_
