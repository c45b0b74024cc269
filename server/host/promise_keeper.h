// Makes epochs durable before shards act on them.
//
// A shard that hears of a new epoch asks for a promise (Want). KeepAll writes all wanted promises
// to PROMISES in one batch, then tells the shards. The holders in the file follow the records of
// the directory. Thread-safe.
#ifndef HOTBED_SERVER_HOST_PROMISE_KEEPER_H_
#define HOTBED_SERVER_HOST_PROMISE_KEEPER_H_

#include <map>
#include <memory>
#include <set>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "common/ids.h"
#include "server/host/shard_directory.h"
#include "server/shard_log/promise_file.h"
#include "server/shard_log/shard_log.h"

namespace hotbed {

class PromiseKeeper {
 public:
  PromiseKeeper(std::unique_ptr<PromiseFile> file, const ShardDirectory* directory, ShardLog* log)
      : file_(std::move(file)), directory_(directory), log_(log) {}

  // The highest epoch durably promised; 0: none.
  Epoch Get(ShardId shard) const { return file_->Get(shard); }
  // Never blocks on the disk: shards call it from their strands.
  void Want(ShardId shard, Epoch epoch) ABSL_LOCKS_EXCLUDED(mu_);
  // The record of a shard has changed, and the directory has it.
  void Learn(const ShardRecord& record) ABSL_LOCKS_EXCLUDED(mu_);
  // Blocks on the disk and on the strands of the shards. After an error the next batch has all of
  // this one.
  absl::Status KeepAll() ABSL_LOCKS_EXCLUDED(batch_mu_, mu_);

  // Promises the epochs of these records before their shards ask for it. Blocks on the disk.
  absl::Status KeepAhead(const std::vector<ShardRecord>& records) ABSL_LOCKS_EXCLUDED(batch_mu_);

  // The shard is dropped: its promise is not wanted any more.
  void Forget(ShardId shard) ABSL_LOCKS_EXCLUDED(mu_);
  // The table is dropped, and its id is never used again.
  absl::Status ForgetTable(TableId table) { return file_->ForgetTable(table); }

 private:
  const std::unique_ptr<PromiseFile> file_;
  const ShardDirectory* const directory_;
  ShardLog* const log_;

  absl::Mutex batch_mu_ ABSL_ACQUIRED_BEFORE(mu_);  // one batch at a time
  absl::Mutex mu_;
  std::map<ShardId, Epoch> wanted_ ABSL_GUARDED_BY(mu_);  // and not durable yet
  std::set<ShardId> learnt_ ABSL_GUARDED_BY(mu_);         // their holders are not durable yet
};

}  // namespace hotbed

#endif  // HOTBED_SERVER_HOST_PROMISE_KEEPER_H_
