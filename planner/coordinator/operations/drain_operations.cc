#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "planner/coordinator/membership/moves_view.h"
#include "planner/coordinator/membership/replica_placement.h"
#include "planner/coordinator/operations/operations.h"
#include "planner/coordinator/state/event_log.h"
#include "planner/coordinator/state/keys.h"

namespace hotbed {
namespace {

class DrainServer {
 public:
  DrainServer(v1::DrainServerRequest request, const OperationContext& context)
      : request_(std::move(request)), context_(context) {}

  Next operator()(const ClusterState& state) {
    if (!written_) {
      HOTBED_RETURN_IF_ERROR(Plan(state));
      const bool same = state.servers().at(server_).draining() == !request_.undo();
      if (request_.dry_run() || same) return reply_;
      written_ = true;
      return Mark(state);
    }
    if (request_.undo() && reply_.number() != 0) {
      Transaction txn(&state);
      for (const uint64_t packed : GoalsToTakeBack(state, reply_.number(), kGoalsPerTxn)) {
        txn.Delete(keys::Goal(ShardId::FromPacked(packed)));
      }
      if (!txn.empty()) return txn;
    }
    *reply_.mutable_server() = state.servers().at(server_);
    return reply_;
  }

 private:
  absl::Status Plan(const ClusterState& state) {
    reply_.Clear();
    const v1::ServerInfo* const info = Find(state);
    if (info == nullptr) {
      return absl::NotFoundError(absl::StrCat("server \"", request_.server(), "\" is not known"));
    }
    server_ = info->server();
    *reply_.mutable_server() = *info;
    reply_.set_number(info->drain_number());
    const auto& held = state.ShardsOfServer(server_);
    ShardBytes bytes(context_.leases);
    for (const uint64_t packed : held) {
      const ShardRecord& record = state.shards().at(packed);
      if (!ContainsServer(record.members, server_)) continue;
      reply_.set_shards(reply_.shards() + 1);
      reply_.set_bytes(reply_.bytes() + bytes.Of(record));
    }
    if (request_.undo() || info->draining()) return absl::OkStatus();
    HOTBED_RETURN_IF_ERROR(CheckPlaces(state, *info));
    reply_.set_number(request_.dry_run() ? 0 : state.counters().moves + 1);
    return absl::OkStatus();
  }

  const v1::ServerInfo* Find(const ClusterState& state) const {
    if (const v1::ServerInfo* info = state.FindServer(request_.server())) return info;
    ServerId number = 0;
    if (!absl::SimpleAtoi(request_.server(), &number)) return nullptr;
    auto it = state.servers().find(number);
    return it == state.servers().end() ? nullptr : &it->second;
  }

  // Each of its shards must fit on some other server now.
  absl::Status CheckPlaces(const ClusterState& state, const v1::ServerInfo& info) const {
    const auto usable = [&](const auto& server) {
      return server.first != server_ && MayTakeReplicas(state, *context_.leases, server.first).ok();
    };
    if (std::none_of(state.servers().begin(), state.servers().end(), usable)) {
      return absl::FailedPreconditionError(
          absl::StrCat("server ", info.name(),
                       " is the last one that may hold shards; add another one, then drain"));
    }
    ShardBytes bytes(context_.leases);
    for (const uint64_t packed : state.ShardsOfServer(server_)) {
      const ShardRecord& record = state.shards().at(packed);
      if (!ContainsServer(record.members, server_)) continue;
      if (HasOtherPlace(state, record, bytes.Of(record))) continue;
      return absl::FailedPreconditionError(absl::StrCat(
          "server ", info.name(), " holds a replica of shard ", state.ShardName(packed),
          ", and no other server may take it: each is down, draining, read-only, without the "
          "room for it, or shares a failure domain with another replica; add a server, then "
          "drain"));
    }
    return absl::OkStatus();
  }

  // Its failure domain becomes free when it has left.
  bool HasOtherPlace(const ClusterState& state, const ShardRecord& record, uint64_t bytes) const {
    std::vector<ServerId> others;
    for (const Member& m : record.members) {
      if (m.server != server_) others.push_back(m.server);
    }
    return std::any_of(state.servers().begin(), state.servers().end(), [&](const auto& candidate) {
      const ServerId id = candidate.first;
      return id != server_ && !ContainsServer(record.members, id) &&
             MayTakeReplicas(state, *context_.leases, id, bytes).ok() &&
             !SharesDomain(state, id, others);
    });
  }

  Transaction Mark(const ClusterState& state) const {
    Transaction txn(&state);
    v1::ServerInfo info = state.servers().at(server_);
    info.set_draining(!request_.undo());
    info.set_drain_number(request_.undo() ? 0 : reply_.number());
    txn.Put(keys::Server(server_), info.SerializeAsString());
    if (!request_.undo()) txn.Put(keys::kMoveCounter, absl::StrCat(reply_.number()));
    EventWriter(&state, context_.unix_ms)
        .Add("drain",
             request_.undo() ? absl::StrCat(info.name(), " may take shards again")
                             : absl::StrCat(info.name(), ": ", reply_.shards(),
                                            " shards are to leave, request ", reply_.number()),
             0, server_, &txn);
    return txn;
  }

  const v1::DrainServerRequest request_;
  const OperationContext context_;
  ServerId server_ = 0;
  bool written_ = false;
  v1::DrainServerReply reply_;
};

}  // namespace

Operation MakeOperation(v1::DrainServerRequest request, const OperationContext& context) {
  return DrainServer(std::move(request), context);
}

}  // namespace hotbed
