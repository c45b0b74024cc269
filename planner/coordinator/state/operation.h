// One change of the cluster, made by one or several transactions. The core runs operations one
// after another: it asks for the next transaction, commits it, applies it to the state, and asks
// again, until the operation is over. An operation decides from the state alone, so that after a
// conflict it can begin again on the state as it has become.
//
// Pure; thread-compatible.
#ifndef HOTBED_PLANNER_COORDINATOR_STATE_OPERATION_H_
#define HOTBED_PLANNER_COORDINATOR_STATE_OPERATION_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "planner/coordinator/state/cluster_state.h"
#include "planner/coordinator/store/meta_store.h"
#include "proto/control.pb.h"

namespace hotbed {

// The records that one transaction writes are at most so many; with the compare of each and that of
// the leader it stays below MetaStore::kTxnOpsMax.
inline constexpr size_t kRecordsPerTxn = 120;
static_assert(kRecordsPerTxn + 8 <= MetaStore::kTxnOpsMax);

// Changes that hold only if no key they touch was changed by someone else meanwhile.
class Transaction {
 public:
  explicit Transaction(const ClusterState* state) : state_(state) {}

  void Put(const std::string& key, std::string value);
  void Delete(const std::string& key);
  // Fails the transaction if someone else has changed `key`, without writing it.
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
                 v1::DrainServerReply, v1::ControlMovesReply>;

// What an operation wants next: a transaction, or to be over with a reply (ignored where nobody
// asked).
struct Next {
  std::optional<Transaction> commit;
  absl::StatusOr<Reply> reply = Reply();

  static Next Commit(Transaction transaction) { return {std::move(transaction), Reply()}; }
  static Next Done(absl::StatusOr<Reply> reply) { return {std::nullopt, std::move(reply)}; }
};

class Operation {
 public:
  virtual ~Operation() = default;
  // Called at the begin and after each transaction that succeeded, with the state as it is then.
  virtual Next Advance(const ClusterState& state) = 0;
  // After a conflict: forgets what it did; the next Advance begins again.
  virtual void Restart() = 0;
};

}  // namespace hotbed

#endif  // HOTBED_PLANNER_COORDINATOR_STATE_OPERATION_H_
