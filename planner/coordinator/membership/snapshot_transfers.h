// The snapshot transfers in flight between servers, as far as the coordinator can tell: which
// shards have learners, how many rows each learner still lacks, and how the limit of all transfers
// divides over the servers that send.
//
// A learner that is to be a member counts as a transfer until it joins. Nobody reports the end of a
// transfer to a read replica: it counts for a second after it was added, and then for as long as
// its primary reports it.
//
// Pure; thread-compatible.
#ifndef HOTBED_PLANNER_COORDINATOR_MEMBERSHIP_SNAPSHOT_TRANSFERS_H_
#define HOTBED_PLANNER_COORDINATOR_MEMBERSHIP_SNAPSHOT_TRANSFERS_H_

#include <cstdint>

#include "absl/container/btree_set.h"
#include "absl/container/flat_hash_map.h"
#include "planner/coordinator/membership/member_reports.h"
#include "planner/coordinator/membership/membership_batch.h"
#include "planner/coordinator/state/cluster_state.h"
#include "planner/coordinator/state/leases.h"

namespace hotbed {

class SnapshotTransfers {
 public:
  // Both must outlive it.
  SnapshotTransfers(const Leases* leases, const MemberReports* reports)
      : leases_(leases), reports_(reports) {}

  // The state was read again.
  void OnLoaded(const ClusterState& state);
  // The record was committed. True: its last learner went, so others may begin.
  bool OnRecord(int64_t now_ns, const ShardRecord& record);
  void Forget(uint64_t shard);
  // The limit in the state was changed.
  void OnLimits() { ++limits_version_; }
  // Counts the sending servers again.
  void CountSenders(int64_t now_ns, const ClusterState& state);

  // Adds all transfers in flight to the batch's counts.
  void AddTo(MembershipBatch* batch) const;
  // The limit of each sending server: its share of the limit of all.
  v1::TransferLimits LimitsOf(const ClusterState& state) const;
  // Changes whenever LimitsOf may give another result.
  uint64_t limits_version() const { return limits_version_; }
  // Packed ids of the shards with learners.
  const absl::btree_set<uint64_t>& with_learners() const { return with_learners_; }

 private:
  // Bytes of rows that the learner still lacks; 0: unknown.
  uint64_t BytesLeft(const ShardRecord& record, const Member& learner) const;
  bool InFlight(int64_t now_ns, const ShardRecord& record, const Member& learner) const;

  const Leases* const leases_;
  const MemberReports* const reports_;
  absl::btree_set<uint64_t> with_learners_;
  absl::flat_hash_map<uint64_t, int64_t> learner_since_ns_;  // the shard's last record
  absl::btree_set<ServerId> senders_;
  uint64_t limits_version_ = 1;
};

}  // namespace hotbed

#endif  // HOTBED_PLANNER_COORDINATOR_MEMBERSHIP_SNAPSHOT_TRANSFERS_H_
