// Writes shards' rows back to the spill tier, so that the log stays below its limit and short
// compared with the rows that it protects, and no row stays dirty for long.
//
// Thread-safe, except that WriteBackDue is for the upkeep thread alone. Writing back blocks on the
// disk.
#ifndef HOTBED_SERVER_HOST_SHARD_WRITE_BACK_H_
#define HOTBED_SERVER_HOST_SHARD_WRITE_BACK_H_

#include <atomic>
#include <cstdint>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "common/ids.h"
#include "server/host/shard_directory.h"
#include "server/shard_log/shard_log.h"
#include "server/tiers/api/host.h"

namespace hotbed {

class ShardWriteBack {
 public:
  ShardWriteBack(const ShardDirectory* directory, TierHost* tiers, ShardLog* log,
                 uint64_t log_bytes_max)
      : directory_(directory), tiers_(tiers), log_(log), log_bytes_max_(log_bytes_max) {}

  // Writes back the shards, flushes, and lets the log go up to there. Returns the first error; the
  // other shards are tried all the same.
  absl::Status WriteBack(const ShardList& shards);
  // A batch of the shards that were written back least recently, if the log is half full, or longer
  // than 64 MiB and eight times the rows, or if their rows have been dirty for two minutes.
  void WriteBackDue(int64_t now_ns);
  // Shards whose log ends before what their rows carry, and which no other replica can complete.
  absl::Status WriteBackWhereLogIsLost();

  // Looks how full the log is, sets log_full() accordingly, and returns the bytes that count.
  uint64_t NoteLogFull();
  // While true, shards refuse pushes.
  const std::atomic<bool>* log_full() const { return &log_full_; }

 private:
  // Sets the shard aside in the log while no write-back frees what the log keeps for it.
  void NoteStuck(const Shard& shard, bool crowded, bool clean_rows);
  // Whether a log of so many bytes is to be cut.
  bool Crowded(uint64_t log_bytes, int64_t now_ns);

  const ShardDirectory* const directory_;
  TierHost* const tiers_;
  ShardLog* const log_;
  const uint64_t log_bytes_max_;
  std::atomic<bool> log_full_{false};
  // The upkeep thread's: the bytes of rows that the log protects, and when they were added up.
  uint64_t row_bytes_ = 0;
  int64_t row_bytes_ns_ = 0;  // 0: never
  // Also the upkeep thread's: when the shards are looked at next; and of those with dirty rows,
  // since when they have them or were last written back.
  int64_t look_ns_ = 0;
  absl::flat_hash_map<ShardId, int64_t> clean_ns_;
  absl::flat_hash_set<ShardId> set_aside_;  // in the log
};

}  // namespace hotbed

#endif  // HOTBED_SERVER_HOST_SHARD_WRITE_BACK_H_
