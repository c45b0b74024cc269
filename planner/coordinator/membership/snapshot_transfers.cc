#include "planner/coordinator/membership/snapshot_transfers.h"

#include <algorithm>
#include <utility>

#include "common/check.h"
#include "planner/coordinator/membership/replica_placement.h"

namespace hotbed {
namespace {

constexpr int64_t kReaderBeginsNs = 1'000'000'000;

}  // namespace

void SnapshotTransfers::OnLoaded(const ClusterState& state) {
  with_learners_.clear();
  for (const auto& [packed, record] : state.shards()) {
    if (!record.learners.empty()) with_learners_.insert(packed);
  }
}

bool SnapshotTransfers::OnRecord(int64_t now_ns, const ShardRecord& record) {
  if (record.learners.empty()) {
    learner_since_ns_.erase(record.shard.packed());
    return with_learners_.erase(record.shard.packed()) > 0;
  }
  with_learners_.insert(record.shard.packed());
  learner_since_ns_.insert_or_assign(record.shard.packed(), now_ns);
  return false;
}

void SnapshotTransfers::Forget(uint64_t shard) {
  with_learners_.erase(shard);
  learner_since_ns_.erase(shard);
}

void SnapshotTransfers::CountSenders(int64_t now_ns, const ClusterState& state) {
  absl::btree_set<ServerId> senders;
  for (const uint64_t packed : with_learners_) {
    const ShardRecord& record = state.shards().at(packed);
    if (senders.contains(record.primary.server)) continue;
    for (const Member& learner : record.learners) {
      if (InFlight(now_ns, record, learner)) senders.insert(record.primary.server);
    }
  }
  if (senders == senders_) return;
  senders_ = std::move(senders);
  ++limits_version_;
}

void SnapshotTransfers::AddTo(MembershipBatch* batch) const {
  for (const uint64_t packed : with_learners_) {
    const ShardRecord& record = batch->state().shards().at(packed);
    HOTBED_DCHECK(!record.learners.empty()) << packed;
    for (const Member& learner : record.learners) {
      if (!InFlight(batch->now_ns(), record, learner)) continue;
      ++batch->transfers_from[record.primary.server];
      ++batch->transfers_to[learner.server];
      batch->bytes_to[learner.server] += BytesLeft(record, learner);
    }
  }
}

v1::TransferLimits SnapshotTransfers::LimitsOf(const ClusterState& state) const {
  v1::TransferLimits limits = state.move_control().limits();
  if (limits.bytes_per_s() == 0) return limits;
  const uint64_t senders = std::max<uint64_t>(1, senders_.size());
  limits.set_bytes_per_s(std::max<uint64_t>(1, limits.bytes_per_s() / senders));
  return limits;
}

uint64_t SnapshotTransfers::BytesLeft(const ShardRecord& record, const Member& learner) const {
  if (reports_->Joined(record, learner)) return 0;
  if (const v1::TransferProgress* transfer = leases_->ProgressOf(record, learner)) {
    return transfer->bytes_total() - std::min(transfer->bytes_total(), transfer->bytes_copied());
  }
  return ShardBytes(leases_).Of(record);
}

bool SnapshotTransfers::InFlight(int64_t now_ns, const ShardRecord& record,
                                 const Member& learner) const {
  if (!Contains(record.readers, learner.server)) return true;
  auto since = learner_since_ns_.find(record.shard.packed());
  if (since != learner_since_ns_.end() && now_ns - since->second < kReaderBeginsNs) return true;
  return leases_->ProgressOf(record, learner) != nullptr;
}

}  // namespace hotbed
