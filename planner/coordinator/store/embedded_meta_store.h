// The metadata store inside the coordinator's process, over a KvStore: the default, for a single
// coordinator.
//
// Everything that a transaction changed is durable when it returns; a coordinator that is killed
// finds it all again, with the revision it had. Reads come from memory (the whole key space is held
// there: it is metadata). The history for watches is kept in memory and bounded, so after a restart
// every older revision is compacted. Leases are durable and get their full TTL anew when the store
// is opened: the time that passed meanwhile is unknown, and ending one late is safe.
//
// Thread-safe. One thread of its own ends leases and calls the watchers, one after another: a
// watcher that blocks delays the others, and loses its place once it is `history_*_max` behind.
#ifndef HOTBED_PLANNER_COORDINATOR_STORE_EMBEDDED_META_STORE_H_
#define HOTBED_PLANNER_COORDINATOR_STORE_EMBEDDED_META_STORE_H_

#include <cstdint>
#include <deque>
#include <list>
#include <memory>
#include <set>
#include <string>
#include <thread>  // NOLINT(build/c++11)
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/btree_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/clock.h"
#include "kv/kv_store.h"
#include "planner/coordinator/store/meta_store.h"

namespace hotbed {

struct EmbeddedMetaStoreOptions {
  uint64_t history_revisions_max = 10000;    // transactions kept for watchers
  uint64_t history_bytes_max = 32ull << 20;  // of their keys and values
  uint64_t key_bytes_max = 1024;
  uint64_t value_bytes_max = 1ull << 20;
  absl::Duration lease_poll_interval =
      absl::Milliseconds(20);  // how late the end of a lease may be seen
};

class EmbeddedMetaStore : public MetaStore {
 public:
  // Reads everything. `kv` must have its log on (KvOptions::wal). DataLoss names the key that
  // cannot be read; FailedPrecondition names both versions when another format wrote it. `clock`
  // must outlive the store.
  static absl::StatusOr<std::unique_ptr<EmbeddedMetaStore>> Open(
      std::unique_ptr<KvStore> kv, const Clock* clock, EmbeddedMetaStoreOptions options = {});
  ~EmbeddedMetaStore() override;

  absl::StatusOr<RangeResult> Range(const std::string& first, const std::string& limit) override;
  // InvalidArgument: too many or too large operations, or a key named twice. NotFound: a lease that
  // ended. After any other error the outcome is unknown until a read says so (as with a network
  // store).
  absl::StatusOr<TxnResult> Txn(const std::vector<Compare>& compares,
                                const std::vector<Op>& ops) override;
  absl::StatusOr<LeaseId> GrantLease(absl::Duration ttl) override;
  absl::Status KeepAlive(LeaseId lease) override;
  absl::Status RevokeLease(LeaseId lease) override;
  absl::StatusOr<std::unique_ptr<Watch>> WatchPrefix(const std::string& prefix,
                                                     uint64_t after_revision,
                                                     OnEvents on_events) override;

 private:
  struct Lease {
    Lease() = default;
    Lease(int64_t ttl, int64_t now_ns) : ttl_ns(ttl), deadline_ns(now_ns + ttl) {}
    int64_t ttl_ns = 0;
    int64_t deadline_ns = 0;
    bool ending = false;  // its deletion is being written: too late for a keep-alive
    std::set<std::string> keys;
  };
  struct Commit {
    uint64_t revision = 0;
    uint64_t bytes = 0;
    std::vector<WatchEvent> events;
  };
  struct Watcher;
  class WatchHandle;

  EmbeddedMetaStore(std::unique_ptr<KvStore> kv, const Clock* clock,
                    EmbeddedMetaStoreOptions options);

  // Replaces what is in memory by what is on disk.
  absl::Status Load() ABSL_EXCLUSIVE_LOCKS_REQUIRED(commit_mu_) ABSL_LOCKS_EXCLUDED(mu_);
  absl::Status LoadEntry(absl::string_view key, absl::string_view value)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // After a failed write memory and disk may differ; loads again before the next change.
  absl::Status RecoverIfNeeded() ABSL_EXCLUSIVE_LOCKS_REQUIRED(commit_mu_);

  absl::Status CheckOps(const std::vector<Compare>& compares, const std::vector<Op>& ops) const
      ABSL_SHARED_LOCKS_REQUIRED(mu_);
  bool Holds(const Compare& compare) const ABSL_SHARED_LOCKS_REQUIRED(mu_);
  // The events of `ops` at the next revision; deletes of absent keys make none.
  Commit Prepare(const std::vector<Op>& ops) const ABSL_SHARED_LOCKS_REQUIRED(mu_);
  // Writes events, revision and, if `ended` is not 0, the end of that lease; then applies them to
  // memory.
  absl::Status WriteAndApply(Commit commit, LeaseId ended) ABSL_EXCLUSIVE_LOCKS_REQUIRED(commit_mu_)
      ABSL_LOCKS_EXCLUDED(mu_);
  void ApplyEvent(const WatchEvent& event) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void TrimHistory() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Deletes the lease and its keys, unless (`only_if_due`) it was kept alive meanwhile.
  absl::Status EndLease(LeaseId lease, bool only_if_due) ABSL_LOCKS_EXCLUDED(commit_mu_, mu_);

  void RunBackground();
  std::vector<LeaseId> DueLeases() const ABSL_SHARED_LOCKS_REQUIRED(mu_);
  bool SomeoneBehind() const ABSL_SHARED_LOCKS_REQUIRED(mu_);
  // One transaction to one watcher; true when something was delivered.
  bool DeliverOne() ABSL_LOCKS_EXCLUDED(mu_);

  const std::unique_ptr<KvStore> kv_;
  const Clock* const clock_;
  const EmbeddedMetaStoreOptions options_;

  absl::Mutex commit_mu_
      ABSL_ACQUIRED_BEFORE(mu_);  // one writer at a time; held over the disk write
  bool recover_ ABSL_GUARDED_BY(commit_mu_) = false;

  mutable absl::Mutex mu_;
  absl::btree_map<std::string, KeyValue> keys_ ABSL_GUARDED_BY(mu_);
  absl::btree_map<LeaseId, Lease> leases_ ABSL_GUARDED_BY(mu_);
  uint64_t revision_ ABSL_GUARDED_BY(mu_) = 1;   // as etcd, the empty store has revision 1
  uint64_t compacted_ ABSL_GUARDED_BY(mu_) = 1;  // the history begins after this revision
  LeaseId next_lease_ ABSL_GUARDED_BY(mu_) = 1;
  std::deque<Commit> history_ ABSL_GUARDED_BY(mu_);
  uint64_t history_bytes_ ABSL_GUARDED_BY(mu_) = 0;
  std::list<std::shared_ptr<Watcher>> watchers_ ABSL_GUARDED_BY(mu_);
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;

  std::thread background_;
};

}  // namespace hotbed

#endif  // HOTBED_PLANNER_COORDINATOR_STORE_EMBEDDED_META_STORE_H_
