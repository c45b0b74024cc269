#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/btree_set.h"
#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/host_port.h"
#include "common/status_macros.h"
#include "planner/coordinator/operations/operations.h"
#include "planner/coordinator/state/event_log.h"
#include "planner/coordinator/state/keys.h"
#include "proto/convert.h"

namespace hotbed {
namespace {

constexpr size_t kServerNameBytesMax = 200;
constexpr size_t kAddressBytesMax = 300;
constexpr int kRunsBeforeMax = 64;
constexpr size_t kGivenUpBytesMax = 1000;  // of an event

bool Printable(const std::string& text, size_t bytes_max) {
  return !text.empty() && text.size() <= bytes_max &&
         std::all_of(text.begin(), text.end(), [](char c) { return absl::ascii_isgraph(c); });
}

// Whether others can connect to it.
bool IsHostPort(const std::string& address) {
  const absl::StatusOr<HostPort> place = SplitHostPort(address, 1);
  return Printable(address, kAddressBytesMax) && place.ok() && !IsWildcardHost(place->host);
}

absl::Status Malformed(absl::string_view field, const std::string& value,
                       absl::string_view allowed) {
  return absl::InvalidArgumentError(absl::StrCat("server registration: ", field, " is \"",
                                                 absl::CEscape(value.substr(0, 80)),
                                                 "\", allowed: ", allowed));
}

absl::Status CheckRequest(const v1::RegisterServerRequest& r) {
  if (!Printable(r.name(), kServerNameBytesMax)) {
    return Malformed(
        "name", r.name(),
        absl::StrCat("1..", kServerNameBytesMax, " printable characters without spaces"));
  }
  if (!IsHostPort(r.address()))
    return Malformed("address", r.address(), "HOST:PORT that others can connect to");
  if (!r.admin_address().empty() && !IsHostPort(r.admin_address())) {
    return Malformed("admin_address", r.admin_address(),
                     "HOST:PORT that others can connect to, or empty");
  }
  if (r.runs_before_size() > kRunsBeforeMax) {
    return absl::InvalidArgumentError(absl::StrCat("server registration: ", r.runs_before_size(),
                                                   " runs_before, allowed: ", kRunsBeforeMax));
  }
  if (!r.failure_domain().empty() && !Printable(r.failure_domain(), kServerNameBytesMax)) {
    return Malformed("failure_domain", r.failure_domain(),
                     absl::StrCat("at most ", kServerNameBytesMax,
                                  " printable characters without spaces, or empty"));
  }
  return absl::OkStatus();
}

std::string ServerText(const v1::ServerInfo& info) {
  return absl::StrCat("server ", info.server(), " \"", info.name(), "\" at ", info.address());
}

class RegisterServer {
 public:
  RegisterServer(v1::RegisterServerRequest request, const OperationContext& context)
      : request_(std::move(request)), context_(context) {}

  Next operator()(const ClusterState& state) {
    if (!refused_.ok()) return refused_;
    if (incarnation_ == 0) return Enlist(state);
    // Shards that only an earlier process of the server held are this process's by now:
    // Membership's batches go before this operation's next step.
    v1::RegisterServerReply reply;
    reply.set_server(server_);
    reply.set_incarnation(incarnation_);
    reply.set_cluster_id(state.cluster_id());
    reply.set_generation(state.generation());
    return reply;
  }

 private:
  // OK, or why the data directory is taken for a copy of that of `info`. The process that uses the
  // original goes on.
  absl::Status CheckRun(const v1::ServerInfo& info) const {
    if (info.run() == 0 || request_.run() == info.run()) return absl::OkStatus();
    const std::string who = absl::StrCat("start ", request_.start(), " of the data directory of ",
                                         "server ", info.server(), ", at ", request_.address());
    const std::string last = absl::StrCat("start ", info.start(), " at ", info.address());
    const auto& before = request_.runs_before();
    if (std::find(before.begin(), before.end(), info.run()) == before.end()) {
      return absl::AlreadyExistsError(absl::StrCat(
          who, ", is refused: ", last,
          " registered last, of which this directory does not know. It "
          "is a copy or a restored backup; start the original, or this one as a new server with "
          "another --name and an empty --data-dir"));
    }
    // Who listens on the port of the last process has taken its place.
    if (request_.address() == info.address()) return absl::OkStatus();
    switch (context_.leases->RivalOf(info.server(), request_.run())) {
      case Rival::kGone:
        return absl::OkStatus();
      case Rival::kMayRun:
        return absl::UnavailableError(
            absl::StrCat(who, ", waits until it is certain that ", last, " has ended"));
      case Rival::kRuns:
        break;
    }
    return absl::AlreadyExistsError(
        absl::StrCat(who, ", is refused: ", last,
                     " is alive. One of the two directories is a copy of the "
                     "other; start a new server with another --name and an empty --data-dir"));
  }

  // Tells of a copy before it is refused.
  Next Refuse(const ClusterState& state, absl::Status why) {
    if (!absl::IsAlreadyExists(why)) return why;
    refused_ = std::move(why);
    Transaction txn(&state);
    EventWriter(&state, context_.unix_ms)
        .Add("server_refused", std::string(refused_.message()), 0, request_.server(), &txn);
    return txn;
  }

  // The server's own record, with its new incarnation.
  Next Enlist(const ClusterState& state) {
    HOTBED_RETURN_IF_ERROR(CheckRequest(request_));
    HOTBED_ASSIGN_OR_RETURN(const ServerId id, Identify(state));

    Transaction txn(&state);
    v1::ServerInfo info;
    if (id == 0) {
      if (state.servers().size() >= context_.limits.servers_max) {
        return absl::ResourceExhaustedError(absl::StrCat(
            "server \"", request_.name(), "\": the cluster has ", state.servers().size(),
            " servers, the limit is ", context_.limits.servers_max));
      }
      server_ = state.counters().servers + 1;
      txn.Put(keys::kServerCounter, absl::StrCat(server_));
    } else {
      server_ = id;
      info = state.servers().at(server_);
      const absl::Status mine = request_.server() == 0 ? absl::OkStatus() : CheckRun(info);
      if (!mine.ok()) return Refuse(state, mine);
    }
    incarnation_ = info.incarnation() + 1;
    // A process that has not heard of this generation may acknowledge pushes until it has. It says
    // where its logs end in a heartbeat, once it knows the records. So does one of which a rebuilt
    // record has to hear: what it holds counts once it has promised the epoch of that record.
    const absl::btree_set<uint64_t>& named = state.ShardsOfServer(server_);
    const bool fenced = std::any_of(named.begin(), named.end(), [&state](uint64_t packed) {
      return state.shards().at(packed).primary.incarnation == 0;
    });
    if (request_.generation() >= state.generation() && !fenced) {
      context_.membership->OnRegister(state, {server_, incarnation_}, request_.held());
    }
    info.set_server(server_);
    info.set_incarnation(incarnation_);
    info.set_name(request_.name());
    info.set_address(request_.address());
    info.set_admin_address(request_.admin_address());
    info.set_message_bytes_max(request_.message_bytes_max());
    info.set_live(true);
    info.mutable_load()->set_host_bytes_limit(request_.host_bytes());
    info.set_failure_domain(request_.failure_domain());
    info.set_feature_level(request_.feature_level());
    info.set_start(request_.start());
    info.set_run(request_.run());
    txn.Put(keys::Server(server_), info.SerializeAsString());
    EventWriter events(&state, context_.unix_ms);
    events.Add("server_up",
               absl::StrCat(info.name(), " at ", info.address(), ", incarnation ", incarnation_), 0,
               server_, &txn);
    if (!request_.gave_up().empty()) {
      events.Add(
          "data_given_up",
          absl::StrCat(info.name(), " starts without its data (--adopt-incomplete), because ",
                       request_.gave_up().substr(0, kGivenUpBytesMax)),
          0, server_, &txn);
    }
    return txn;
  }

  // Unavailable: it has to wait until a person has the metadata rebuilt.
  absl::Status CheckStranger(const ClusterState& state) const {
    constexpr char kNextStep[] =
        "'hotbed metadata rebuild --from-servers' adopts the servers that ask";
    if (request_.server() == 0) {
      if (Strangers::AwaitsRebuild(state)) {
        return absl::UnavailableError(
            absl::StrCat("these metadata are not rebuilt yet. ", kNextStep));
      }
      const auto waiting = context_.strangers->Waiting(context_.now_ns, state);
      if (!Strangers::IsEmpty(state) || waiting.empty()) return absl::OkStatus();
      return absl::UnavailableError(absl::StrCat(
          "server \"", request_.name(), "\" is new, and server \"", waiting[0]->said.name(),
          "\" at ", waiting[0]->said.address(), " asks for cluster ", waiting[0]->said.cluster_id(),
          ", of which this coordinator has lost the metadata. ", kNextStep,
          "; to begin a new cluster, stop them"));
    }
    const bool known =
        request_.cluster_id() == state.cluster_id() && state.servers().contains(request_.server());
    if (known || request_.cluster_id().empty() ||
        !Strangers::MayAdopt(state, request_.cluster_id())) {
      return absl::OkStatus();
    }
    if (request_.has_recollection()) context_.strangers->Note(context_.now_ns, request_);
    return absl::UnavailableError(
        absl::StrCat("server \"", request_.name(), "\" is of cluster ", request_.cluster_id(),
                     Strangers::IsEmpty(state) ? ", and this coordinator has no metadata. "
                                               : ", and was away when its metadata were rebuilt. ",
                     kNextStep));
  }

  // The id that the server has or takes over; 0: it needs a new one.
  absl::StatusOr<ServerId> Identify(const ClusterState& state) const {
    HOTBED_RETURN_IF_ERROR(CheckStranger(state));
    if (!request_.cluster_id().empty() && request_.cluster_id() != state.cluster_id()) {
      return absl::FailedPreconditionError(
          absl::StrCat("server \"", request_.name(), "\" has a data directory of cluster ",
                       request_.cluster_id(), ", this is cluster ", state.cluster_id(),
                       "; start it with another data directory or another coordinator"));
    }
    if (request_.server() != 0 && !state.servers().contains(request_.server())) {
      return absl::FailedPreconditionError(absl::StrCat(
          "server \"", request_.name(), "\" has the data directory of server ", request_.server(),
          ", which cluster ", state.cluster_id(),
          " does not know; was the coordinator's data directory replaced by an older one?"));
    }
    const v1::ServerInfo* namesake = state.FindServer(request_.name());
    if (namesake == nullptr || namesake->server() == request_.server()) return request_.server();
    // A server that died before it stored its new id comes back without one. The server of that
    // name is the same one if it is gone and holds nothing, or had the port of this one.
    const bool gone =
        !context_.leases->Held(namesake->server()) || namesake->address() == request_.address();
    if (request_.server() == 0 && gone && state.ShardsOfServer(namesake->server()).empty()) {
      return namesake->server();
    }
    return absl::AlreadyExistsError(absl::StrCat(
        "server name \"", request_.name(), "\" asked for at ", request_.address(), " belongs to ",
        ServerText(*namesake), " (", context_.leases->Held(namesake->server()) ? "live" : "down",
        ", ", state.ShardsOfServer(namesake->server()).size(),
        " shards); choose another name, or start it with that server's data directory"));
  }

  const v1::RegisterServerRequest request_;
  const OperationContext context_;
  absl::Status refused_;  // the event that tells of it is written
  ServerId server_ = 0;
  Incarnation incarnation_ = 0;  // 0: not yet enlisted
};

}  // namespace

Operation MakeOperation(v1::RegisterServerRequest request, const OperationContext& context) {
  return RegisterServer(std::move(request), context);
}

Operation MakeMarkDown(ServerId server, Incarnation incarnation, std::string why, int64_t unix_ms) {
  return [=](const ClusterState& state) -> Next {
    auto it = state.servers().find(server);
    if (it == state.servers().end() || it->second.incarnation() != incarnation ||
        !it->second.live()) {
      return Reply();
    }
    v1::ServerInfo info = it->second;
    info.set_live(false);
    Transaction txn(&state);
    txn.Put(keys::Server(server), info.SerializeAsString());
    EventWriter(&state, unix_ms)
        .Add("server_down", absl::StrCat(info.name(), ": ", why), 0, server, &txn);
    return txn;
  };
}

Operation MakeOperation(v1::ActivateShardsRequest request, const OperationContext& context) {
  return [request = std::move(request), shards_max = context.limits.activations_max,
          next = 0](const ClusterState& state) mutable -> Next {
    if (request.shards_size() > shards_max) {
      return absl::InvalidArgumentError(absl::StrCat("activation of ", request.shards_size(),
                                                     " shards, the limit is ", shards_max,
                                                     " a request"));
    }
    const Member caller{request.server(), request.incarnation()};
    Transaction txn(&state);
    for (; next < request.shards_size() && txn.ops().size() < kRecordsPerTxn; ++next) {
      const v1::ShardEpoch& asked = request.shards(next);
      const ShardRecord* const old = state.FindVisibleShard(asked.shard());
      if (old == nullptr || old->active || old->epoch != asked.epoch() || old->primary != caller) {
        continue;
      }
      ShardRecord record = *old;
      record.active = true;
      record.base = record.members;
      txn.Put(keys::Shard(record.shard), StoredRecord(record));
    }
    if (!txn.empty()) return txn;
    v1::ActivateShardsReply reply;
    for (const v1::ShardEpoch& asked : request.shards()) {
      const ShardRecord* const record = state.FindVisibleShard(asked.shard());
      if (record != nullptr) ToProto(*record, reply.add_records());
    }
    return reply;
  };
}

}  // namespace hotbed
