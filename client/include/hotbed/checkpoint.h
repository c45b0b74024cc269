// Checkpoints: tables as they were at one moment per shard, in files that any cluster can begin
// tables with (docs/checkpoints.md). These are the calls behind 'hotbed checkpoint'.
//
//   auto saved = hotbed::SaveCheckpoint("hotbed://127.0.0.1:7400", {.directory = "/shared/ctr"});
//   auto restored = hotbed::RestoreCheckpoint("hotbed://10.0.0.7:7400",
//                                             {.checkpoint = saved->path});
//
// The files lie in a directory that every server reaches, or in an object store
// (s3://BUCKET/PREFIX, with credentials by AWS's environment variables where the servers and the
// caller are started), or on each server's own disk (server:NAME). Servers write and read the files
// themselves; the caller, which has to reach the place too, only writes the manifest. The calls
// block. Thread-safe.
#ifndef HOTBED_CHECKPOINT_H_
#define HOTBED_CHECKPOINT_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "hotbed/client.h"
#include "hotbed/table_options.h"

namespace hotbed {

struct CheckpointProgress {
  uint64_t shards_done = 0;
  uint64_t shards = 0;
  uint64_t bytes_done = 0;
  uint64_t bytes = 0;     // an estimate
  std::string waits_for;  // of a save at a step that has not come; empty: for nothing
};
using OnCheckpointProgress = std::function<void(const CheckpointProgress&)>;

struct SaveOptions {
  // Absolute path or s3://BUCKET/PREFIX, which all servers reach, or server:NAME: each server's own
  // disk, from which FetchCheckpoint brings the files.
  std::string directory;
  std::string name;                 // of the checkpoint, a folder in it; empty: by the time
  std::vector<std::string> tables;  // empty: all
  uint64_t bytes_per_s = 0;         // of each server, before compression; 0: no limit
  std::string compress;             // "zstd": blocks of rows are compressed; empty: they are not
  // Saves only the rows of each shard that have changed since the newest whole checkpoint in the
  // directory, which has to stay. All rows where there is none, or the shard does not go on from
  // it, and in every ninth checkpoint of a series.
  bool incremental = false;
  // All shards as they are when every trainer of the group has ended this step and none has begun
  // the next one: the trainers are held there for the moment in which the servers take the rows. 0:
  // the first step for which that is possible. It is FailedPrecondition if trainers may have begun
  // the next step already.
  std::optional<uint64_t> at_step;
  std::string group;  // ClientOptions::trainer_group; empty: the only one that has trainers
  // How long a shard may stay without a server that saves it (fail-over, restart), and how long no
  // trainer may come nearer to `at_step`.
  absl::Duration patience = absl::Minutes(1);
  OnCheckpointProgress progress;
  std::function<bool()> stop;  // asked ten times per second: true breaks the save off
};

struct CheckpointTableSize {
  std::string name;
  uint64_t shards = 0;
  uint64_t rows = 0;  // a row that changed while it was saved may count twice
  uint64_t bytes = 0;
};

struct SavedCheckpoint {
  std::string path;         // of its folder
  std::string parent;       // the name of the checkpoint that it needs; empty: none
  uint32_t generation = 0;  // how many checkpoints it needs beside itself
  uint64_t at_step = 0;     // 0: its shards are of different moments
  std::vector<CheckpointTableSize> tables;
};

// After an error there is no checkpoint: what was written is deleted, or an orphan that
// 'hotbed checkpoint prune' finds.
absl::StatusOr<SavedCheckpoint> SaveCheckpoint(const std::string& target,
                                               const SaveOptions& options);
// The same for the cluster of a client, which may be the local engine (hotbed/local.h).
absl::StatusOr<SavedCheckpoint> SaveCheckpoint(Client* client, const SaveOptions& options);

// Whether pushes that the checkpoint contains are known as applied, if their session sends them
// again. Only the cluster that saved them knows its sessions.
enum class RestoredSessions : uint8_t {
  kContinueIfKnown = 0,  // in the cluster that saved them, kContinue; else kAnew
  kContinue = 1,
  kAnew = 2,
};

struct RestoreOptions {
  struct TableName {
    std::string name;  // in the checkpoint
    std::string as;    // of the new table; empty: the same
  };
  std::string checkpoint;         // of its folder, or a directory, of which the newest is taken
  std::vector<TableName> tables;  // empty: all
  // The properties that differ from the saved tables.
  std::optional<Durability> durability;
  uint32_t replicas = 0;  // with kReplicated; 0: as saved, or 2
  std::optional<WeightType> weight_type;
  uint32_t shards = 0;  // of each table, at least; 0: the saved ones
  RestoredSessions sessions = RestoredSessions::kContinueIfKnown;
  bool dry_run = false;  // checks and places the tables, and creates nothing
  // How long the restore may make no progress.
  absl::Duration patience = absl::Minutes(1);
  OnCheckpointProgress progress;
  // Asked ten times per second: true ends the wait. The restore goes on without it.
  std::function<bool()> stop;
};

struct RestoredCheckpoint {
  std::string path;
  bool sessions_continue = false;
  std::vector<CheckpointTableSize> tables;  // by their new names
  double first_shard_seconds = 0;           // until the first shard served
};

// Creates the tables and returns when all their shards serve. A shard serves as soon as it has its
// own rows. After an error the new tables are dropped again. If the caller dies, the restore goes
// on without it.
absl::StatusOr<RestoredCheckpoint> RestoreCheckpoint(const std::string& target,
                                                     const RestoreOptions& options);
absl::StatusOr<RestoredCheckpoint> RestoreCheckpoint(Client* client, const RestoreOptions& options);

struct FetchOptions {
  // server:NAME/CHECKPOINT, or server:NAME, of which the newest whole one is taken.
  std::string checkpoint;
  std::string directory;  // absolute path or s3://BUCKET/PREFIX that the caller reaches
  OnCheckpointProgress progress;
  std::function<bool()> stop;  // asked ten times per second: true breaks the fetch off
};

struct FetchedCheckpoint {
  std::string path;  // of its folder
  uint64_t files = 0;
  uint64_t bytes = 0;
  uint64_t files_fetched = 0;  // the others were there
  uint64_t bytes_fetched = 0;
};

// Brings a checkpoint from the servers' own disks into a place where it is like any other. Every
// block is compared with its checksum before it is written. After an error, which names the servers
// and files that lack, the files that came stay, and another call goes on with them: the manifest
// is written last.
absl::StatusOr<FetchedCheckpoint> FetchCheckpoint(const std::string& target,
                                                  const FetchOptions& options);
absl::StatusOr<FetchedCheckpoint> FetchCheckpoint(Client* client, const FetchOptions& options);

}  // namespace hotbed

#endif  // HOTBED_CHECKPOINT_H_
