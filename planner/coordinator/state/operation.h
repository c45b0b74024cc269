// One change of the cluster, made by one or several transactions. The core runs operations one
// after another: it asks for the next transaction, commits it, applies it to the state, and asks
// again, until the operation is done. An operation decides from the state alone: after a conflict
// the core starts over with a copy of the operation as it was made.
//
// Pure; thread-compatible.
#ifndef HOTBED_PLANNER_COORDINATOR_STATE_OPERATION_H_
#define HOTBED_PLANNER_COORDINATOR_STATE_OPERATION_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "planner/coordinator/state/cluster_state.h"
#include "planner/coordinator/store/meta_store.h"
#include "proto/control.pb.h"
#include "proto/serving.pb.h"

namespace hotbed {

// The most records that one transaction writes. With a compare for each record and one for the
// leader key it stays below MetaStore::kTxnOpsMax.
inline constexpr size_t kRecordsPerTxn = 120;
static_assert(kRecordsPerTxn + 8 <= MetaStore::kTxnOpsMax);

// Changes that are made only if nobody else has changed a key they touch since the state was read.
class Transaction {
 public:
  explicit Transaction(const ClusterState* state) : state_(state) {}

  void Put(const std::string& key, std::string value) {
    Require(key);
    ops_.push_back({Op::Kind::kPut, key, std::move(value)});
  }
  void Delete(const std::string& key) {
    Require(key);
    ops_.push_back({Op::Kind::kDelete, key, ""});
  }
  // Fails the transaction if somebody else has changed `key`, which it does not write.
  void Require(const std::string& key) { compares_.push_back(state_->Unchanged(key)); }

  bool empty() const { return ops_.empty(); }
  const std::vector<Compare>& compares() const { return compares_; }
  const std::vector<Op>& ops() const { return ops_; }

 private:
  const ClusterState* state_;
  std::vector<Compare> compares_;
  std::vector<Op> ops_;
};

using Reply =
    std::variant<std::monostate, v1::CreateTableReply, v1::CreateTablesReply, v1::DropTableReply,
                 v1::AlterTableReply, v1::OpenSessionReply, v1::RegisterServerReply,
                 v1::ActivateShardsReply, v1::HeartbeatReply, v1::TrainReply, v1::MoveShardsReply,
                 v1::DrainServerReply, v1::ControlMovesReply, v1::ChooseReplicaReply,
                 v1::RebuildMetadataReply, v1::CutShardReply, v1::CommitCutReply,
                 v1::ScheduleCheckpointsReply, v1::HoldStepReply, v1::ServeTablesReply,
                 v1::ServingOrders, v1::PublishVersionReply, v1::ChooseVersionReply>;

// The next step of an operation: a transaction, or its end with a reply, which is ignored if nobody
// waits for it.
using Next = std::variant<Transaction, absl::StatusOr<Reply>>;
// Called first and after each committed transaction, with the current state.
using Operation = std::function<Next(const ClusterState&)>;

}  // namespace hotbed

#endif  // HOTBED_PLANNER_COORDINATOR_STATE_OPERATION_H_
