// The core's part in the steps of a synchronous table: what is staged, and commits.
#include <algorithm>

#include "server/protocol/core_mutant.h"
#include "server/protocol/shard_core.h"

namespace hotbed {

void ShardCore::Commit(const CoreCommit& commit) {
  SegmentCode code = CheckEpoch(commit.epoch);
  const bool repeated = commit.step <= committed_step_ && !Mutated(CoreMutant::kCommitTakenTwice);
  if (code == SegmentCode::kOk && repeated) return ReplyToRepeatedCommit(commit);
  if (code == SegmentCode::kOk && read_only_) code = SegmentCode::kReadOnly;
  if (code == SegmentCode::kOk && last_ - applied_ >= options_.entries_max) {
    code = SegmentCode::kResourceExhausted;
  }
  if (code != SegmentCode::kOk) {
    return Reply(commit.token, code, record_.epoch, applied_, 0);
  }
  CoreEntry entry;
  entry.kind = RecordKind::kStepCommit;
  entry.seq = commit.step << kStepShift;
  entry.payload = commit.token;
  AppendEntry(entry, commit.token, SegmentCode::kOk, nullptr);
  committed_step_ = commit.step;
}

// In the log is not yet in the rows: it waits for what carries it out.
void ShardCore::ReplyToRepeatedCommit(const CoreCommit& commit) {
  for (Lsn lsn = applied_ + 1; lsn <= last_; ++lsn) {
    const CoreEntry& entry = At(lsn).entry;
    if (entry.kind != RecordKind::kStepCommit || entry.seq >> kStepShift < commit.step) continue;
    if (duplicates_.size() >= options_.entries_max) {
      return Reply(commit.token, SegmentCode::kResourceExhausted, record_.epoch, applied_, 0);
    }
    duplicates_.push_back({commit.epoch, lsn, commit.token, SegmentCode::kOk, 0});
    return;
  }
  Reply(commit.token, SegmentCode::kOk, record_.epoch, applied_, 0);
}

std::vector<Lsn> ShardCore::StagedOf(uint64_t step, absl::Span<const SessionId> sessions) const {
  std::vector<Lsn> lsns;
  const auto take = [&](SessionId session) {
    for (const StagedPush& push : staged_) {
      if (push.session == session && push.seq >> kStepShift == step) lsns.push_back(push.lsn);
    }
  };
  for (const SessionId session : sessions) take(session);
  if (Mutated(CoreMutant::kOthersCommitted)) {
    for (const StagedPush& push : staged_) {
      const bool named = std::count(sessions.begin(), sessions.end(), push.session) != 0;
      if (!named && push.seq >> kStepShift == step) lsns.push_back(push.lsn);
    }
  }
  return lsns;
}

void ShardCore::DropStaged(uint64_t step, Lsn lsn) {
  if (Mutated(CoreMutant::kCommitTakenTwice)) return;
  const auto dropped = std::remove_if(staged_.begin(), staged_.end(), [&](const StagedPush& push) {
    return push.lsn < lsn && push.seq >> kStepShift <= step;
  });
  staged_.erase(dropped, staged_.end());
}

}  // namespace hotbed
