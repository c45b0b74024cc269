// Deletes the rows of a shard that its table's life takes (RowPolicy), while the shard goes on
// working. The primary decides; the entries of the log that it writes say so to every replica, and
// no other replica decides anything.
//
// First the rows in memory are looked at, some hundred in one task of the strand, and deleted there
// and then; then the spill tier. A record of it is read again before its row is deleted, and a row
// that is in memory by then, or that a push has named meanwhile, stays for the next sweep. So a row
// is deleted only in the state in which the policy has seen it: no push that is acknowledged before
// the deletion is lost that would have kept the row.
//
// All but Estimate block and are never called on the shard's strand. One Sweep at a time; dry runs
// may go on beside it.
#ifndef HOTBED_SERVER_SHARD_ROW_SWEEP_H_
#define HOTBED_SERVER_SHARD_ROW_SWEEP_H_

#include <atomic>
#include <cstdint>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/types/span.h"
#include "server/shard/commit_pipeline.h"
#include "server/shard/row_policy.h"
#include "server/shard/shard_context.h"

namespace hotbed {

struct SweptRows {
  uint64_t rows = 0;     // that were there
  uint64_t expired = 0;  // of these, deleted or, in a dry run, to be deleted
  uint64_t evicted = 0;  // likewise, beyond the limit
};

// The touches of a row that was asked for by its id.
struct KnownTouches {
  enum Found : uint8_t { kNoRow = 0, kRow = 1, kCandidate = 2 };
  Found found = kNoRow;
  RowTouches touches;
  RowShows shows;  // decayed to now
};

class RowSweep {
 public:
  // Asked between two steps; an error ends the sweep.
  using GoOn = absl::FunctionRef<absl::Status()>;

  // Both outlive it.
  RowSweep(ShardContext* shard, CommitPipeline* pipeline)
      : shard_(*shard), pipeline_(*pipeline), life_(LifeOf(shard->options.table)) {}

  // The table's policies, from now on; any thread.
  void SetLife(const LifeParams& life) ABSL_LOCKS_EXCLUDED(life_mu_);
  LifeParams life() const ABSL_LOCKS_EXCLUDED(life_mu_);
  // The most rows of the shard, by them; 0: no limit.
  uint64_t RowsMax() const;

  // Aborted: the shard has left this server. Unavailable: it is not its active primary, or takes no
  // entries now.
  absl::StatusOr<SweptRows> Sweep(GoOn go_on);
  // Deletes nothing: the rows that `life` would take if it were the table's.
  absl::StatusOr<SweptRows> DryRun(const LifeParams& life, GoOn go_on);
  // Per id, in order. Blocks.
  absl::StatusOr<std::vector<KnownTouches>> Read(absl::Span<const uint64_t> ids);
  // The rows of the shard, as far as they have been counted; false: no sweep has counted them yet.
  bool Estimate(const StoreStats& stats, uint64_t* rows) const;

  uint64_t expired() const { return expired_.load(std::memory_order_relaxed); }
  uint64_t evicted() const { return evicted_.load(std::memory_order_relaxed); }

 private:
  struct Candidate {
    uint64_t position = 0;
    bool expired = false;
  };
  // One walk over all rows. Without `takes`, it only counts them and samples their keys.
  struct Walk {
    const RowPolicy& policy;
    bool takes = false;
    bool dry_run = false;
    RowPolicy::Moment now;
    uint64_t threshold = 0;   // keys up to it are evicted,
    uint64_t evicts_max = 0;  // so many at most
    SweptRows swept;
    KeySample* sample = nullptr;
    std::vector<Candidate> candidates;  // of the step
  };

  absl::StatusOr<SweptRows> Run(const TableSpec& table, bool dry_run, GoOn go_on);
  absl::Status Over(Walk* walk, GoOn go_on);
  absl::Status OverMemory(Walk* walk, bool* all, GoOn go_on);
  absl::Status OverSpill(Walk* walk, GoOn go_on);
  absl::Status SpilledStep(absl::Span<const uint64_t> positions,
                           absl::Span<const uint8_t* const> rows, Walk* walk);
  absl::Status TakeSpilled(Walk* walk);
  // Whether the walk takes a row now; `expired`: because it has expired.
  static bool Takes(const Walk& walk, const RowRecord& row, const uint8_t* weights, bool* expired);
  void See(uint64_t position, const uint8_t* weights, const uint8_t* touches, Walk* walk);
  // On the strand: deletes the candidates, except those that a push has named.
  absl::Status Delete(const absl::flat_hash_set<uint64_t>& named, Walk* walk);
  void CommitLog();
  absl::Status OnStrand(absl::FunctionRef<absl::Status()> task);
  TableSpec TableWith(const LifeParams& life) const;

  ShardContext& shard_;
  CommitPipeline& pipeline_;
  mutable absl::Mutex life_mu_;
  LifeParams life_ ABSL_GUARDED_BY(life_mu_);
  std::atomic<bool> counted_{false};
  std::atomic<int64_t> base_{0};  // the rows, less those made and more those deleted since
  std::atomic<uint64_t> expired_{0};
  std::atomic<uint64_t> evicted_{0};
};

}  // namespace hotbed

#endif  // HOTBED_SERVER_SHARD_ROW_SWEEP_H_
