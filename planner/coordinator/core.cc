#include "planner/coordinator/core.h"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "planner/coordinator/keys.h"

namespace hotbed {
namespace {

constexpr int kAttemptsMax = 20;                 // of one operation that keeps meeting conflicts
constexpr int64_t kLoadRetryNs = 100 * 1000000;  // between two reads of a store that fails

absl::Status OutcomeUnknown(const absl::Status& store) {
  return absl::UnavailableError(absl::StrCat(
      "the metadata store failed, the change may or may not have been made: ", store.ToString()));
}

}  // namespace

Core::Core(CoreOptions options) : options_(std::move(options)), trainers_(options_.trainers) {
  AskToLoad();
}

Ready Core::TakeReady() {
  Ready ready = std::move(ready_);
  ready_ = Ready();
  return ready;
}

void Core::Step(int64_t now_ns, Event event) {
  now_ns_ = std::max(now_ns_, now_ns);
  if (auto* request = std::get_if<RequestEvent>(&event)) {
    OnRequest(std::move(*request));
  } else if (auto* loaded = std::get_if<LoadedEvent>(&event)) {
    OnLoaded(std::move(*loaded));
  } else {
    OnCommitted(std::move(std::get<CommittedEvent>(event)));
  }
}

void Core::Tick(int64_t now_ns) {
  now_ns_ = std::max(now_ns_, now_ns);
  // Whoever was held up so long may have heartbeats waiting that it has not read yet.
  const bool held_up = last_tick_ns_ != 0 && now_ns_ - last_tick_ns_ > LeaseNs() / 2;
  if (held_up) {
    for (auto& [server, l] : liveness_) l.deadline_ns = now_ns_ + LeaseNs();
  }
  last_tick_ns_ = now_ns_;
  if (phase_ == Phase::kLoading && !load_under_way_ && now_ns_ >= load_again_ns_) AskToLoad();
  trainers_.Tick(now_ns_, held_up || !serving());
  TakeFromTrainers();
  if (!serving()) return;
  EndLeases();
  Advance();
}

absl::Status Core::Unready() const {
  switch (phase_) {
    case Phase::kServing:
      return absl::OkStatus();
    case Phase::kLoading:
      // The first read is under way: requests may wait for it. A store that fails makes nobody
      // wait.
      if (trouble_.ok()) return absl::OkStatus();
      return absl::UnavailableError(
          absl::StrCat("the metadata store cannot be read: ", trouble_.ToString()));
    case Phase::kOvertaken:
    case Phase::kFailed:
      break;
  }
  return trouble_;
}

void Core::OnRequest(RequestEvent event) {
  if (absl::Status unready = Unready(); !unready.ok()) {
    ready_.replies.push_back({event.caller, unready});
    return;
  }
  if (auto* heartbeat = std::get_if<v1::HeartbeatRequest>(&event.request)) {
    OnHeartbeat(event.caller, *heartbeat);
    return;
  }
  if (auto* train = std::get_if<v1::TrainRequest>(&event.request)) {
    OnTrain(event.caller, *train);
    return;
  }
  if (queue_.size() >= options_.pending_max) {
    ready_.replies.push_back({event.caller, absl::ResourceExhaustedError(absl::StrCat(
                                                "the coordinator is busy: ", queue_.size(),
                                                " requests wait, the limit is ",
                                                options_.pending_max, "; retry later"))});
    return;
  }
  Pending pending;
  pending.caller = event.caller;
  pending.operation = MakeOperation(std::move(event.request));
  queue_.push_back(std::move(pending));
  Advance();
}

std::unique_ptr<Operation> Core::MakeOperation(Request request) {
  const ClusterLimits& limits = options_.limits;
  if (auto* r = std::get_if<v1::CreateTableRequest>(&request)) {
    return MakeCreateTable(std::move(*r), limits, [this](ServerId s) { return Placeable(s); });
  }
  if (auto* r = std::get_if<v1::CreateTablesRequest>(&request)) {
    return MakeCreateTables(std::move(*r), limits, [this](ServerId s) { return Placeable(s); });
  }
  if (auto* r = std::get_if<v1::DropTableRequest>(&request)) {
    return MakeDropTable(std::move(*r), limits);
  }
  if (auto* r = std::get_if<v1::AlterTableRequest>(&request)) {
    return MakeAlterTable(std::move(*r));
  }
  if (auto* r = std::get_if<v1::OpenSessionRequest>(&request)) {
    return MakeOpenSession(std::move(*r), limits);
  }
  if (auto* r = std::get_if<v1::RegisterServerRequest>(&request)) {
    return MakeRegisterServer(std::move(*r), limits, [this](ServerId s) { return LeaseHeld(s); });
  }
  return MakeActivateShards(std::move(std::get<v1::ActivateShardsRequest>(request)), limits);
}

void Core::OnHeartbeat(CallerToken caller, const v1::HeartbeatRequest& request) {
  if (!serving()) {
    ready_.replies.push_back(
        {caller, absl::UnavailableError("the coordinator is starting; retry")});
    return;
  }
  v1::HeartbeatReply reply;
  reply.set_lease_ttl_ms(options_.lease_ttl_ms);
  auto it = liveness_.find(request.server());
  const bool held = it != liveness_.end() && it->second.incarnation == request.incarnation() &&
                    !it->second.marking_down;
  reply.set_lease_held(held);
  if (held) {
    Liveness& l = it->second;
    l.deadline_ns = now_ns_ + LeaseNs();
    l.draining = request.draining();
    l.load = request.load();
    *reply.mutable_map() = BuildServerMap(state_, request.server(), request.plan_revision_known());
  }
  ready_.replies.push_back({caller, Reply(std::move(reply))});
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
    pending.operation = MakeGroupCommit(std::move(commit));
    queue_.push_back(std::move(pending));
  }
}

void Core::AskToLoad() {
  phase_ = Phase::kLoading;
  load_under_way_ = true;
  ready_.load = true;
}

void Core::OnLoaded(LoadedEvent event) {
  HOTBED_CHECK(load_under_way_);
  load_under_way_ = false;
  absl::Status s = event.result.status();
  if (!s.ok()) {
    trouble_ = s;
    load_again_ns_ = now_ns_ + kLoadRetryNs;
    FailAll(Unready());
    return;
  }
  s = state_.Reset(event.result->kvs);
  if (!s.ok()) return Stop(Phase::kFailed, s);
  if (leading_ && state_.leader() != options_.token) {
    return Stop(Phase::kOvertaken,
                absl::UnavailableError(absl::StrCat(
                    "this coordinator was overtaken by another one (", state_.leader(), ")")));
  }
  trouble_ = absl::OkStatus();
  phase_ = Phase::kServing;
  bootstrapped_ = false;
  new_cluster_ = state_.format().empty();
  Pending bootstrap;
  bootstrap.operation = MakeBootstrap(options_.token, options_.new_cluster_id);
  bootstrap.bootstrap = true;
  queue_.push_front(std::move(bootstrap));
  Advance();
}

void Core::OnCommitted(CommittedEvent event) {
  HOTBED_CHECK(commit_under_way_);
  commit_under_way_ = false;
  if (!event.result.ok()) {
    // Nobody may be told that it failed: it may have been written.
    const bool bootstrap = running_->bootstrap;
    if (!bootstrap) Finish(OutcomeUnknown(event.result.status()));
    running_.reset();
    trouble_ = event.result.status();
    phase_ = Phase::kLoading;
    load_again_ns_ = now_ns_ + kLoadRetryNs;
    FailAll(Unready());
    return;
  }
  if (!event.result->succeeded) {
    if (++running_->attempts > kAttemptsMax) {
      Finish(absl::AbortedError(
          absl::StrCat("someone else keeps changing the same metadata; gave up after ",
                       kAttemptsMax, " attempts")));
    } else {
      running_->operation->Restart();
      if (!running_->bootstrap) queue_.push_front(std::move(*running_));
    }
    running_.reset();
    AskToLoad();
    return;
  }
  state_.Apply(committing_, event.result->revision);
  committing_.clear();
  SyncLiveness();
  if (bootstrapped_) trainers_.OnCommitted(now_ns_, state_);
  TakeFromTrainers();
  Advance();
}

void Core::Advance() {
  while (phase_ == Phase::kServing && !commit_under_way_) {
    if (!running_.has_value()) {
      // Between operations every shard without its table is a leftover.
      const bool leftovers = bootstrapped_ && !state_.Orphans(1).empty();
      if (leftovers) {
        Pending cleanup;
        cleanup.operation = MakeCleanup();
        running_ = std::move(cleanup);
      } else if (!queue_.empty()) {
        running_ = std::move(queue_.front());
        queue_.pop_front();
      } else {
        return;
      }
    }
    Next next = running_->operation->Advance(state_);
    if (next.commit.has_value()) {
      if (leading_) next.commit->Require(keys::kLeaderKey);
      committing_ = next.commit->ops();
      ready_.commit = std::move(next.commit);
      commit_under_way_ = true;
      return;
    }
    if (running_->bootstrap) {
      running_.reset();
      if (!next.reply.ok()) return Stop(Phase::kFailed, next.reply.status());
      leading_ = true;
      bootstrapped_ = true;
      SyncLiveness();
      trainers_.OnLoaded(now_ns_, state_, new_cluster_);
      TakeFromTrainers();
      continue;
    }
    Finish(std::move(next.reply));
    running_.reset();
  }
}

void Core::Finish(absl::StatusOr<Reply> reply) {
  if (reply.ok()) {
    if (auto* registered = std::get_if<v1::RegisterServerReply>(&*reply)) {
      registered->set_lease_ttl_ms(options_.lease_ttl_ms);
      registered->set_heartbeat_interval_ms(options_.heartbeat_interval_ms);
      // The lease counts from the answer: handing over many shards takes a while.
      auto it = liveness_.find(registered->server());
      if (it != liveness_.end()) it->second.deadline_ns = now_ns_ + LeaseNs();
    }
  }
  if (running_->caller != 0) ready_.replies.push_back({running_->caller, std::move(reply)});
}

void Core::FailAll(const absl::Status& why) {
  for (const Pending& pending : queue_) {
    if (pending.caller != 0) ready_.replies.push_back({pending.caller, why});
  }
  queue_.clear();
  trainers_.FailAll(why);
  TakeFromTrainers();
  for (auto& [server, l] : liveness_) l.marking_down = false;  // queued again by a later tick
}

void Core::Stop(Phase phase, absl::Status why) {
  phase_ = phase;
  trouble_ = std::move(why);
  if (running_.has_value() && running_->caller != 0) {
    ready_.replies.push_back({running_->caller, trouble_});
  }
  running_.reset();
  FailAll(trouble_);
}

void Core::SyncLiveness() {
  for (auto it = liveness_.begin(); it != liveness_.end();) {
    auto server = state_.servers().find(it->first);
    const bool live = server != state_.servers().end() && server->second.live();
    it = live ? std::next(it) : liveness_.erase(it);
  }
  for (const auto& [id, info] : state_.servers()) {
    if (!info.live()) continue;
    Liveness& l = liveness_[id];
    if (l.incarnation == info.incarnation()) continue;
    l = Liveness();
    l.incarnation = info.incarnation();
    l.deadline_ns = now_ns_ + LeaseNs();
    l.load = info.load();
  }
}

void Core::EndLeases() {
  bool ended = false;
  for (auto& [server, l] : liveness_) {
    if (l.marking_down || l.deadline_ns > now_ns_) continue;
    l.marking_down = true;
    Pending pending;
    pending.operation = MakeMarkDown(server, l.incarnation);
    queue_.push_back(std::move(pending));
    ended = true;
  }
  if (ended) Advance();
}

bool Core::LeaseHeld(ServerId server) const {
  auto it = liveness_.find(server);
  return it != liveness_.end() && !it->second.marking_down;
}

bool Core::Placeable(ServerId server) const {
  return LeaseHeld(server) && !liveness_.at(server).draining;
}

v1::ClusterMap Core::Map(uint64_t revision_known) const {
  v1::ClusterMap map = BuildMap(state_, revision_known);
  for (v1::ServerInfo& info : *map.mutable_servers()) {
    auto it = liveness_.find(info.server());
    if (it != liveness_.end()) *info.mutable_load() = it->second.load;
  }
  return map;
}

}  // namespace hotbed
