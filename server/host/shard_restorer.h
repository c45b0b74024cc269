// Fills new shards with the rows of a checkpoint (TableSpec::restored_from) before they serve.
//
// A shard of such a table that was never active, and that this process holds as a member, does not
// open empty: it is marked as incomplete in the catalog, its rows are written into the spill tier
// as those of a snapshot transfer are, and then it opens as after one. Each member reads the same
// files, so all begin with the same rows and the same log. After a kill in between, the next start
// deletes the rows and begins again. After an error the shard is tried again in a few seconds; it
// answers nothing until then.
//
// kRestoresMax shards are filled at a time, as far as CopyMemory has room; the others wait in
// order. Thread-safe.
#ifndef HOTBED_SERVER_HOST_SHARD_RESTORER_H_
#define HOTBED_SERVER_HOST_SHARD_RESTORER_H_

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "common/clock.h"
#include "common/ids.h"
#include "common/tables/shard_record.h"
#include "common/tables/table_spec.h"
#include "server/host/copy_memory.h"
#include "server/host/row_files.h"
#include "server/host/shard_host.h"
#include "server/host/snapshot_installer.h"
#include "server/host/table_checkpoints.h"
#include "server/shard/shard.h"

namespace hotbed {

constexpr int kRestoresMax = 2;
constexpr int64_t kRestoreRetryNs = 2 * kSecondNs;

class ShardRestorer {
 public:
  struct Wiring {
    const DataDirectory* data = nullptr;
    const ShardDirectory* directory = nullptr;
    Assignments* assignments = nullptr;
    SnapshotInstaller* installer = nullptr;
    TableCheckpoints* checkpoints = nullptr;
    CopyMemory* memory = nullptr;
    RowSource* source = nullptr;  // null: this program restores nothing
  };
  explicit ShardRestorer(const Wiring& wiring);
  ~ShardRestorer() { Stop(); }

  // Whether a shard that opens for the first time begins with the rows of a checkpoint.
  static bool Wants(const TableSpec& table, const ShardRecord& record, const Member& self) {
    const bool never_active = !record.active && record.base.empty();
    return !table.restored_from.checkpoint.empty() && never_active &&
           Contains(record.members, self);
  }
  // `shard`, empty and closed, is marked as installing. Does not block.
  void Start(const TableSpec& table, std::shared_ptr<Shard> shard) ABSL_LOCKS_EXCLUDED(mu_);
  ShardHost::RestoreProgress Progress(TableId table) const ABSL_LOCKS_EXCLUDED(mu_);
  // Leaves shards that are being filled as they are: the next start deletes their rows.
  void Stop() ABSL_LOCKS_EXCLUDED(mu_);

 private:
  struct Restore {
    TableSpec table;
    std::shared_ptr<Shard> shard;
  };

  void Work() ABSL_LOCKS_EXCLUDED(mu_);
  absl::Status Fill(const Restore& restore) ABSL_LOCKS_EXCLUDED(mu_);
  absl::Status CheckWanted(ShardId shard) const ABSL_LOCKS_EXCLUDED(mu_);
  void Fail(Restore* restore, const absl::Status& error) ABSL_LOCKS_EXCLUDED(mu_);
  bool others_wait() const ABSL_LOCKS_EXCLUDED(mu_) {
    absl::MutexLock lock(&mu_);
    return !waiting_.empty();
  }

  const Wiring wiring_;
  mutable absl::Mutex mu_;
  bool stops_ ABSL_GUARDED_BY(mu_) = false;
  std::deque<std::shared_ptr<Restore>> waiting_ ABSL_GUARDED_BY(mu_);
  std::vector<std::shared_ptr<Restore>> running_ ABSL_GUARDED_BY(mu_);
  std::map<ShardId, absl::Status> errors_ ABSL_GUARDED_BY(mu_);  // of the last try
  std::map<TableId, uint64_t> bytes_ ABSL_GUARDED_BY(mu_);
  std::vector<std::thread> threads_;
};

}  // namespace hotbed

#endif  // HOTBED_SERVER_HOST_SHARD_RESTORER_H_
