#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "planner/coordinator/operations/operations.h"
#include "planner/coordinator/state/keys.h"

namespace hotbed {
namespace {

class Bootstrap : public Operation {
 public:
  Bootstrap(std::string token, std::string new_cluster_id)
      : token_(std::move(token)), new_cluster_id_(std::move(new_cluster_id)) {}

  Next Advance(const ClusterState& state) override {
    if (written_) return Next::Done(Reply());
    const bool empty = state.format().empty() && state.cluster_id().empty();
    if (!empty && state.format() != keys::kFormat) {
      return Next::Done(absl::FailedPreconditionError(
          absl::StrCat("the metadata of cluster ", state.cluster_id(), " has format ",
                       state.format(), ", this coordinator reads ", keys::kFormat)));
    }
    Transaction txn(&state);
    txn.Put(keys::kLeaderKey, token_);
    if (empty) {
      txn.Put(keys::kFormatKey, keys::kFormat);
      txn.Put(keys::kClusterKey, new_cluster_id_);
    }
    written_ = true;
    return Next::Commit(std::move(txn));
  }
  void Restart() override { written_ = false; }

 private:
  const std::string token_;
  const std::string new_cluster_id_;
  bool written_ = false;
};

class Cleanup : public Operation {
 public:
  Next Advance(const ClusterState& state) override {
    Transaction txn(&state);
    for (const ShardId shard : state.Orphans(kRecordsPerTxn / 2)) {
      txn.Delete(keys::Shard(shard));
      if (state.FindGoal(shard.packed()) != nullptr) txn.Delete(keys::Goal(shard));
    }
    if (txn.empty()) return Next::Done(Reply());
    return Next::Commit(std::move(txn));
  }
  void Restart() override {}
};

}  // namespace

void Transaction::Put(const std::string& key, std::string value) {
  Require(key);
  ops_.push_back({Op::Kind::kPut, key, std::move(value)});
}

void Transaction::Delete(const std::string& key) {
  Require(key);
  ops_.push_back({Op::Kind::kDelete, key, ""});
}

std::unique_ptr<Operation> MakeBootstrap(std::string token, std::string new_cluster_id) {
  return std::make_unique<Bootstrap>(std::move(token), std::move(new_cluster_id));
}

std::unique_ptr<Operation> MakeCleanup() { return std::make_unique<Cleanup>(); }

}  // namespace hotbed
