// Copies the rows of a shard, whose primary is here, as they are at one LSN, while pushes go on.
//
// The rows come in passes from the one reader that snapshot transfers use (SnapshotSource): all
// rows, then those that have changed meanwhile, until so few have changed that one task of the
// shard's strand reads them. Where memory cannot be read that way (rows on a device, a shard of
// very many rows, a transfer of the same shard), or pushes are faster than the sink, all rows are
// written back, pushes to the shard are refused for the moment that the rest takes, and the rows
// come from a snapshot of the spill tier.
//
// Memory: at most kCopyBytes beside the sink's own. The positions of the rows in memory take 8 MiB
// of these, the last pass twice kCopyAtOnceBytes, and the blocks on their way the rest.
#ifndef HOTBED_SERVER_HOST_SHARD_COPY_H_
#define HOTBED_SERVER_HOST_SHARD_COPY_H_

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/host/row_files.h"
#include "server/host/table_checkpoints.h"
#include "server/shard/shard.h"

namespace hotbed {

constexpr uint64_t kCopyBlockBytes = 1ull << 20;
// Reading them delays the shard's requests by about a millisecond.
constexpr uint64_t kCopyAtOnceBytes = 2ull << 20;
constexpr int kCopyPassesMax = 8;
constexpr uint64_t kCopyBytes = 16ull << 20;

// Blocks. `checkpoints` pauses shards. FailedPrecondition: the primary is another server by now;
// Aborted: it became so meanwhile, and the sink's rows are of no use.
absl::StatusOr<CopiedShard> CopyShard(const std::shared_ptr<Shard>& shard,
                                      TableCheckpoints* checkpoints, RowSink* sink);
// The same with those rows only that have changed since `above`; all of them if the shard does not
// go on from there. The rows come from the spill tier, as in StillRows.
absl::StatusOr<CopiedShard> CopyChanges(const std::shared_ptr<Shard>& shard,
                                        const ChangePosition& above, TableCheckpoints* checkpoints,
                                        RowSink* sink);

// Takes the rows that have changed since `above`, or all as CopyChanges does. They come from the
// spill tier, as in StillRows.
absl::StatusOr<TakenRows> TakeRowsOf(const std::shared_ptr<Shard>& shard,
                                     const ChangePosition& above, TableCheckpoints* checkpoints);
absl::StatusOr<CopiedShard> CopyTaken(TakenRows taken, RowSink* sink);

// All rows of a shard, or those with LSNs above `above`, as of one LSN, from the spill tier. The
// reader of the rows outlives neither the shard nor its host, and holds up nobody, however slow it
// is. Blocks; pushes are refused for a moment.
absl::StatusOr<Snapshot> StillRows(const std::shared_ptr<Shard>& shard,
                                   TableCheckpoints* checkpoints, Lsn above);

}  // namespace hotbed

#endif  // HOTBED_SERVER_HOST_SHARD_COPY_H_
