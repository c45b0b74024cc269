// SaveCheckpoint of hotbed/checkpoint.h for a cluster that is not reached through a client.
#ifndef HOTBED_CLIENT_CHECKPOINT_SAVE_CHECKPOINT_H_
#define HOTBED_CLIENT_CHECKPOINT_SAVE_CHECKPOINT_H_

#include "absl/status/statusor.h"
#include "client/map/checkpoint_cluster.h"
#include "hotbed/checkpoint.h"

namespace hotbed {

absl::StatusOr<SavedCheckpoint> SaveCheckpoint(CheckpointCluster* cluster,
                                               const SaveOptions& options);

}  // namespace hotbed

#endif  // HOTBED_CLIENT_CHECKPOINT_SAVE_CHECKPOINT_H_
