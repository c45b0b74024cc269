#include "server/shard/step_commits.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "server/shard/request/segment_check.h"

namespace hotbed {

bool StepCommits::NoRoomFor(uint32_t count, RowType type, bool shows) const {
  const ShardOptions& options = shard_.options;
  if (options.staged_bytes == nullptr) return false;
  RecordHeader header;
  header.gradient_type = type;
  header.shows = shows;
  header.id_count = count;
  header.dim = shard_.dim;
  const int64_t held = options.staged_bytes->load(std::memory_order_relaxed);
  return static_cast<uint64_t>(held) + StagedRows::BytesOf(header) > options.staged_bytes_max;
}

Refusal StepCommits::CheckLearningRate(const PushState& state) const {
  const PushSegment& segment = *state.segment;
  if (!segment.has_learning_rate) return {};
  const uint64_t step = segment.seq >> kStepShift;
  const RecordHeader* const other = state_ == nullptr ? nullptr : state_->staged.AnyOf(step);
  if (other == nullptr || other->scalars.learning_rate == state.scalars.learning_rate) return {};
  return {
      SegmentCode::kInvalidArgument,
      absl::StrCat(shard_.Name(), ": learning rate ", state.scalars.learning_rate, " in step ",
                   step, ", where session ", other->session, " pushed with ",
                   other->scalars.learning_rate, "; all trainers of a step must give the same")};
}

// Every push that counts is in the log already: none of this step is staged after its commit.
UpdateScalars StepCommits::ScalarsOf(uint64_t step, absl::Span<const SessionId> sessions) const {
  const std::vector<Lsn> staged = shard_.core.StagedOf(step, sessions);
  UpdateScalars scalars;
  if (!staged.empty()) scalars = state_->staged.header(staged.front()).scalars;
  const bool mean = shard_.options.table->gradient_reduction == GradientReduction::kMean;
  if (mean && !sessions.empty()) {
    scalars.gradient_scale = 1.0f / static_cast<float>(sessions.size());
  }
  return scalars;
}

bool StepCommits::Apply(const RecordHeader& commit, absl::Span<const Lsn> staged,
                        absl::AnyInvocable<void(absl::Status)> done) {
  if (staged.empty()) return true;
  SummedRows& sum = state_->sum;
  sum = state_->staged.Sum(staged, shard_.dim);
  if (sum.ids.empty()) return true;
  const auto count = static_cast<uint32_t>(sum.ids.size());
  return shard_.store->Apply(
      {{count, RowType::kFp32, sum.pointers.data(), commit.scalars, /*assign=*/false, sum.shows},
       sum.ids.data(),
       commit.lsn},
      std::move(done));
}

void StepCommits::Applied(uint64_t step, Lsn lsn) {
  if (state_ == nullptr) return;
  state_->staged.DropThrough(step, lsn);
  state_->sum = SummedRows();
}

void StepCommits::Save(ShardMeta* meta) const {
  for (StagedPush& push : meta->staged) push.payload = state_->staged.Serialize(push.lsn);
}

absl::Status StepCommits::Restore(const ShardMeta& meta) {
  for (const StagedPush& push : meta.staged) {
    StagedRows& staged = Made().staged;
    absl::Status restored = staged.Restore(push.payload, [this](uint64_t id) {
      const ShardOptions& options = shard_.options;
      return FirstIdOutside(&id, 1, options.range, options.table->hashed) == 1;
    });
    if (!restored.ok()) return restored;
    if (!staged.contains(push.lsn)) {
      return absl::DataLossError(
          absl::StrCat("the staged push at LSN ", push.lsn, " is another one in the shard's meta"));
    }
  }
  return absl::OkStatus();
}

}  // namespace hotbed
