// Offers the rows of the shard to a RowRanking, while the shard goes on working.
//
// Every row counts with a value that it had between the begin and the end of the call, so updates
// that were applied before are seen. The rows in memory are read on the shard's strand, some tens
// of microseconds at a time, so that requests get their turns; then the spill tier. A record of it
// may be older than the row in memory: one that would be among the nearest is read again, as the
// row is now. A store whose memory cannot be read (a device) writes its rows back first, which
// delays nobody either.
//
// Thread-safe; calls block and are never made on the shard's strand.
#ifndef HOTBED_SERVER_SHARD_ROW_SEARCH_H_
#define HOTBED_SERVER_SHARD_ROW_SEARCH_H_

#include <cstdint>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/types/span.h"
#include "server/shard/shard_context.h"
#include "server/shard/snapshot_source.h"
#include "server/tiers/api/row_ranking.h"
#include "server/tiers/api/rows.h"

namespace hotbed {

class RowSearch {
 public:
  // Asked between two steps; an error ends the search.
  using GoOn = absl::FunctionRef<absl::Status()>;

  // Both outlive it.
  RowSearch(ShardContext* shard, SnapshotSource* snapshots)
      : shard_(*shard), snapshots_(*snapshots) {}

  // Aborted: the shard has left this server. DataLoss names a damaged row.
  absl::Status All(RowRanking* ranking, GoOn go_on);
  // The rows at `positions` alone, which ascend and lie in the shard's range.
  absl::Status Only(absl::Span<const uint64_t> positions, RowRanking* ranking, GoOn go_on);

 private:
  // False: memory cannot be read.
  absl::StatusOr<bool> StepOverMemory(RowRanking* ranking, MemoryWalk* walk);
  // The rows at `positions` as they are now.
  absl::Status ReadAgain(absl::Span<const uint64_t> positions, RowRanking* ranking);
  absl::Status FromSpill(absl::Span<const uint64_t> positions, RowRanking* ranking);
  // `exact`: no row in memory is newer than the spill tier.
  absl::Status AllFromSpill(bool exact, RowRanking* ranking, GoOn go_on);
  bool IsRow(const StoredRun& run, uint32_t row) const;
  // The part of the shard that the ranking wants.
  SpillShard Wanted(const RowRanking& ranking) const;

  ShardContext& shard_;
  SnapshotSource& snapshots_;
};

}  // namespace hotbed

#endif  // HOTBED_SERVER_SHARD_ROW_SEARCH_H_
