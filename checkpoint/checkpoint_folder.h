// Directories of checkpoints: each checkpoint is a folder of its own. A folder without a manifest
// is of a save that still runs, or of one that did not end (an orphan). Pure functions over a
// place; they block.
#ifndef HOTBED_CHECKPOINT_CHECKPOINT_FOLDER_H_
#define HOTBED_CHECKPOINT_CHECKPOINT_FOLDER_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "places/place.h"
#include "proto/checkpoint.pb.h"

namespace hotbed {

// Exists from the begin of a save until its manifest is there: such a folder is of a checkpoint.
inline constexpr char kSavingFile[] = "saving";
// Its content while the folder is deleted: servers then begin no further file.
inline constexpr char kDeletingMark[] = "1";
// A folder with this file belongs to an export or import (hotbed/arrays.h), and is no checkpoint.
inline constexpr char kTransferLockFile[] = "lock";

struct CheckpointFolder {
  std::string name;  // of the folder
  std::string path;
  bool whole = false;
  // As the manifest has them, if whole.
  std::string cluster_id;
  std::string parent;
  uint32_t generation = 0;
  std::string folded_from;
  std::vector<std::string> tables;  // their names
  std::string trouble;              // why it is not whole
  int64_t begun_unix_ms = 0;
  uint64_t bytes = 0;  // of its files
};

// The checkpoints in `directory`, and the orphans, by time. NotFound: there is no such directory.
absl::StatusOr<std::vector<CheckpointFolder>> ListCheckpoints(const std::string& directory,
                                                              Place* place);
// The whole checkpoint that `path` means: a checkpoint's own folder, or the newest in a directory.
absl::StatusOr<std::string> FindCheckpoint(const std::string& path, Place* place);

// Makes the folder of a checkpoint in `directory`, which is made if need be. `mark` becomes the
// content of kSavingFile: the time in ms since 1970, and perhaps a blank and what tells a save from
// another one that has made the folder at the same moment.
absl::StatusOr<std::string> MakeCheckpointFolder(const std::string& directory,
                                                 const std::string& name, const std::string& mark,
                                                 Place* place);
// That checkpoint, then its parent, and so on: all that it needs. NotFound, DataLoss: one of them
// is not whole, or not the one that it was when its child was saved.
absl::StatusOr<std::vector<std::string>> FoldersNeeded(const std::string& folder, Place* place);
// The manifest first: what is left after a kill is an orphan. Waits for some seconds for servers
// that still write a file of it. Aborted: one did so to the end.
absl::Status DeleteCheckpoint(const std::string& folder, Place* place);

struct Verified {
  uint64_t checkpoints = 0;  // it, and those that it needs; shards, rows and bytes are of all
  uint64_t tables = 0;
  uint64_t shards = 0;
  uint64_t rows = 0;
  uint64_t bytes = 0;
};
// Reads every byte of a checkpoint, and of those that it needs, and compares the checksums, sizes,
// counts and orders. An error names the file and the place. `progress` gets the bytes read so far,
// and those in all.
absl::StatusOr<Verified> VerifyCheckpoint(const std::string& folder, Place* place,
                                          const std::function<void(uint64_t, uint64_t)>& progress);

}  // namespace hotbed

#endif  // HOTBED_CHECKPOINT_CHECKPOINT_FOLDER_H_
