// The core's requests, maps and rebalancing; core.cc has the running of operations.
#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "planner/coordinator/balance/cluster_view.h"
#include "planner/coordinator/core/core.h"
#include "planner/coordinator/membership/moves_view.h"
#include "planner/coordinator/membership/replica_placement.h"
#include "planner/coordinator/serving/served_versions.h"
#include "planner/coordinator/state/event_log.h"
#include "planner/coordinator/state/strangers.h"

namespace hotbed {

void Core::OnRequest(RequestEvent event) {
  if (absl::Status unready = Unready(); !unready.ok()) {
    ready_.replies.push_back({event.caller, unready});
    return;
  }
  if (auto* heartbeat = std::get_if<v1::HeartbeatRequest>(&event.request)) {
    return OnHeartbeat(event.caller, std::move(*heartbeat));
  }
  if (auto* report = std::get_if<v1::ServingReport>(&event.request)) {
    return OnServingReport(event.caller, *report);
  }
  if (auto* train = std::get_if<v1::TrainRequest>(&event.request)) {
    return OnTrain(event.caller, *train);
  }
  if (auto* hold = std::get_if<v1::HoldStepRequest>(&event.request)) {
    return OnHold(event.caller, *hold);
  }
  if (pending() >= options_.pending_max) {
    ready_.replies.push_back(
        {event.caller, absl::ResourceExhaustedError(absl::StrCat(
                           "the coordinator is busy: ", pending(), " requests wait, the limit is ",
                           options_.pending_max, "; retry later"))});
    return;
  }
  if (auto* registering = std::get_if<v1::RegisterServerRequest>(&event.request)) {
    leases_.OnRegistering(now_ns_, state_, *registering);
  }
  const bool urgent = std::holds_alternative<v1::ActivateShardsRequest>(event.request) ||
                      std::holds_alternative<v1::CommitCutRequest>(event.request);
  Lane& lane = urgent ? urgent_ : normal_;
  Pending pending;
  pending.caller = event.caller;
  pending.made = std::visit(
      [this](auto& request) -> Operation {
        if constexpr (requires { MakeOperation(std::move(request), Context()); }) {
          return MakeOperation(std::move(request), Context());
        }
        HOTBED_CHECK(false) << "answered above";
        return nullptr;
      },
      event.request);
  lane.queue.push_back(std::move(pending));
  Advance();
}

void Core::OnHeartbeat(CallerToken caller, v1::HeartbeatRequest request) {
  if (!serving()) {
    ready_.replies.push_back(
        {caller, absl::UnavailableError("the coordinator is starting; retry")});
    return;
  }
  v1::HeartbeatReply reply;
  reply.set_number(request.number());
  reply.set_lease_ttl_ms(options_.lease_ttl_ms);
  const bool stopped_before = leases_.Stopping(request.server());
  reply.set_lease_held(leases_.OnHeartbeat(now_ns_, request));
  if (reply.lease_held()) {
    if (request.has_load()) swept_.OnHeartbeat(state_, request);
    if (request.draining() && !stopped_before) {
      membership_.OnServerChanged(state_, request.server());
    }
    membership_.OnHeartbeat(state_, request);
    if (request.has_load()) {
      leases_.TakeLoad(request.server(), std::move(*request.mutable_load()));
    }
    *reply.mutable_map() = BuildServerMap(state_, request.server(), request.plan_revision_known());
    AddUnnamed(state_, {request.held_unnamed().begin(), request.held_unnamed().end()},
               reply.mutable_map());
    AddParts(state_, {request.parts_wanted().begin(), request.parts_wanted().end()},
             reply.mutable_map());
    *reply.mutable_transfer_limits() = membership_.transfers().LimitsOf(state_);
    *reply.mutable_given() = BuildGivenOut(state_, request.server());
    cuts_.AddFor(state_, request.server(), &reply);
  }
  ready_.replies.push_back({caller, Reply(std::move(reply))});
  Advance();
}

std::optional<v1::HeartbeatReply> Core::News(ServerId server, Incarnation incarnation,
                                             const NewsKnown& known) const {
  if (!serving() || leases_.LiveIncarnation(server) != incarnation) return std::nullopt;
  v1::HeartbeatReply reply;
  reply.set_lease_held(true);
  reply.set_lease_ttl_ms(options_.lease_ttl_ms);
  *reply.mutable_map() = BuildServerMap(state_, server, known.plan_revision);
  const v1::ClusterMap& map = reply.map();
  const bool nothing = map.delta() && map.tables().empty() && map.shards().empty() &&
                       map.servers().empty() && map.tables_dropped().empty();
  const NewsKnown now = NewsNow();
  if (nothing && known.limits == now.limits && known.given == now.given && known.cuts == now.cuts) {
    return std::nullopt;
  }
  *reply.mutable_transfer_limits() = membership_.transfers().LimitsOf(state_);
  *reply.mutable_given() = BuildGivenOut(state_, server);
  cuts_.AddFor(state_, server, &reply);
  return reply;
}

NewsKnown Core::NewsNow() const {
  return {state_.plan_revision(), membership_.transfers().limits_version(), GivenOutVersion(state_),
          cuts_.version()};
}

void Core::OnServingReport(CallerToken caller, const v1::ServingReport& report) {
  absl::Status taken;
  if (!serving()) {
    taken = absl::UnavailableError("the coordinator is starting; retry");
  } else if (!report.records_cluster().empty() &&
             (Strangers::AwaitsRebuild(state_) ||
              report.records_cluster() != state_.cluster_id())) {
    remembered_.Note(now_ns_, report);
    // None of them is away when the metadata are here again.
    if (Strangers::IsEmpty(state_) || Strangers::AwaitsRebuild(state_)) serving_.Begin(now_ns_);
    v1::ServingOrders orders;
    orders.set_records_wanted(true);
    ready_.replies.push_back({caller, Reply(std::move(orders))});
    return;
  } else if (Strangers::AwaitsRebuild(state_)) {
    // An answer without tables would drop them.
    taken = absl::UnavailableError("this coordinator knows no cluster yet");
  } else {
    taken = serving_.OnReport(now_ns_, report);
  }
  if (!taken.ok()) {
    ready_.replies.push_back({caller, taken});
    return;
  }
  v1::ServingOrders orders =
      serving_.OrdersFor(now_ns_, report.name(), state_.served(), state_.tables());
  AddVersions(state_.versions(), state_.version_choices(), &orders);
  if (report.records_cluster() != state_.cluster_id() ||
      report.records_revision() != state_.serving_revision()) {
    *orders.mutable_records() = RecordsOf(state_);
  }
  ready_.replies.push_back({caller, Reply(std::move(orders))});
}

absl::StatusOr<v1::ServingMap> Core::Serving() const {
  // Readers that were given no tables would think that none is served.
  if (Strangers::AwaitsRebuild(state_) ||
      (Strangers::IsEmpty(state_) && remembered_.Awaited(now_ns_))) {
    return absl::UnavailableError(
        "this coordinator knows no server and no table (yet); if its metadata were lost: 'hotbed "
        "metadata rebuild --from-servers'");
  }
  v1::ServingMap map = serving_.Map(now_ns_, state_.served(), state_.tables());
  AddVersions(state_.versions(), state_.version_choices(), &map);
  return map;
}

void Core::PlaceServing() {
  constexpr int64_t kEveryNs = 500'000'000;
  if (now_ns_ < place_serving_again_ns_) return;
  place_serving_again_ns_ = now_ns_ + kEveryNs;
  const auto begin = [this](Operation operation) {
    Pending pending;
    pending.made = std::move(operation);
    normal_.queue.push_back(std::move(pending));
  };
  const std::string revision =
      absl::StrCat(state_.serving_revision(), " ", state_.tables().size(), " ",
                   state_.tables().empty() ? 0 : state_.tables().rbegin()->first);
  serving_.SetCurrent(CurrentVersions(state_.version_choices()));
  if (serving_.NeedsPlacing(now_ns_, revision, state_.served(), state_.tables())) {
    begin(MakePlaceServing(Context()));
  }
  if (FlipsVersion(state_, serving_, now_ns_)) begin(MakeFlipVersion(Context()));
}

void Core::OnTrain(CallerToken caller, const v1::TrainRequest& request) {
  if (!serving()) {
    ready_.replies.push_back(
        {caller, absl::UnavailableError("the coordinator is starting; retry")});
    return;
  }
  trainers_.OnRequest(now_ns_, caller, request, state_);
  TakeFromTrainers();
  Advance();
}

void Core::OnHold(CallerToken caller, const v1::HoldStepRequest& request) {
  if (!serving()) {
    ready_.replies.push_back(
        {caller, absl::UnavailableError("the coordinator is starting; retry")});
    return;
  }
  absl::StatusOr<v1::HoldStepReply> reply = trainers_.OnHold(now_ns_, request, state_);
  if (reply.ok()) {
    ready_.replies.push_back({caller, Reply(*std::move(reply))});
  } else {
    ready_.replies.push_back({caller, reply.status()});
  }
  TakeFromTrainers();
  Advance();
}

void Core::TakeFromTrainers() {
  for (TrainerGroups::Answer& answer : trainers_.TakeAnswers()) {
    if (answer.reply.ok()) {
      ready_.replies.push_back({answer.caller, Reply(*std::move(answer.reply))});
    } else {
      ready_.replies.push_back({answer.caller, answer.reply.status()});
    }
  }
  for (v1::GroupCommit& commit : trainers_.TakeCommits()) {
    Pending pending;
    pending.made = MakeGroupCommit(std::move(commit));
    urgent_.queue.push_back(std::move(pending));
  }
}

v1::ClusterMap Core::Map(uint64_t revision_known, bool rates) const {
  if (Strangers::AwaitsRebuild(state_)) {
    v1::ClusterMap nothing;
    nothing.set_cluster_id(state_.cluster_id());
    nothing.set_plan_revision(1);
    return nothing;
  }
  v1::ClusterMap map = BuildMap(state_, revision_known);
  for (v1::ServerInfo& info : *map.mutable_servers()) {
    const Leases::Lease* const lease = leases_.Find(info.server());
    if (lease != nullptr) *info.mutable_load() = lease->load;
  }
  if (!rates) return map;
  const std::optional<ClusterView> weighed = rebalance_.Weighed(View());
  if (!weighed.has_value()) return map;
  for (const ClusterTable& table : weighed->tables) {
    for (uint32_t i = 0; i < table.shards.size(); ++i) {
      v1::ShardRate& rate = *map.add_rates();
      rate.set_shard(table.IdOf(i).packed());
      rate.set_rows_pulled(table.shards[i].rows_pulled);
      rate.set_rows_pushed(table.shards[i].rows_pushed);
    }
  }
  return map;
}

std::optional<v1::ClusterMap> Core::MapToFollow(uint64_t revision_known) const {
  if (Strangers::AwaitsRebuild(state_)) return std::nullopt;
  return Map(revision_known);
}

// Only servers that may take replicas are usable: goals on others would be given up.
ClusterView Core::View() const {
  return ViewOf(
      state_, [this](ServerId s) { return MayTakeReplicas(state_, leases_, s).ok(); },
      LastLoads(&leases_));
}

ClusterView Core::WeighedView() const {
  ClusterView view = View();
  if (std::optional<ClusterView> weighed = rebalance_.Weighed(view)) return *std::move(weighed);
  return view;
}

void Core::Rebalance() {
  // A view costs some microseconds per shard: with many shards it is made less often.
  constexpr int64_t kNsPerShard = 50'000;
  const int64_t now_ms = now_ns_ / 1'000'000;
  if (state_.move_control().limits().paused() || now_ns_ < rebalance_again_ns_ ||
      !rebalance_.Due(now_ms)) {
    return;
  }
  rebalance_again_ns_ = now_ns_ + kNsPerShard * static_cast<int64_t>(state_.shards().size());
  rebalance_.Switch(state_.move_control().rebalance().on());
  std::optional<RebalanceWave> wave = rebalance_.Tick(now_ms, View(), state_.goals().size());
  if (!wave.has_value()) return;
  Pending pending;
  if (wave->split.has_value()) {
    v1::CutShardRequest request;
    request.set_shard(wave->split->packed());
    if (const ShardRecord* const record = state_.FindVisibleShard(wave->split->packed())) {
      busy_shards_.NoteSplit(now_ns_, *record);
    }
    request.set_reason(wave->reason);
    pending.made = MakeOperation(std::move(request), Context());
  } else {
    pending.made = MakeRebalance(*std::move(wave), Context());
  }
  normal_.queue.push_back(std::move(pending));
}

// A few at a time. Servers report the sizes of the parts some seconds after a cut. Merges only
// where nothing is to be split.
void Core::SplitShards() {
  constexpr int64_t kEveryNs = 20'000'000'000;
  constexpr size_t kAtOnce = 4;
  busy_shards_.Tick(now_ns_, state_, leases_);
  if (state_.move_control().limits().paused() || now_ns_ < split_again_ns_) return;
  split_again_ns_ = now_ns_ + kEveryNs;
  if (!cuts_.empty()) return;
  std::vector<v1::CutShardRequest> wanted;
  if (options_.split_above_bytes > 0) {
    wanted = LargeShards(state_, leases_, options_.split_above_bytes);
    split_tries_.Choose(state_, now_ns_, kAtOnce, &wanted);
  }
  for (auto& busy : busy_shards_.Take(now_ns_, state_, kAtOnce - wanted.size())) {
    wanted.push_back(std::move(busy));
  }
  if (wanted.empty() && options_.merge_below_bytes > 0) {
    wanted = busy_shards_.SmallNeighbours(now_ns_, state_, options_.merge_below_bytes);
    merge_tries_.Choose(state_, now_ns_, kAtOnce, &wanted);
  }
  for (v1::CutShardRequest& request : wanted) {
    Pending pending;
    pending.made = MakeOperation(std::move(request), Context());
    normal_.queue.push_back(std::move(pending));
  }
}

v1::RebalanceStatus Core::RebalancingNow() const {
  v1::RebalanceStatus status = state_.move_control().rebalance();
  const RebalanceReport report = rebalance_.report();
  const auto unix_of = [&](int64_t ms) { return unix_ms_ + ms - now_ns_ / 1'000'000; };
  if (report.last_ms != 0 && unix_of(report.last_ms) >= status.last_unix_ms()) {
    status.set_last_reason(report.last_reason);
    status.set_last_unix_ms(unix_of(report.last_ms));
  }
  status.set_imbalance(report.imbalance);
  if (report.next_ms != 0) status.set_next_unix_ms(unix_of(report.next_ms));
  return status;
}

v1::ListMovesReply Core::Moves(const v1::ListMovesRequest& request) const {
  v1::ListMovesReply reply = ListMoves(state_, membership_, leases_, request);
  *reply.mutable_rebalance() = RebalancingNow();
  membership_.doubts().List(&reply);
  return reply;
}

v1::ListEventsReply Core::Events(const v1::ListEventsRequest& request) const {
  return ListEvents(state_, request);
}

}  // namespace hotbed
