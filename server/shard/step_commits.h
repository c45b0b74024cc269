// The steps of a synchronous table. Its pushes are staged: they are in the log, and change no row
// until the commit of their step, which applies their sum as one update.
//
// Confined to the shard's strand.
#ifndef HOTBED_SERVER_SHARD_STEP_COMMITS_H_
#define HOTBED_SERVER_SHARD_STEP_COMMITS_H_

#include <cstdint>
#include <memory>

#include "absl/container/flat_hash_set.h"
#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/types/span.h"
#include "common/ids.h"
#include "server/shard/push_state.h"
#include "server/shard/request/segment_result.h"
#include "server/shard/shard_context.h"
#include "server/shard/staged_rows.h"
#include "server/shard_log/shard_log.h"

namespace hotbed {

class StepCommits {
 public:
  explicit StepCommits(ShardContext* shard) : shard_(*shard) {}

  // --- before the log
  // Whether the server has no memory left for this push (`count` rows of `type`).
  bool NoRoomFor(uint32_t count, RowType type, bool shows) const;
  // Every trainer of a step must give the same learning rate: which trainers meet on a shard
  // depends on where its rows lie, and the numbers must not.
  Refusal CheckLearningRate(const PushState& state) const;
  // The scalars with which a commit of `step` by `sessions` applies their sum.
  UpdateScalars ScalarsOf(uint64_t step, absl::Span<const SessionId> sessions) const;

  // --- in the log
  void Stage(const RecordHeader& header, const uint64_t* ids, const uint8_t* const* gradients) {
    Made().staged.Add(header, ids, gradients);
  }
  void CutFrom(Lsn lsn) {
    if (state_ != nullptr) state_->staged.CutFrom(lsn);
  }

  // --- committed
  // Applies the sum of the pushes at `staged`. True: done, and `done` never runs.
  bool Apply(const RecordHeader& commit, absl::Span<const Lsn> staged,
             absl::AnyInvocable<void(absl::Status)> done);
  // The ids that the commit being applied changes.
  absl::Span<const uint64_t> changed_ids() const {
    return state_ == nullptr ? absl::Span<const uint64_t>() : state_->sum.ids;
  }
  // The commit of `step` at `lsn` was applied: no push of that step or earlier is needed.
  void Applied(uint64_t step, Lsn lsn);
  // Adds the ids of all staged pushes.
  void AddStagedIds(absl::flat_hash_set<uint64_t>* ids) const {
    if (state_ != nullptr) state_->staged.AddIds(ids);
  }

  // --- stored with the rows
  // Fills in the payloads of meta->staged.
  void Save(ShardMeta* meta) const;
  // DataLoss: a payload is damaged, or of another LSN than its meta says.
  absl::Status Restore(const ShardMeta& meta);

  void Clear() { state_.reset(); }
  uint64_t bytes() const { return state_ == nullptr ? 0 : state_->staged.bytes(); }

 private:
  struct State {
    StagedRows staged;  // as of the core's last LSN
    SummedRows sum;     // while a commit is applied
  };

  State& Made() {
    if (state_ == nullptr) state_.reset(new State{StagedRows(shard_.options.staged_bytes), {}});
    return *state_;
  }

  ShardContext& shard_;
  std::unique_ptr<State> state_;  // null: nothing was staged yet
};

}  // namespace hotbed

#endif  // HOTBED_SERVER_SHARD_STEP_COMMITS_H_
