// The rows of one copy on disk, and how far they have followed their table: what a serving server
// goes on from after a restart. Confined to the thread that follows; readers look at rows().
//
// While memory has all rows and nobody reads the disk, a change is only noted, by its id. Every
// 10 s, or when kNotedMax ids are noted, the noted rows are written as they are in memory then, by
// a thread of its own and as one file: a row that has changed often is written once. The file has
// the positions of the moment at which the ids were taken; its rows may be later, which the
// positions say as well (RangePosition::seen_lsn). So whoever goes on from the disk is told again
// what was not written.
#ifndef HOTBED_SERVING_KEPT_ROWS_H_
#define HOTBED_SERVING_KEPT_ROWS_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>  // NOLINT(build/c++11)
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/types/span.h"
#include "hotbed/changes.h"
#include "proto/served_part.h"
#include "serving/rows/disk_rows.h"
#include "serving/rows/served_rows.h"

namespace hotbed {

class KeptRows {
 public:
  // As DiskRows::Open; rows of a table of another cluster are others, too.
  static absl::StatusOr<std::unique_ptr<KeptRows>> Open(const std::string& dir,
                                                        const ServedPlaces& places,
                                                        uint32_t row_bytes,
                                                        const std::string& cluster,
                                                        const std::function<bool()>& stops);

  // As a kill: noted rows are not written.
  ~KeptRows() { (void)EndPass(); }

  const std::shared_ptr<DiskRows>& rows() const { return rows_; }
  // Where a stream goes on; empty: the rows are not whole, so that all must come again.
  ChangePositions Positions() const;
  // A stream begins from Positions(), the first one or after an error. Noted rows are written.
  absl::Status BeginStream();
  // The rows of the range come again; those that do not, go at the end.
  absl::Status BeginAgain(const ChangedRange& range, const ChangePositions& positions);
  // Writes what was put and deleted in rows(), as of `positions`.
  absl::Status Commit(const ChangePositions& positions);
  // All rows of all parts were told.
  absl::Status EndAgain(const ChangePositions& positions);
  // Changes are noted, not put and committed: the disk is whole, and memory has all rows.
  bool Notes() const { return whole_ && !rows_->needed(); }
  // `memory` takes the changes up to `positions` next, of rows with these ids; Took: it has.
  void Note(absl::Span<const uint64_t> changed, absl::Span<const uint64_t> deleted,
            const ChangePositions& positions, std::shared_ptr<const ServedRows> memory)
      ABSL_LOCKS_EXCLUDED(mu_);
  void Took(const ChangePositions& positions) { told_ = positions; }
  // Writes all noted rows. To be called before rows() is needed, and at the end.
  absl::Status WriteNoted() ABSL_LOCKS_EXCLUDED(mu_);
  // Every 10 s: begins to write what was noted, makes durable what was committed.
  absl::Status WriteIfDue(int64_t now_ns) ABSL_LOCKS_EXCLUDED(mu_);

  static constexpr size_t kNotedMax = 458'752;  // ids; with those that are written, 13 MiB

 private:
  // Noted rows that are being written.
  struct Pass {
    absl::flat_hash_set<uint64_t> ids;
    ChangePositions from;  // what they were noted since is told up to here
    std::shared_ptr<const ServedRows> memory;
    std::atomic<bool> ended{false};  // `status` is there
    absl::Status status;
    std::thread thread;
  };
  // `must`: where no positions fit the rows, they are not whole until the next Commit or pass.
  void BeginPass(bool must);
  // Waits for it.
  absl::Status EndPass();
  void RunPass(Pass* pass, bool must) ABSL_LOCKS_EXCLUDED(mu_);
  struct Again {
    ChangedRange range;
    uint32_t age = 0;  // rows of the range that are older did not come again
  };
  KeptRows(const ServedPlaces& places, std::unique_ptr<DiskRows> rows)
      : places_(places), rows_(std::move(rows)) {}
  uint32_t LeastAge(uint64_t id) const;

  const ServedPlaces places_;
  const std::shared_ptr<DiskRows> rows_;
  std::vector<Again> again_;
  bool whole_ = false;
  int64_t written_ns_ = 0;  // the last pass or flush began
  absl::flat_hash_set<uint64_t> noted_;
  std::shared_ptr<const ServedRows> memory_;  // that has the noted rows
  ChangePositions told_;                      // that memory has; empty: those of the disk
  std::unique_ptr<Pass> pass_;
  absl::Mutex mu_;
  ChangePositions telling_ ABSL_GUARDED_BY(mu_);  // no row in memory is later
};

}  // namespace hotbed

#endif  // HOTBED_SERVING_KEPT_ROWS_H_
