// The rows of a shard as a whole: written back to the spill tier, or read for a snapshot transfer
// to another replica.
//
// A snapshot begins with its base: epoch, LSN and meta. Its rows are as of that LSN or later, each
// stamped with its own, so that the entries above the base make them exact. Rows come from memory
// where the store allows it: then nothing need be written to a disk from which it is read once. One
// transfer at a time may, since the rows carry one mark of change between its passes; the others
// write back and read the spill tier.
//
// A copy leaves for a file instead of a replica. It has no entries behind it, so its last pass is
// of one moment: few rows have changed by then, and they are read in one task of the strand.
//
// Rows that have changed since an LSN come with the marks of those that were deleted. Where marks
// above that LSN are gone (DeleteMarks) there is no such snapshot, but one of all rows.
//
// Thread-safe; the calls block and are never made on the shard's strand, except End.
#ifndef HOTBED_SERVER_SHARD_SNAPSHOT_SOURCE_H_
#define HOTBED_SERVER_SHARD_SNAPSHOT_SOURCE_H_

#include <optional>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "common/ids.h"
#include "common/tables/shard_record.h"
#include "server/shard/commit_pipeline.h"
#include "server/shard/delete_marks.h"
#include "server/shard/replica/record_tail.h"
#include "server/shard/shard_context.h"
#include "server/shard/shard_snapshot.h"
#include "server/shard/step_commits.h"

namespace hotbed {

class SnapshotSource {
 public:
  // All outlive it.
  SnapshotSource(ShardContext* shard, StepCommits* steps, RecordTail* tail,
                 CommitPipeline* pipeline)
      : shard_(*shard), steps_(*steps), tail_(*tail), pipeline_(*pipeline) {}

  // Writes back all rows that are dirty now, and the meta, to the spill tier's memory; the LSN that
  // this covers.
  absl::StatusOr<Lsn> WriteBack();
  // The rows for `to`, with LSNs above `above` (that of the last snapshot for `to`; 0: all). From
  // the base on, entries are kept for `to` as far as there is memory; with `holds`, in any case
  // (RecordTail::Hold). FailedPrecondition: the shard's record does not want that transfer.
  absl::StatusOr<Snapshot> Begin(const Member& to, bool holds, Lsn above);
  // How the transfer to `to` ended. On the strand.
  void End(const Member& to, Lsn lsn, bool installed);

  // A pass of a copy: the first one, or a `further` one with the rows that have changed since the
  // base `above`. It is of one moment if its rows in memory take at most `at_once_bytes_max`. Rows
  // are null where memory cannot be read now: see Still.
  absl::StatusOr<CopyPass> BeginCopy(bool further, Lsn above, uint64_t at_once_bytes_max);
  // The copy has ended. On the strand.
  void EndCopy();
  // Writes all rows back, and gives those with LSNs above `above` (0: all) as they are now. Of one
  // moment while the shard is paused.
  absl::StatusOr<Snapshot> Still(Lsn above);
  // The same for a reader that goes on with the changes above the base: as of the base or later.
  absl::StatusOr<Snapshot> Changed(Lsn above);
  // Reads rows of memory in one task of the strand (TieredStore::ReadPass). Aborted: the shard has
  // left this server.
  absl::Status ReadPass(absl::Span<const uint64_t> positions, LiveRows* rows);
  DeleteMarks* marks() { return &marks_; }
  const DeleteMarks* marks() const { return &marks_; }
  // Takes marks of deleted rows away that the rule does not keep, if any; the number of those that
  // went, about. To be called from time to time, by one thread. `go_on` is asked now and then, and
  // its error ends the call.
  absl::StatusOr<uint64_t> DropMarks(const DeleteMarks::Rule& rule, const DeleteMarks::Moment& now,
                                     absl::FunctionRef<absl::Status()> go_on);
  // Held from the begin of a write-back to its end. Its holder may let go of the rows: a
  // write-back that comes later finds none.
  absl::Mutex* writing_back() { return &write_back_mu_; }

 private:
  static constexpr Member kFile = {};  // in place of a replica: a copy has none

  // Rows that memory has; a snapshot without rows where it cannot be read.
  absl::StatusOr<Snapshot> BeginFromMemory(const Member& to, bool holds, Lsn above);
  absl::StatusOr<SnapshotBase> WriteBackFor(const Member* to, bool holds);
  // Aborted: marks above `above` are gone by now.
  absl::Status CheckMarks(Lsn above) const;
  // On the strand.
  absl::StatusOr<SnapshotBase> TakeBase(const Member* to, bool holds);

  ShardContext& shard_;
  StepCommits& steps_;
  RecordTail& tail_;
  CommitPipeline& pipeline_;
  DeleteMarks marks_;
  std::optional<Member> from_memory_to_;  // the strand's: whose passes the rows' marks belong to
  absl::Mutex write_back_mu_;             // one write-back at a time
};

}  // namespace hotbed

#endif  // HOTBED_SERVER_SHARD_SNAPSHOT_SOURCE_H_
