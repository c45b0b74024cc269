#include <algorithm>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/status_macros.h"
#include "planner/coordinator/balance/cluster_view.h"
#include "planner/coordinator/membership/membership_batch.h"
#include "planner/coordinator/membership/replica_placement.h"
#include "planner/coordinator/operations/operations.h"
#include "planner/coordinator/state/event_log.h"
#include "planner/coordinator/state/keys.h"

namespace hotbed {
namespace {

class MoveShards {
 public:
  MoveShards(v1::MoveShardsRequest request, const OperationContext& context)
      : request_(std::move(request)), context_(context) {}

  Next operator()(const ClusterState& state) {
    if (!planned_) {
      HOTBED_RETURN_IF_ERROR(Plan(state));
      if (request_.dry_run()) return reply_;
      planned_ = true;
    }
    if (written_ == reply_.goals_size()) return reply_;
    Transaction txn(&state);
    if (written_ == 0) {
      txn.Put(keys::kMoveCounter, absl::StrCat(reply_.number()));
      EventWriter(&state, context_.unix_ms)
          .Add("move_asked",
               absl::StrCat("request ", reply_.number(), ": ", reply_.goals_size(), " shards",
                            request_.reason().empty() ? "" : ", ", request_.reason()),
               reply_.goals_size() == 1 ? reply_.goals(0).shard() : 0, 0, &txn);
    }
    for (size_t n = 0; n < kGoalsPerTxn && written_ < reply_.goals_size(); ++n, ++written_) {
      const v1::ShardGoal& goal = reply_.goals(written_);
      txn.Put(keys::Goal(ShardId::FromPacked(goal.shard())), goal.SerializeAsString());
    }
    return txn;
  }

 private:
  absl::Status Plan(const ClusterState& state) {
    reply_.Clear();
    if (request_.moves().empty() || request_.moves_size() > context_.limits.moves_max) {
      return absl::InvalidArgumentError(absl::StrCat("moves of ", request_.moves_size(),
                                                     " shards, allowed: 1 to ",
                                                     context_.limits.moves_max, " in one request"));
    }
    if (request_.reason().size() > kReasonBytesMax) {
      return absl::InvalidArgumentError(absl::StrCat("the reason of moves has ",
                                                     request_.reason().size(),
                                                     " bytes, allowed: ", kReasonBytesMax));
    }
    reply_.set_number(state.counters().moves + 1);
    absl::flat_hash_set<uint64_t> seen;
    absl::flat_hash_map<ServerId, uint64_t> bytes_to;
    ShardBytes bytes(context_.leases);
    for (const v1::MoveShardsRequest::Move& move : request_.moves()) {
      HOTBED_ASSIGN_OR_RETURN(v1::ShardGoal goal, GoalOf(state, move));
      if (!seen.insert(move.shard()).second) {
        return absl::InvalidArgumentError(
            absl::StrCat("shard ", state.ShardName(move.shard()), " stands twice in the request"));
      }
      const ShardRecord& record = state.shards().at(move.shard());
      const uint64_t more = bytes.Of(record);
      for (const ServerId to : goal.servers()) {
        if (ContainsServer(record.members, to)) continue;
        reply_.set_bytes(reply_.bytes() + more);
        // All bytes that the request sends there: shards that leave the server may leave it later.
        const uint64_t all = bytes_to[to] += more;
        HOTBED_RETURN_IF_ERROR(
            Annotated(absl::StrCat("shard ", state.ShardName(move.shard())),
                      MayTakeReplicas(state, *context_.leases, to, more == 0 ? 0 : all)));
      }
      *reply_.add_goals() = std::move(goal);
    }
    if (request_.dry_run()) reply_.clear_number();
    return absl::OkStatus();
  }

  absl::StatusOr<v1::ShardGoal> GoalOf(const ClusterState& state,
                                       const v1::MoveShardsRequest::Move& move) const {
    const ShardRecord* const found = state.FindVisibleShard(move.shard());
    if (found == nullptr) {
      return absl::NotFoundError(
          absl::StrCat(ShardId::FromPacked(move.shard()).ToString(), " does not exist"));
    }
    const ShardRecord& record = *found;
    const std::string name = absl::StrCat("shard ", state.ShardName(move.shard()));
    if (const v1::ShardGoal* goal = state.FindGoal(move.shard())) {
      return absl::FailedPreconditionError(absl::StrCat(name, " is moving already (request ",
                                                        goal->number(), ", ", goal->reason(),
                                                        "); wait for it, or abort that one"));
    }
    if (!move.servers().empty()) return GoalAsAsked(state, move, record, name);
    const ServerId primary = record.primary.server;
    const ServerId from = move.from() == 0 ? primary : move.from();
    if (!ContainsServer(record.members, from)) {
      return absl::FailedPreconditionError(
          absl::StrCat(name, " has no replica on ", state.ServerName(from), " to move"));
    }
    if (move.to() == primary || (ContainsServer(record.members, move.to()) && from != primary)) {
      return absl::AlreadyExistsError(
          absl::StrCat(name, " is on ", state.ServerName(move.to()), " already"));
    }
    HOTBED_RETURN_IF_ERROR(Annotated(name, MayTakeReplicas(state, *context_.leases, move.to())));
    return Goal(state, record, from, move.to(), name);
  }

  absl::StatusOr<v1::ShardGoal> GoalAsAsked(const ClusterState& state,
                                            const v1::MoveShardsRequest::Move& move,
                                            const ShardRecord& record,
                                            const std::string& name) const {
    const std::vector<ServerId> servers(move.servers().begin(), move.servers().end());
    const uint32_t replicas = std::max(1u, state.tables().at(record.shard.table).replicas());
    const std::set<ServerId> distinct(servers.begin(), servers.end());
    if (move.from() != 0 || move.to() != 0 || distinct.size() < servers.size() ||
        servers.size() > replicas) {
      return absl::InvalidArgumentError(
          absl::StrCat(name, ": servers [", absl::StrJoin(servers, ", "), "], from ", move.from(),
                       ", to ", move.to(), "; allowed: 1 to ", replicas,
                       " distinct servers, the table's replicas, with neither from nor to"));
    }
    std::vector<ServerId> now = MemberServers(record);
    if (servers.front() == record.primary.server &&
        distinct == std::set<ServerId>(now.begin(), now.end())) {
      return absl::AlreadyExistsError(absl::StrCat(name, " is there already"));
    }
    for (const ServerId to : servers) {
      HOTBED_RETURN_IF_ERROR(Annotated(name, MayBeOn(state, record, to, servers)));
    }
    return MakeGoal(record.shard, servers,
                    request_.reason().empty() ? "move asked for" : request_.reason(),
                    reply_.number(), context_.unix_ms);
  }

  absl::Status MayBeOn(const ClusterState& state, const ShardRecord& record, ServerId to,
                       const std::vector<ServerId>& servers) const {
    if (!ContainsServer(record.members, to)) {
      HOTBED_RETURN_IF_ERROR(MayTakeReplicas(state, *context_.leases, to));
    }
    if (!SharesDomain(state, to, servers)) return absl::OkStatus();
    return absl::FailedPreconditionError(
        absl::StrCat(state.ServerName(to), " is in failure domain ",
                     FailureDomainOf(state.servers().at(to)), ", as another replica of it"));
  }

  static absl::Status Annotated(const std::string& name, const absl::Status& status) {
    if (status.ok()) return status;
    return absl::Status(status.code(), absl::StrCat(name, ": ", status.message()));
  }

  absl::StatusOr<v1::ShardGoal> Goal(const ClusterState& state, const ShardRecord& record,
                                     ServerId from, ServerId to, const std::string& name) const {
    std::vector<ServerId> servers = MemberServers(record);
    // A backup that is to be primary changes places with the primary.
    std::replace(servers.begin() + 1, servers.end(), to, from);
    *std::find(servers.begin(), servers.end(), from) = to;
    HOTBED_RETURN_IF_ERROR(Annotated(name, MayBeOn(state, record, to, servers)));
    return MakeGoal(record.shard, servers,
                    request_.reason().empty() ? "move asked for" : request_.reason(),
                    reply_.number(), context_.unix_ms);
  }

  const v1::MoveShardsRequest request_;
  const OperationContext context_;
  bool planned_ = false;
  int written_ = 0;
  v1::MoveShardsReply reply_;
};

}  // namespace

Operation MakeOperation(v1::MoveShardsRequest request, const OperationContext& context) {
  return MoveShards(std::move(request), context);
}

}  // namespace hotbed
