// The promises of all shards of a server in one small file: for each shard the highest epoch that
// this server ever acted on, and the servers whose replicas counted in it. Written atomically and
// synced once per batch. A promise never falls, so that a restarted server cannot act in an epoch
// it has left. The servers are for a coordinator that has lost its metadata.
//
// Format, little-endian: "HOTBDPRM", u32 version, u32 count, count x (u64 shard, u64 epoch, u32
// holders, holders x u64 server), u32 CRC32C of all before; then what every KeptFile ends with.
// Thread-safe.
#ifndef HOTBED_SERVER_SHARD_LOG_PROMISE_FILE_H_
#define HOTBED_SERVER_SHARD_LOG_PROMISE_FILE_H_

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/btree_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "absl/types/span.h"
#include "common/files/kept_file.h"
#include "common/ids.h"

namespace hotbed {

class PromiseFile {
 public:
  struct Promise {
    ShardId shard;
    Epoch epoch = 0;
    std::vector<ServerId> holders;  // in this epoch; empty: not known
  };

  // `make`: a missing file is made, and holds no promises. DataLoss: missing, damaged or not the
  // last one; FailedPrecondition: another version, both named.
  static absl::StatusOr<std::unique_ptr<PromiseFile>> Open(KeptFile file, bool make);

  // The highest epoch promised for `shard`; 0: none.
  Epoch Get(ShardId shard) const ABSL_LOCKS_EXCLUDED(mu_) { return Find(shard).epoch; }
  // That promise, with its holders.
  Promise Find(ShardId shard) const ABSL_LOCKS_EXCLUDED(mu_);

  // Durable when it returns OK; on an error nothing has changed. A promise below the stored one
  // changes nothing, one of the same epoch its holders, if it names any. A batch that changes
  // nothing writes nothing.
  absl::Status Raise(absl::Span<const Promise> batch) ABSL_LOCKS_EXCLUDED(mu_);

  // Drops the promises of a dropped table, whose id is never used again.
  absl::Status ForgetTable(TableId table) ABSL_LOCKS_EXCLUDED(mu_);

 private:
  using Map = absl::btree_map<ShardId, Promise>;

  PromiseFile(KeptFile file, Map promises)
      : file_(std::move(file)), promises_(std::move(promises)) {}
  static absl::StatusOr<Map> Parse(const std::string& path, absl::string_view bytes);
  absl::Status Replace(Map promises) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  mutable absl::Mutex mu_;
  KeptFile file_ ABSL_GUARDED_BY(mu_);
  Map promises_ ABSL_GUARDED_BY(mu_);
};

}  // namespace hotbed

#endif  // HOTBED_SERVER_SHARD_LOG_PROMISE_FILE_H_
