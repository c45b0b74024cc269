#include <string>
#include <utility>

#include "planner/coordinator/operations/operations.h"
#include "planner/coordinator/state/keys.h"

namespace hotbed {

Operation MakeGroupCommit(v1::GroupCommit commit) {
  return [commit = std::move(commit)](const ClusterState& state) -> Next {
    const auto last = state.groups().find(commit.group());
    if (last != state.groups().end() && last->second.step() >= commit.step()) return Reply();
    Transaction txn(&state);
    txn.Put(keys::Group(commit.group()), commit.SerializeAsString());
    return txn;
  };
}

}  // namespace hotbed
