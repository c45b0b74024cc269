// The shards that the coordinator has assigned to this server, from opening to deletion: shards
// open, learn their records, are kept for a while after they left, and are deleted.
//
// One lock serializes every change of the shard directory and of the catalog. It may be held while
// shards' strands run and while the catalog is written, but not while rows are deleted, flushed or
// received: the caller does that between two calls, and until then the shard is marked (in the
// catalog as incomplete, here as dropping or installing), so that no other change touches it.
//
// Thread-safe.
#ifndef HOTBED_SERVER_HOST_ASSIGNMENTS_H_
#define HOTBED_SERVER_HOST_ASSIGNMENTS_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "common/clock.h"
#include "common/ids.h"
#include "common/shared_value.h"
#include "common/tables/shard_record.h"
#include "common/tables/table_spec.h"
#include "server/host/data_directory.h"
#include "server/host/promise_keeper.h"
#include "server/host/shard_directory.h"
#include "server/host/shard_factory.h"
#include "server/shard_log/shard_log.h"
#include "server/tiers/api/host.h"

namespace hotbed {

class Assignments {
 public:
  struct Wiring {
    DataDirectory* data = nullptr;
    ShardDirectory* directory = nullptr;
    const ShardFactory* factory = nullptr;
    PromiseKeeper* promises = nullptr;
    TierHost* tiers = nullptr;
    ShardLog* log = nullptr;
    const Clock* clock = nullptr;
    int64_t keep_left_ns = 0;  // how long a shard that left is kept where it may return
    // Fills a new shard, which is closed, with the rows of a checkpoint (shard_restorer.h).
    std::function<void(const TableSpec&, std::shared_ptr<Shard>)> restore;
  };
  // Knows the tables of the catalog.
  explicit Assignments(const Wiring& wiring);

  // As ShardHost::ApplyAssignment; the promises that it asks for are durable then.
  absl::Status Apply(const std::vector<TableSpec>& tables, const std::vector<ShardRecord>& records,
                     const std::vector<TableId>& tables_dropped) ABSL_LOCKS_EXCLUDED(mu_);

  // --- upkeep
  // Drops the shards that left and were kept for as long as they may be.
  void DropKeptLeft(int64_t now_ns) ABSL_LOCKS_EXCLUDED(mu_);
  // Deletes the rows of dropped shards that are idle, and opens the shards that waited for that.
  void FinishDrops() ABSL_LOCKS_EXCLUDED(mu_);

  // --- a snapshot transfer comes in (SnapshotInstaller)
  // Takes the shard out of service, durably marked as incomplete, if the snapshot may replace it.
  absl::StatusOr<std::shared_ptr<Shard>> BeginInstall(ShardId id, const Member& from, Epoch epoch,
                                                      Lsn lsn) ABSL_LOCKS_EXCLUDED(mu_);
  // The shard could not be emptied, or its transfer broke off. FinishDrops deletes its rows; then
  // it opens without rows.
  void GiveUpInstall(std::shared_ptr<Shard> shard) ABSL_LOCKS_EXCLUDED(mu_);
  // FailedPrecondition: the shard is not wanted here any more.
  absl::StatusOr<TableSpec> TableToInstall(ShardId id) const ABSL_LOCKS_EXCLUDED(mu_);
  // All rows are here: the shard goes into service and learns its record.
  absl::Status FinishInstall(ShardId id, const std::shared_ptr<Shard>& shard,
                             const LogPosition& log_from) ABSL_LOCKS_EXCLUDED(mu_);

  // --- shards that were cut
  // The shards that still depend on what their parent has on the disk, and are open.
  ShardList Inheriting() const ABSL_LOCKS_EXCLUDED(mu_);
  // Unavailable: one of them was cut or merged just now.
  absl::Status MayPrepareMerge(ShardId lower, ShardId upper) const;
  // Two parts that stand still, as they will be if the coordinator agrees to merge them: meanwhile
  // their rows, the log and the state of the merged shard come to the disk, so that pushes need
  // not wait for that after the commit.
  void MergeAhead(const ShardRecord& merged, std::shared_ptr<Shard> lower,
                  std::shared_ptr<Shard> upper) ABSL_LOCKS_EXCLUDED(mu_);
  // The coordinator refuses: that state is taken away again, without the caller waiting for it.
  // Nothing, if none of the shard is there.
  void DropAhead(ShardId lower) ABSL_LOCKS_EXCLUDED(mu_);
  // As Inheriting, of shards that were merged; and the end of that.
  ShardList Merged() const ABSL_LOCKS_EXCLUDED(mu_);
  void FinishMerge(const Shard& shard) ABSL_LOCKS_EXCLUDED(mu_);
  // What `shard` inherited is durable under its own name.
  void FinishCut(ShardId shard) ABSL_LOCKS_EXCLUDED(mu_);
  // Shards whose replica here is whole although they were cut, because a record of a part is not
  // known. It may be that of a part which does not name this server, whose map lacks it then.
  // Each heartbeat asks for them, so this waits for no change that is under way.
  std::vector<ShardId> PartsWanted() const ABSL_LOCKS_EXCLUDED(parts_mu_) {
    absl::MutexLock lock(&parts_mu_);
    return {parts_wanted_.begin(), parts_wanted_.end()};
  }

  // --- a damaged spill tier (TierRenewal)
  // Takes everything out of service and marks it as incomplete; nothing (nullopt) while something
  // still depends on rows here. The shards taken out.
  absl::StatusOr<std::optional<ShardList>> CloseAllUnlessNeeded() ABSL_LOCKS_EXCLUDED(mu_);
  // The tier is empty: forgets those shards' rows, and opens the assigned ones without rows.
  absl::Status ForgetAll(const ShardList& closed) ABSL_LOCKS_EXCLUDED(mu_);

  // --- the end
  // From now on nothing changes, and nothing is written for a merge any more.
  void Close() ABSL_LOCKS_EXCLUDED(mu_);
  void ReleaseDropping() ABSL_LOCKS_EXCLUDED(mu_);

 private:
  using Map = ShardDirectory::Map;
  using Told = std::vector<std::pair<std::shared_ptr<Shard>, SharedValue<ShardRecord>>>;

  // Apply, in order.
  void DropTables(const std::vector<TableId>& tables, Map* map) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status LearnTables(const std::vector<TableSpec>& tables, const Map& map)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status AddShards(const std::vector<ShardRecord>& records, Map* map)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  static bool Inside(const ShardRange& inner, const ShardRange& outer);
  // Whether a replica here of any process of the server may hold what was acknowledged.
  static bool MayCount(const ShardRecord& record, ServerId server);
  // Whether this server has promised a later epoch of the shard, perhaps because the shard was
  // merged away: such a record comes late.
  bool IsPast(const ShardRecord& record) const;
  // assignments_cuts.cc: shards that were cut in two.
  //
  // Replicas here that are wider than their records are cut before anything else is learnt, in the
  // map and in the catalog. Records that cannot be learnt yet are taken out of the list, and those
  // of shards that were opened so are added to it.
  absl::Status CutWider(std::vector<ShardRecord>* records, Map* map)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // The shards besides `record` into which the replica of `held` is to be cut, as far as they are
  // known. This server may have no part in some of them any more.
  std::vector<ShardRecord> PartsOf(const ShardRecord& record, const ShardRange& held,
                                   const std::vector<ShardRecord>& records, const Map& map) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status PromiseParts(const ShardRecord& record, const std::vector<ShardRecord>& parts) const;
  absl::Status Cut(const ShardRecord& record, const std::vector<ShardRecord>& parts, Map* map)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Brings the replica to a stand, writes its rows back and lets go of them.
  absl::Status CloseForCut(const std::shared_ptr<Shard>& shard) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // assignments_merges.cc: shards that were merged from two.
  //
  // Replicas here that are parts of their records are merged, before anything else is learnt, or
  // dropped where they do not count. Records that cannot be learnt yet are taken out of the list.
  absl::Status MergeNarrower(std::vector<ShardRecord>* records, Map* map)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  std::vector<ShardId> PartsHere(const ShardRecord& record, const Map& map) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  bool AreWhole(const ShardRecord& record) const;
  absl::Status DropParts(const ShardRecord& record, const std::vector<ShardId>& parts, Map* map)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status MayMerge(const Shard& lower, const Shard& upper) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Puts the state of the merged shard, as `bytes`, beside those of its parts, durably.
  absl::Status WriteMergedMeta(const ShardRecord& record, const Shard& lower, const Shard& upper,
                               const LogEnd& base, std::string* bytes) const;
  // Whether MergeAhead has done so for this merge, and as what; once.
  std::optional<std::string> TakeMergedAhead(const ShardRecord& record)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // No earlier record of the parts, which may come late, makes a replica of them from then on.
  absl::Status PromiseMerged(const ShardRecord& record, const std::vector<ShardId>& parts) const;
  absl::Status Merge(const ShardRecord& record, Map* map) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // The states of a merged shard that nothing reads any more. Where this fails they stay.
  void DropPartsOfMerge(const Catalog& before, const Shard& shard) const;
  void LearnRecords(const std::vector<ShardRecord>& records, bool all, Map map)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  bool MayReturn(const ShardRecord& record) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void TellShards(const Told& told) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  // assignments_drops.cc
  void DropLeft(ShardList left) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status MarkDropped(const ShardList& shards) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void ForgetDropped(const ShardList& deleted) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void ForgetDroppedTables(Catalog* catalog) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void AddMissing() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status CheckInstalling(ShardId id) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  bool NothingDependsOnTier() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const Wiring wiring_;
  mutable absl::Mutex mu_;
  bool closed_ ABSL_GUARDED_BY(mu_) = false;
  std::map<TableId, TableSpec> tables_ ABSL_GUARDED_BY(mu_);  // as told, held here or not
  std::set<TableId> tables_dropped_ ABSL_GUARDED_BY(mu_);
  ShardList dropping_ ABSL_GUARDED_BY(mu_);                  // closed; their rows are still here
  std::map<ShardId, int64_t> left_ns_ ABSL_GUARDED_BY(mu_);  // left, and kept since then
  std::set<ShardId> installing_ ABSL_GUARDED_BY(mu_);        // BeginInstall until its end
  // Assigned here while the rows of an earlier replica were being deleted, or new ones received:
  // opened when that is over.
  std::set<ShardId> missing_ ABSL_GUARDED_BY(mu_);
  // Being cut or merged, closed and written back: what their parts go on with. Only after an
  // error, until the same records come again.
  std::map<ShardId, ShardOptions::Continued> cutting_ ABSL_GUARDED_BY(mu_);
  // A merge that is prepared. The thread writes it, or takes it away, after those before it. It has
  // ended before anybody reads the state.
  struct Ahead {
    ShardRecord merged;
    std::optional<std::string> meta;  // durable; nullopt: it failed
  };
  std::shared_ptr<Ahead> ahead_ ABSL_GUARDED_BY(mu_);
  std::jthread writes_ahead_ ABSL_GUARDED_BY(mu_);
  mutable absl::Mutex parts_mu_ ABSL_ACQUIRED_AFTER(mu_);
  std::set<ShardId> parts_wanted_ ABSL_GUARDED_BY(parts_mu_);  // see PartsWanted
};

}  // namespace hotbed

#endif  // HOTBED_SERVER_HOST_ASSIGNMENTS_H_
