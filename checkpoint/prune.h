// Deletes old checkpoints, and what saves left that did not end.
#ifndef HOTBED_CHECKPOINT_PRUNE_H_
#define HOTBED_CHECKPOINT_PRUNE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "checkpoint/checkpoint_folder.h"
#include "places/place.h"

namespace hotbed {

struct PruneOptions {
  uint32_t keep = 0;  // whole checkpoints, the newest, with all that they need; 0: all
  // A save that began before then and has not ended is taken for broken off.
  int64_t orphans_before_unix_ms = 0;
  bool dry_run = false;
};

struct Pruned {
  std::vector<std::string> deleted;  // names, the oldest first
  uint64_t bytes = 0;
  uint64_t kept = 0;        // whole checkpoints
  uint64_t unfinished = 0;  // files of an object store that were never whole
};

// A damaged checkpoint stays, for a person to look at. So do those that a save or fold under way
// needs.
absl::StatusOr<Pruned> PruneCheckpoints(const std::string& directory, const PruneOptions& options,
                                        Place* place);

// The checkpoint in `folder`, if it may be deleted by itself, also when it is damaged. NotFound: it
// is none. FailedPrecondition: its save has not ended, or a checkpoint or save needs it.
absl::StatusOr<CheckpointFolder> FindDeletable(const std::string& folder, Place* place);

}  // namespace hotbed

#endif  // HOTBED_CHECKPOINT_PRUNE_H_
