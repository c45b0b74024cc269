#include "planner/coordinator/membership/snapshot_transfers.h"

#include <algorithm>
#include <utility>

#include "common/check.h"

namespace hotbed {
namespace {

constexpr int64_t kReaderBeginsNs = 1'000'000'000;

bool IsReader(const v1::ShardRecord& record, const v1::Member& learner) {
  const auto& readers = record.readers();
  return std::count(readers.begin(), readers.end(), learner.server()) > 0;
}

}  // namespace

void SnapshotTransfers::OnLoaded(const ClusterState& state) {
  with_learners_.clear();
  for (const auto& [packed, record] : state.shards()) {
    if (!record.learners().empty()) with_learners_.insert(packed);
  }
}

bool SnapshotTransfers::OnRecord(int64_t now_ns, const v1::ShardRecord& record) {
  if (record.learners().empty()) {
    learner_since_ns_.erase(record.shard());
    return with_learners_.erase(record.shard()) > 0;
  }
  with_learners_.insert(record.shard());
  learner_since_ns_.insert_or_assign(record.shard(), now_ns);
  return false;
}

void SnapshotTransfers::Forget(uint64_t shard) {
  with_learners_.erase(shard);
  learner_since_ns_.erase(shard);
}

void SnapshotTransfers::CountSenders(int64_t now_ns, const ClusterState& state) {
  absl::btree_set<ServerId> senders;
  for (const uint64_t packed : with_learners_) {
    const v1::ShardRecord& record = state.shards().at(packed);
    if (senders.contains(record.primary().server())) continue;
    for (const v1::Member& learner : record.learners()) {
      if (InFlight(now_ns, record, learner)) senders.insert(record.primary().server());
    }
  }
  if (senders == senders_) return;
  senders_ = std::move(senders);
  ++limits_version_;
}

void SnapshotTransfers::AddTo(MembershipBatch* batch) const {
  for (const uint64_t packed : with_learners_) {
    const v1::ShardRecord& record = batch->state().shards().at(packed);
    HOTBED_DCHECK(!record.learners().empty()) << packed;
    for (const v1::Member& learner : record.learners()) {
      if (!InFlight(batch->now_ns(), record, learner)) continue;
      ++batch->copies_from[record.primary().server()];
      ++batch->copies_to[learner.server()];
      batch->bytes_to[learner.server()] += BytesLeft(record, learner);
    }
  }
}

v1::CopyLimits SnapshotTransfers::LimitsOf(const ClusterState& state) const {
  v1::CopyLimits limits = state.move_control().limits();
  if (limits.bytes_per_s() == 0) return limits;
  const uint64_t senders = std::max<uint64_t>(1, senders_.size());
  limits.set_bytes_per_s(std::max<uint64_t>(1, limits.bytes_per_s() / senders));
  return limits;
}

uint64_t SnapshotTransfers::BytesLeft(const v1::ShardRecord& record,
                                      const v1::Member& learner) const {
  if (reports_->Joined(record, learner)) return 0;
  const Leases::Lease* const source = leases_->Find(record.primary().server());
  if (source == nullptr) return 0;
  for (const v1::CopyProgress& copy : source->copies) {
    if (copy.shard() != record.shard() || !Same(copy.to(), learner)) continue;
    return copy.bytes_total() - std::min(copy.bytes_total(), copy.bytes_copied());
  }
  for (const v1::ShardLoad& load : source->load.shards()) {
    if (load.shard() == record.shard()) return load.bytes();
  }
  return 0;
}

bool SnapshotTransfers::InFlight(int64_t now_ns, const v1::ShardRecord& record,
                                 const v1::Member& learner) const {
  if (!IsReader(record, learner)) return true;
  auto since = learner_since_ns_.find(record.shard());
  if (since != learner_since_ns_.end() && now_ns - since->second < kReaderBeginsNs) return true;
  const Leases::Lease* const source = leases_->Find(record.primary().server());
  return source != nullptr && std::any_of(source->copies.begin(), source->copies.end(),
                                          [&](const v1::CopyProgress& copy) {
                                            return copy.shard() == record.shard() &&
                                                   Same(copy.to(), learner);
                                          });
}

}  // namespace hotbed
