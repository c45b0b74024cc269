#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "planner/coordinator/membership/membership_batch.h"
#include "planner/coordinator/membership/replica_placement.h"
#include "planner/coordinator/operations/operations.h"
#include "planner/coordinator/state/event_log.h"
#include "planner/coordinator/state/keys.h"

namespace hotbed {
namespace {

class Rebalance {
 public:
  Rebalance(RebalanceWave wave, const OperationContext& context)
      : wave_(std::move(wave)), context_(context) {}

  Next operator()(const ClusterState& state) {
    Transaction txn(&state);
    if (next_ == 0) Begin(state, &txn);
    for (size_t n = 0; n < kGoalsPerTxn && next_ < wave_.goals.size(); ++n, ++next_) {
      const WantedShard& wanted = wave_.goals[next_];
      if (!StillFits(state, wanted)) continue;
      const v1::ShardGoal goal =
          MakeGoal(wanted.shard, wanted.servers, wanted.reason, number_, context_.unix_ms);
      txn.Put(keys::Goal(wanted.shard), goal.SerializeAsString());
    }
    if (txn.empty()) return Reply();
    return txn;
  }

 private:
  void Begin(const ClusterState& state, Transaction* txn) {
    if (wave_.goals.empty()) return;
    number_ = state.counters().moves + 1;
    txn->Put(keys::kMoveCounter, absl::StrCat(number_));
    v1::MoveControl control = state.move_control();
    control.mutable_rebalance()->set_last_reason(wave_.reason);
    control.mutable_rebalance()->set_last_unix_ms(context_.unix_ms);
    txn->Put(keys::kMovesKey, control.SerializeAsString());
    EventWriter(&state, context_.unix_ms)
        .Add("rebalance",
             absl::StrCat("request ", number_, ": ", wave_.goals.size(), " shards, ", wave_.reason),
             0, 0, txn);
  }

  // The wave was planned on an earlier state: leaves out shards that have changed since.
  bool StillFits(const ClusterState& state, const WantedShard& wanted) const {
    const ShardRecord* const record = state.FindVisibleShard(wanted.shard.packed());
    if (record == nullptr || state.FindGoal(wanted.shard.packed()) != nullptr) return false;
    const uint64_t bytes = ShardBytes(context_.leases).Of(*record);
    for (const ServerId server : wanted.servers) {
      if (ContainsServer(record->members, server)) continue;
      if (!MayTakeReplicas(state, *context_.leases, server, bytes).ok()) return false;
    }
    return !wanted.servers.empty();
  }

  const RebalanceWave wave_;
  const OperationContext context_;
  uint64_t number_ = 0;
  size_t next_ = 0;
};

}  // namespace

Operation MakeRebalance(RebalanceWave wave, const OperationContext& context) {
  return Rebalance(std::move(wave), context);
}

}  // namespace hotbed
