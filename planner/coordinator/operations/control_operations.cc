#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "planner/coordinator/membership/moves_view.h"
#include "planner/coordinator/operations/operations.h"
#include "planner/coordinator/state/event_log.h"
#include "planner/coordinator/state/keys.h"

namespace hotbed {
namespace {

class ControlMoves {
 public:
  ControlMoves(v1::ControlMovesRequest request, const OperationContext& context)
      : request_(std::move(request)), context_(context) {}

  Next operator()(const ClusterState& state) {
    if (!v1::ControlMovesRequest::Action_IsValid(request_.action())) {
      return absl::InvalidArgumentError(
          absl::StrCat("action ", request_.action(), " of moves is not known to this coordinator"));
    }
    if (!written_) {
      written_ = true;
      Transaction txn(&state);
      Control(state, &txn);
      if (!txn.empty()) return txn;
    }
    if (request_.action() == v1::ControlMovesRequest::ABORT) {
      Transaction txn(&state);
      Abort(state, &txn);
      if (!txn.empty()) {
        *took_back_ = true;
        return txn;
      }
      if (request_.number() != 0 && !*took_back_) {
        return absl::NotFoundError(absl::StrCat("request ", request_.number(),
                                                " has no move and no drain to be taken back: ",
                                                "'hotbed shard moves' lists those there are"));
      }
    } else {
      reply_.set_moves(state.goals().size());
    }
    *reply_.mutable_limits() = state.move_control().limits();
    *reply_.mutable_rebalance() = state.move_control().rebalance();
    reply_.set_paused(reply_.limits().paused());
    return reply_;
  }

 private:
  void Control(const ClusterState& state, Transaction* txn) const {
    v1::MoveControl control = state.move_control();
    const std::string before = control.SerializeAsString();
    v1::TransferLimits* const limits = control.mutable_limits();
    std::string text;
    switch (request_.action()) {
      case v1::ControlMovesRequest::PAUSE:
        limits->set_paused(true);
        text = "transfers are paused";
        break;
      case v1::ControlMovesRequest::RESUME:
        limits->set_paused(false);
        text = "transfers go on";
        break;
      case v1::ControlMovesRequest::REBALANCE_ON:
      case v1::ControlMovesRequest::REBALANCE_OFF: {
        const bool on = request_.action() == v1::ControlMovesRequest::REBALANCE_ON;
        control.mutable_rebalance()->set_on(on);
        text = on ? "rebalancing is on" : "rebalancing is off";
        break;
      }
      default:
        break;
    }
    if (request_.has_bytes_per_s()) {
      limits->set_bytes_per_s(request_.bytes_per_s());
      absl::StrAppend(&text, text.empty() ? "" : ", ", request_.bytes_per_s(), " bytes/s");
    }
    if (request_.has_pull_p99_ms_max()) {
      limits->set_pull_p99_ms_max(request_.pull_p99_ms_max());
      absl::StrAppend(&text, text.empty() ? "" : ", ", "pull p99 at most ",
                      request_.pull_p99_ms_max(), " ms");
    }
    if (control.SerializeAsString() == before) return;
    txn->Put(keys::kMovesKey, control.SerializeAsString());
    EventWriter(&state, context_.unix_ms).Add("moves", text, 0, 0, txn);
  }

  // Aborting a drain undoes the drain itself: its goals would come back otherwise.
  void Abort(const ClusterState& state, Transaction* txn) {
    std::string names;
    for (const auto& [id, server] : state.servers()) {
      if (!server.draining() || txn->ops().size() >= kGoalsPerTxn) continue;
      if (request_.number() != 0 && server.drain_number() != request_.number()) continue;
      v1::ServerInfo info = server;
      info.set_draining(false);
      info.set_drain_number(0);
      txn->Put(keys::Server(id), info.SerializeAsString());
      absl::StrAppend(&names, ", no drain of ", info.name());
    }
    const size_t room = kGoalsPerTxn - std::min(kGoalsPerTxn, txn->ops().size());
    const std::vector<uint64_t> goals = GoalsToTakeBack(state, request_.number(), room);
    for (const uint64_t packed : goals) txn->Delete(keys::Goal(ShardId::FromPacked(packed)));
    if (txn->empty()) return;
    reply_.set_moves(reply_.moves() + goals.size());
    EventWriter(&state, context_.unix_ms)
        .Add("abort", absl::StrCat(goals.size(), " moves are taken back", names), 0, 0, txn);
  }

  const v1::ControlMovesRequest request_;
  const OperationContext context_;
  bool written_ = false;
  const std::shared_ptr<bool> took_back_ = std::make_shared<bool>(false);  // of all attempts
  v1::ControlMovesReply reply_;
};

}  // namespace

Operation MakeOperation(v1::ControlMovesRequest request, const OperationContext& context) {
  return ControlMoves(std::move(request), context);
}

}  // namespace hotbed
