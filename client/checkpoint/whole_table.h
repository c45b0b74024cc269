// The parts of saves and restores that exports and imports (hotbed/arrays.h) go through.
#ifndef HOTBED_CLIENT_CHECKPOINT_WHOLE_TABLE_H_
#define HOTBED_CLIENT_CHECKPOINT_WHOLE_TABLE_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/map/checkpoint_cluster.h"
#include "hotbed/checkpoint.h"
#include "proto/checkpoint.pb.h"

namespace hotbed {

// In the folder of an export: the manifest so far.
inline constexpr char kProgressFile[] = "progress.json";
// The files that fence off the jobs of servers begin so.
inline constexpr char kFencePrefix[] = "fence-";
constexpr absl::Duration kFencePatience = absl::Seconds(10);

// Saves the shards that are missing in the manifest, which is of one table, into `folder`: into its
// arrays, or into files. The manifest is kept in kProgressFile.
absl::Status SaveMissingShards(const SaveOptions& options, bool weights_only,
                               const std::string& folder, CheckpointCluster* cluster,
                               v1::CheckpointManifest* manifest);

absl::StatusOr<RestoredCheckpoint> Restore(const RestoreOptions& options,
                                           CheckpointCluster* cluster);
// Waits for a restore that an earlier call has begun. After an error the table is left as it is.
absl::Status AwaitRestored(const RestoreOptions& options, const v1::TableSpec& table,
                           CheckpointCluster* cluster);

}  // namespace hotbed

#endif  // HOTBED_CLIENT_CHECKPOINT_WHOLE_TABLE_H_
