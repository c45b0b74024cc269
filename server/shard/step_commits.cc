// The steps of a synchronous table: pushes that are staged, and the commit that applies them.
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/shard/push_state.h"
#include "server/shard/segment_check.h"
#include "server/shard/shard.h"

namespace hotbed {
namespace {

constexpr uint32_t kSessionsPerCommitMax = 65536;
constexpr uint64_t kCommitStepMax = (uint64_t{1} << (64 - kStepShift)) - 1;

}  // namespace

// What can be said without the shard's state. A commit that is refused is not logged.
void Shard::CheckCommit(PushState* state) {
  const PushSegment& segment = *state->segment;
  state->ids = segment.ids;
  state->gradients = nullptr;
  state->count = segment.count;
  state->scalars = UpdateScalars();
  if (!synchronous_) {
    state->refusal = SegmentCode::kInvalidArgument;
    state->detail = absl::StrCat(Name(), ": a commit of step ", segment.commit_step,
                                 ", and the table is not synchronous");
  } else if (segment.commit_step > kCommitStepMax || segment.count > kSessionsPerCommitMax) {
    state->refusal = SegmentCode::kInvalidArgument;
    state->detail =
        absl::StrCat(Name(), ": a commit of step ", segment.commit_step, " with ", segment.count,
                     " sessions; the limits are ", kCommitStepMax, " and ", kSessionsPerCommitMax);
  } else if (const uint32_t again = FirstRepeatedId(segment.ids, segment.count);
             again != segment.count) {
    state->refusal = SegmentCode::kInvalidArgument;
    state->detail = absl::StrCat(Name(), ": the commit of step ", segment.commit_step,
                                 " names session ", segment.ids[again], " twice");
  }
}

void Shard::CommitNow(PushState* state) {
  const PushSegment& segment = *state->segment;
  const PushToken token = reinterpret_cast<PushToken>(state);
  if (state->refusal != SegmentCode::kOk) {
    return DeliverReply({token, state->refusal, core_.epoch(), core_.applied_lsn(), 0});
  }
  // All that counts is in the log already: nothing of this step is staged behind its commit.
  const absl::Span<const SessionId> sessions(segment.ids, segment.count);
  const std::vector<Lsn> staged = core_.StagedOf(segment.commit_step, sessions);
  if (!staged.empty()) state->scalars = staged_.header(staged.front()).scalars;
  const bool mean = options_.table.gradient_reduction == GradientReduction::kMean;
  if (mean && !sessions.empty()) {
    state->scalars.gradient_scale = 1.0f / static_cast<float>(sessions.size());
  }
  core_.Commit({segment.epoch, segment.commit_step, token});
  Drain();
}

// One learning rate a step: which trainers meet on a shard depends on where rows lie, and the
// numbers must not.
void Shard::CheckStaged(PushState* state, bool* no_room) {
  const PushSegment& segment = *state->segment;
  RecordHeader header;
  header.gradient_type = state->work->gradient_type;
  header.id_count = state->count;
  header.dim = dim_;
  if (options_.staged_bytes != nullptr) {
    const int64_t held = options_.staged_bytes->load(std::memory_order_relaxed);
    *no_room =
        static_cast<uint64_t>(held) + StagedRows::BytesOf(header) > options_.staged_bytes_max;
  }
  if (state->refusal != SegmentCode::kOk || !segment.has_learning_rate) return;
  const uint64_t step = segment.seq >> kStepShift;
  const RecordHeader* const other = staged_.AnyOf(step);
  if (other == nullptr || other->scalars.learning_rate == state->scalars.learning_rate) return;
  state->refusal = SegmentCode::kInvalidArgument;
  state->detail =
      absl::StrCat(Name(), ": learning rate ", state->scalars.learning_rate, " in step ", step,
                   ", where session ", other->session, " pushed with ",
                   other->scalars.learning_rate, "; all trainers of a step must give the same");
}

void Shard::RestoreMeta(const ShardMeta& meta) {
  durable_lsn_ = meta.applied_lsn;
  for (const StagedPush& push : meta.staged) {
    absl::Status restored = staged_.Restore(push.payload);
    if (restored.ok() && !staged_.contains(push.lsn)) {
      restored = absl::DataLossError(
          absl::StrCat("the staged push at LSN ", push.lsn, " is another one in the shard's meta"));
    }
    if (!restored.ok()) return FailEverything(restored);
  }
}

// Sums what is staged and applies it as one update. True: done, `done` never runs.
bool Shard::ApplyCommit(const RecordHeader& header, absl::Span<const Lsn> staged,
                        absl::AnyInvocable<void(absl::Status)> done) {
  commit_rows_ = staged_.Sum(staged, dim_);
  if (commit_rows_.ids.empty()) return true;
  RowUpdates updates;
  updates.ids = commit_rows_.ids.data();
  updates.count = static_cast<uint32_t>(commit_rows_.ids.size());
  updates.gradient_type = RowType::kFp32;
  updates.gradients = commit_rows_.pointers.data();
  updates.scalars = header.scalars;
  updates.lsn = header.lsn;
  return store_->Apply(updates, std::move(done));
}

}  // namespace hotbed
