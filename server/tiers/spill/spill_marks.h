// Takes the marks of deleted rows away which nobody needs any more.
//
// The shard may be written meanwhile. Before a mark goes it is read again, while no write runs, so
// that a row stays which was pushed again since. Used once, by one thread.
#ifndef HOTBED_SERVER_TIERS_SPILL_SPILL_MARKS_H_
#define HOTBED_SERVER_TIERS_SPILL_SPILL_MARKS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "kv/kv_store.h"
#include "server/tiers/spill/spill_record.h"

namespace hotbed {

class MarkWalk {
 public:
  // Over the marks with LSNs up to `through`. Who holds `writes` exclusively keeps all writes of
  // rows out. All outlive it.
  MarkWalk(const SpillShard& shard, Lsn through, KvStore* store, absl::Mutex* writes)
      : shard_(shard), through_(through), store_(*store), writes_(*writes) {}

  // The number of marks that stay. `go_on` is asked between two steps; its error ends the walk.
  absl::StatusOr<uint64_t> Run(absl::FunctionRef<absl::Status()> go_on);

 private:
  bool MayGo(absl::string_view record) const;
  absl::Status Find();
  // Those that were found and are marks still.
  absl::Status Drop() ABSL_LOCKS_EXCLUDED(writes_);

  const SpillShard shard_;
  const Lsn through_;
  KvStore& store_;
  absl::Mutex& writes_;
  std::string next_;  // the key with which the next step begins
  bool at_end_ = false;
  std::vector<SpillKey> found_;
  uint64_t left_ = 0;
};

}  // namespace hotbed

#endif  // HOTBED_SERVER_TIERS_SPILL_SPILL_MARKS_H_
