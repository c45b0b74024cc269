// Folds a checkpoint with all those that it needs into one that needs no other.
#ifndef HOTBED_CHECKPOINT_FOLD_H_
#define HOTBED_CHECKPOINT_FOLD_H_

#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/statusor.h"
#include "common/clock.h"
#include "places/place.h"
#include "proto/checkpoint.pb.h"

namespace hotbed {

struct FoldOptions {
  uint64_t bytes_per_s = 0;    // that are written; 0: no limit
  std::function<bool()> stop;  // true breaks it off
  // Bytes read so far, and those to read.
  std::function<void(uint64_t, uint64_t)> progress;
};

struct Folded {
  std::string path;          // of the new checkpoint; the given one if it needs no other
  uint64_t checkpoints = 0;  // that are in it
  uint64_t rows = 0;
  uint64_t bytes = 0;
};

inline constexpr char kFoldedSuffix[] = "-folded";

// Writes NAME-folded beside the checkpoint of `folder`: the same shards, LSNs, sessions and rows,
// each row once, in files of its own. It is whole after OK; after an error nothing of it is left,
// or an orphan that prune finds. The others stay as they are. AlreadyExists: it was folded before.
//
// Blocks. Holds a block of rows (about 1 MiB, and what the place reads ahead) per checkpoint and
// pass, one shard at a time.
absl::StatusOr<Folded> FoldCheckpoint(const std::string& folder, const FoldOptions& options,
                                      Place* place, const Clock* clock);

// Whether the checkpoint `folded` was made of `source` as it is, and not of one of the same name
// that was there before.
bool IsFoldOf(const v1::CheckpointManifest& folded, const v1::CheckpointManifest& source);

}  // namespace hotbed

#endif  // HOTBED_CHECKPOINT_FOLD_H_
