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

}  // namespace

std::unique_ptr<Operation> MakeMembershipStep(
    std::function<std::optional<Transaction>(const ClusterState&)> next_batch) {
  return std::make_unique<MembershipStep>(std::move(next_batch));
}

}  // namespace hotbed
