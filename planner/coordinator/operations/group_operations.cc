#include <memory>
#include <utility>

#include "planner/coordinator/operations/operations.h"
#include "planner/coordinator/state/keys.h"

namespace hotbed {
namespace {

class CommitStep : public Operation {
 public:
  explicit CommitStep(v1::GroupCommit commit) : commit_(std::move(commit)) {}

  Next Advance(const ClusterState& state) override {
    const auto last = state.groups().find(commit_.group());
    if (last != state.groups().end() && last->second.step() >= commit_.step()) {
      return Next::Done(Reply());
    }
    Transaction txn(&state);
    txn.Put(keys::Group(commit_.group()), commit_.SerializeAsString());
    return Next::Commit(std::move(txn));
  }
  void Restart() override {}

 private:
  const v1::GroupCommit commit_;
};

}  // namespace

std::unique_ptr<Operation> MakeGroupCommit(v1::GroupCommit commit) {
  return std::make_unique<CommitStep>(std::move(commit));
}

}  // namespace hotbed
