#include "server/shard/replica_comparison.h"

#include "absl/strings/str_cat.h"

namespace hotbed {

void ReplicaComparison::Start(Lsn lsn) {
  if (state_ == nullptr) state_ = std::make_unique<State>();
  state_->hash.Start(lsn);
}

void ReplicaComparison::Applied(Lsn lsn, absl::Span<const uint8_t> record,
                                absl::Span<const uint64_t> changed, bool rows_known, bool deleted) {
  if (record.empty() || state_ == nullptr || lsn != state_->hash.lsn() + 1) {
    incomplete_epoch_ = shard_.core.epoch();
    return Start(lsn);
  }
  RollingHash& hash = state_->hash;
  std::vector<uint8_t>& row = state_->row;
  row.clear();
  if (!changed.empty()) {
    const uint32_t rows = static_cast<uint32_t>(changed.size());
    const uint64_t id = changed[RollingHash::SampledRow(lsn, rows)];
    const bool there = rows_known && shard_.store->PeekRow(id, &row);
    // No row can be read where it was deleted. A replica that still has it differs.
    if (!there) row.clear();
    if (!rows_known || (!there && !deleted)) {
      incomplete_epoch_ = shard_.core.epoch();
      return hash.Skip();
    }
  }
  OnVerdict(hash.Add(record, row), lsn);
}

void ReplicaComparison::FillIn(ReplicaMessage* append) const {
  if (state_ == nullptr) return;  // as if the sum were incomplete
  const RollingHash& hash = state_->hash;
  append->rolling_hash = incomplete_epoch_ == shard_.core.epoch() ? 0 : hash.value();
  append->hash_lsn = hash.lsn();
}

void ReplicaComparison::Compare(const ReplicaMessage& append) {
  if (state_ == nullptr || append.rolling_hash == 0 || append.epoch != shard_.core.promised() ||
      !shard_.serving.error().ok()) {
    return;
  }
  if (append.epoch != compared_epoch_) {
    compared_epoch_ = append.epoch;
    state_->hash.ForgetPrimary();
  }
  OnVerdict(state_->hash.Compare(append.hash_lsn, append.rolling_hash), append.hash_lsn);
}

void ReplicaComparison::OnVerdict(RollingHash::Verdict verdict, Lsn lsn) {
  if (verdict != RollingHash::Verdict::kDiffers || !shard_.serving.error().ok()) return;
  shard_.options.replica_budget->replicas_diverged.fetch_add(1, std::memory_order_relaxed);
  shard_.serving.GiveUpReplica(absl::DataLossError(
      absl::StrCat("this replica differs from its primary's at LSN ", lsn,
                   " (rolling hash); a new replica with all rows takes its place")));
}

}  // namespace hotbed
