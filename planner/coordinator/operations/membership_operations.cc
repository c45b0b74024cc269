#include <functional>
#include <memory>
#include <optional>
#include <utility>

#include "planner/coordinator/operations/operations.h"

namespace hotbed {
namespace {

class MembershipStep : public Operation {
 public:
  explicit MembershipStep(std::function<std::optional<Transaction>(const ClusterState&)> next_batch)
      : next_batch_(std::move(next_batch)) {}

  Next Advance(const ClusterState& state) override {
    if (done_) return Next::Done(Reply());
    done_ = true;
    std::optional<Transaction> txn = next_batch_(state);
    return txn.has_value() ? Next::Commit(*std::move(txn)) : Next::Done(Reply());
  }
  // The state was read again and Membership looks at all shards: there is nothing to repeat.
  void Restart() override { done_ = true; }

 private:
  const std::function<std::optional<Transaction>(const ClusterState&)> next_batch_;
  bool done_ = false;
};

class ChooseReplicaOperation : public Operation {
 public:
  using Choose = std::function<absl::StatusOr<Membership::Chosen>(const ClusterState&,
                                                                  const v1::ChooseReplicaRequest&)>;
  ChooseReplicaOperation(v1::ChooseReplicaRequest request, Choose choose)
      : request_(std::move(request)), choose_(std::move(choose)) {}

  Next Advance(const ClusterState& state) override {
    if (reply_.has_value()) return Next::Done(Reply(*reply_));
    absl::StatusOr<Membership::Chosen> chosen = choose_(state, request_);
    if (!chosen.ok()) return Next::Done(chosen.status());
    if (request_.dry_run()) return Next::Done(Reply(std::move(chosen->reply)));
    reply_ = std::move(chosen->reply);
    return Next::Commit(std::move(chosen->transaction));
  }
  void Restart() override { reply_.reset(); }

 private:
  const v1::ChooseReplicaRequest request_;
  const Choose choose_;
  std::optional<v1::ChooseReplicaReply> reply_;  // written
};

}  // namespace

std::unique_ptr<Operation> MakeChooseReplica(v1::ChooseReplicaRequest request,
                                             ChooseReplicaOperation::Choose choose) {
  return std::make_unique<ChooseReplicaOperation>(std::move(request), std::move(choose));
}

std::unique_ptr<Operation> MakeMembershipStep(
    std::function<std::optional<Transaction>(const ClusterState&)> next_batch) {
  return std::make_unique<MembershipStep>(std::move(next_batch));
}

}  // namespace hotbed
