// The metadata store inside the coordinator's process, over a KvStore: the default, for a single
// coordinator.
//
// The whole key space is held in memory, because it is only metadata; every transaction is durable
// when it returns, and a coordinator that is killed finds all of them, at the same revision.
//
// Thread-safe: one lock, held during the write to disk.
#ifndef HOTBED_PLANNER_COORDINATOR_STORE_EMBEDDED_META_STORE_H_
#define HOTBED_PLANNER_COORDINATOR_STORE_EMBEDDED_META_STORE_H_

#include <cstdint>
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
#include "kv/kv_store.h"
#include "planner/coordinator/store/meta_store.h"

namespace hotbed {

class EmbeddedMetaStore : public MetaStore {
 public:
  // Reads every key. `kv` must have its log on (KvOptions::wal). DataLoss names the key that
  // cannot be read; FailedPrecondition names both versions when another format wrote it.
  static absl::StatusOr<std::unique_ptr<EmbeddedMetaStore>> Open(std::unique_ptr<KvStore> kv);

  absl::StatusOr<RangeResult> Range(const std::string& first, const std::string& limit) override;
  absl::StatusOr<TxnResult> Txn(const std::vector<Compare>& compares,
                                const std::vector<Op>& ops) override;

 private:
  explicit EmbeddedMetaStore(std::unique_ptr<KvStore> kv) : kv_(std::move(kv)) {}

  // Replaces the contents of memory by those of the disk.
  absl::Status Load() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status LoadEntry(absl::string_view key, absl::string_view value)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // After a failed write memory and disk may differ: loads again before the next read or change.
  absl::Status RecoverIfNeeded() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  bool Holds(const Compare& compare) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const std::unique_ptr<KvStore> kv_;
  absl::Mutex mu_;
  bool recover_ ABSL_GUARDED_BY(mu_) = false;
  absl::btree_map<std::string, KeyValue> keys_ ABSL_GUARDED_BY(mu_);
  uint64_t revision_ ABSL_GUARDED_BY(mu_) = 1;  // as in etcd, the empty store has revision 1
};

}  // namespace hotbed

#endif  // HOTBED_PLANNER_COORDINATOR_STORE_EMBEDDED_META_STORE_H_
