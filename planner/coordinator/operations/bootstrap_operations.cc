#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "planner/coordinator/operations/operations.h"
#include "planner/coordinator/state/keys.h"

namespace hotbed {

Operation MakeBootstrap(std::string token, std::string new_cluster_id) {
  return [=, written = false](const ClusterState& state) mutable -> Next {
    if (std::exchange(written, true)) return Reply();
    const bool empty = state.format().empty() && state.cluster_id().empty();
    if (state.format() == keys::kExported) {
      return absl::FailedPreconditionError(absl::StrCat(
          "the metadata of cluster ", state.cluster_id(), " were exported from here. Start the ",
          "coordinator with the store that they were imported into, or import them here again ",
          "('hotbed metadata import')"));
    }
    if (state.format() == keys::kImporting) {
      return absl::FailedPreconditionError(
          "an import of metadata into here has not ended: run 'hotbed metadata import' again");
    }
    if (!empty && state.format() != keys::kFormat) {
      return absl::FailedPreconditionError(
          absl::StrCat("the metadata of cluster ", state.cluster_id(), " has format ",
                       state.format(), ", this coordinator reads ", keys::kFormat));
    }
    Transaction txn(&state);
    txn.Put(keys::kLeaderKey, token);
    if (empty) {
      txn.Put(keys::kFormatKey, keys::kFormat);
      txn.Put(keys::kClusterKey, new_cluster_id);
    } else {
      txn.Require(keys::kFormatKey);  // an export may have marked it since it was read
    }
    return txn;
  };
}

Operation MakeCleanup() {
  return [](const ClusterState& state) -> Next {
    Transaction txn(&state);
    for (const ShardId shard : state.Orphans(kRecordsPerTxn / 3)) {
      txn.Delete(keys::Shard(shard));
      if (state.FindGoal(shard.packed()) != nullptr) txn.Delete(keys::Goal(shard));
      if (state.cuts().contains(shard.packed())) txn.Delete(keys::Cut(shard));
    }
    if (txn.empty()) return Reply();
    return txn;
  };
}

}  // namespace hotbed
