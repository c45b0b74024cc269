// Cuts of shards that were asked for and are not committed yet. Their servers hear of them with
// every reply, prepare them and ask for the commit. A commit that nobody asks for here is refused:
// a server whose cut was refused goes on, and an earlier request of its, which comes late, must not
// cut the shard then. So a cut has another number after each refusal, and when a coordinator begins
// with those that it finds in the metadata. Pure; thread-compatible.
#ifndef HOTBED_PLANNER_COORDINATOR_MEMBERSHIP_ASKED_CUTS_H_
#define HOTBED_PLANNER_COORDINATOR_MEMBERSHIP_ASKED_CUTS_H_

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/tables/shard_record.h"
#include "planner/coordinator/state/cluster_state.h"
#include "planner/coordinator/state/leases.h"
#include "proto/control.pb.h"

namespace hotbed {

class AskedCuts {
 public:
  static constexpr int64_t kKeptNs = 60'000'000'000;  // a cut that does not come about by then is
                                                      // given up
  static constexpr size_t kAskedMax = 1024;

  // ResourceExhausted: too many are asked for. AlreadyExists: the shard is being cut or merged.
  absl::Status MayAsk(uint64_t packed) const;
  // The same, and asks for it.
  absl::Status Ask(int64_t now_ns, v1::ShardCut cut);
  // For the next cut: above those of all before.
  uint64_t NextNumber(int64_t unix_ms) const {
    return std::max(static_cast<uint64_t>(unix_ms), number_ + 1);
  }
  bool IsAsked(const v1::ShardCut& cut) const;
  bool AsksOf(uint64_t packed) const { return asked_.contains(packed); }
  // The coordinator begins, or has read its metadata again: those of the metadata that are not
  // asked for are asked for again, and given up kKeptNs from now.
  void OnLoaded(int64_t now_ns, int64_t unix_ms, const ClusterState& state);
  // Under another number, for no longer than before: its commit was refused, and may be made later.
  void AskAgain(const v1::ShardCut& cut, int64_t unix_ms);
  // Committed, or refused for good.
  void End(const v1::ShardCut& cut);
  // Those that have not come about in time, which are given up with this. Cuts of shards that are
  // gone are forgotten.
  std::vector<v1::ShardCut> Tick(int64_t now_ns, const ClusterState& state);
  // Those of shards of which the server has a member.
  void AddFor(const ClusterState& state, ServerId server, v1::HeartbeatReply* reply) const;
  // Changes with each change.
  uint64_t version() const { return version_; }
  bool empty() const { return asked_.empty(); }

 private:
  struct Asked {
    v1::ShardCut cut;
    int64_t since_ns = 0;
  };
  std::map<uint64_t, Asked> asked_;  // by packed shard
  uint64_t version_ = 0;
  uint64_t number_ = 0;  // of the last cut
};

// Where a shard may be cut, and into which shards. `at` 0: in the middle.
struct CutPlan {
  uint64_t at = 0;
  ShardId new_shard;
};
//   NotFound            there is no such shard
//   InvalidArgument     `at` does not lie inside of its range
//   FailedPrecondition  it is one row or bucket, its table is cut by columns or has too many
//                       shards, it is not served now, or a server may hold more than its members
absl::StatusOr<CutPlan> PlanCut(const ClusterState& state, uint64_t packed, uint64_t at);

// Two neighbours that are to be merged: the lower one keeps its number, the other one ends.
struct MergePlan {
  const ShardRecord* lower = nullptr;
  const ShardRecord* upper = nullptr;
};
//   NotFound            there is no such shard
//   FailedPrecondition  they are no neighbours in one table, not on the same servers with the same
//                       primary, one of them is on the move or not served now, or their table is
//                       synchronous, copied or cut by columns
absl::StatusOr<MergePlan> PlanMerge(const ClusterState& state, uint64_t packed, uint64_t with);

// Cuts to ask for without being told: of shards of hashed tables whose replica at the primary takes
// more than `bytes_max` bytes, the largest first. (Nobody knows the size of a hashed table when it
// is created.)
std::vector<v1::CutShardRequest> LargeShards(const ClusterState& state, const Leases& leases,
                                             uint64_t bytes_max);

}  // namespace hotbed

#endif  // HOTBED_PLANNER_COORDINATOR_MEMBERSHIP_ASKED_CUTS_H_
