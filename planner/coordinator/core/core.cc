#include "planner/coordinator/core/core.h"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "planner/coordinator/state/keys.h"

namespace hotbed {
namespace {

constexpr int kAttemptsMax = 20;                 // of an operation that keeps conflicting
constexpr int64_t kLoadRetryNs = 100 * 1000000;  // between two reads of a store that fails

RebalanceOptions RebalanceOf(const CoreOptions& options) {
  RebalanceOptions rebalance = options.rebalance;
  rebalance.splits = rebalance.splits && options.split_above_rows_per_s > 0;
  return rebalance;
}

absl::Status OutcomeUnknown(const absl::Status& store) {
  return absl::UnavailableError(absl::StrCat(
      "the metadata store failed, the change may or may not have been made: ", store.ToString()));
}

}  // namespace

Core::Core(CoreOptions options)
    : options_(std::move(options)),
      leases_({options_.lease_ttl_ms * 1000000, options_.refill_wait_ms * 1000000}),
      membership_(options_.membership, &leases_),
      rebalance_(RebalanceOf(options_)),
      busy_shards_(options_.split_above_rows_per_s),
      serving_({.alive_ns = options_.lease_ttl_ms * 1000000,
                .away_ns = options_.refill_wait_ms * 1000000,
                .demand = options_.copy_demand,
                .join_after_ns = options_.parts_join_after_ms * 1'000'000}),
      trainers_(options_.trainers) {
  AskToLoad();
}

Ready Core::TakeReady() {
  for (ProbeRequest& probe : leases_.TakeProbes()) ready_.probes.push_back(std::move(probe));
  for (const int64_t ns : membership_.TakeFailOverNs()) ready_.fail_over_ns.push_back(ns);
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
  } else if (auto* committed = std::get_if<CommittedEvent>(&event)) {
    OnCommitted(std::move(*committed));
  } else if (auto* broken = std::get_if<StreamBrokenEvent>(&event)) {
    if (serving()) leases_.OnStreamBroken(broken->server, broken->incarnation);
  } else {
    const ProbedEvent& probed = std::get<ProbedEvent>(event);
    leases_.OnProbed(now_ns_, probed.server, probed.incarnation, probed.answer);
    if (serving()) OnEndedLeases();
  }
  CheckInvariants();
}

void Core::CheckInvariants() const {
  // The store does one thing at a time, and the state is not shown while it is being read.
  HOTBED_CHECK(!load_in_flight_ || !commit_in_flight_);
  HOTBED_CHECK(!load_in_flight_ || phase_ == Phase::kLoading);
  HOTBED_CHECK(!commit_in_flight_ || committing_lane_->running.has_value());
  // Only a leader serves the state, and no urgent operation runs before bootstrap is done.
  HOTBED_CHECK(!serving() || leading_);
  HOTBED_CHECK(bootstrapped_ || !urgent_.running.has_value());
}

void Core::Tick(int64_t now_ns) {
  now_ns_ = std::max(now_ns_, now_ns);
  // A process that was held up for so long may have unread heartbeats.
  const int64_t half_ttl_ns = options_.lease_ttl_ms * 1000000 / 2;
  const bool held_up = last_tick_ns_ != 0 && now_ns_ - last_tick_ns_ > half_ttl_ns;
  if (held_up) {
    leases_.RenewAll(now_ns_);
    serving_.Begin(now_ns_);
  }
  last_tick_ns_ = now_ns_;
  if (phase_ == Phase::kLoading && !load_in_flight_ && now_ns_ >= load_again_ns_) AskToLoad();
  trainers_.Tick(now_ns_, held_up || !serving());
  TakeFromTrainers();
  if (!serving()) return;
  leases_.Tick(now_ns_);
  membership_.Tick(now_ns_, state_);
  for (v1::ShardCut& cut : cuts_.Tick(now_ns_, state_)) {
    Pending pending;
    pending.made = MakeCutGivenUp(std::move(cut), Context());
    normal_.queue.push_back(std::move(pending));
  }
  OnEndedLeases();
  TellSweeps();
  Rebalance();
  SplitShards();
  PlaceServing();
  Advance();
}

void Core::TellSweeps() {
  std::vector<SweptTables::Swept> swept = swept_.Take(now_ns_);
  if (swept.empty()) return;
  Pending pending;
  pending.made = MakeSweptEvents(std::move(swept), unix_ms_);
  normal_.queue.push_back(std::move(pending));
}

void Core::OnEndedLeases() {
  for (Leases::Ended& ended : leases_.TakeEnded()) {
    Pending pending;
    pending.made = MakeMarkDown(ended.server, ended.incarnation, std::move(ended.why), unix_ms_);
    urgent_.queue.push_back(std::move(pending));
    membership_.OnServerChanged(state_, ended.server);
  }
  Advance();
}

absl::Status Core::Unready() const {
  switch (phase_) {
    case Phase::kServing:
      return absl::OkStatus();
    case Phase::kLoading:
      // Requests wait for the first read, but not for a store that failed.
      if (trouble_.ok()) return absl::OkStatus();
      return absl::UnavailableError(
          absl::StrCat("the metadata store cannot be read: ", trouble_.ToString()));
    case Phase::kOvertaken:
    case Phase::kFailed:
      break;
  }
  return trouble_;
}

void Core::AskToLoad() {
  phase_ = Phase::kLoading;
  load_in_flight_ = true;
  ready_.load = true;
  ready_.head = !leading_ && !leader_written_;
}

void Core::OnLoaded(LoadedEvent event) {
  HOTBED_CHECK(load_in_flight_);
  load_in_flight_ = false;
  absl::Status s = event.result.status();
  if (!s.ok()) {
    trouble_ = s;
    load_again_ns_ = now_ns_ + kLoadRetryNs;
    FailAll(Unready());
    return;
  }
  s = state_.Reset(event.result->kvs);
  if (!s.ok()) return Stop(Phase::kFailed, s);
  const bool written = std::exchange(leader_written_, false);
  if ((leading_ || written) && state_.leader() != options_.token) {
    return Stop(Phase::kOvertaken,
                absl::UnavailableError(absl::StrCat(
                    "this coordinator was overtaken by another one (", state_.leader(), ")")));
  }
  trouble_ = absl::OkStatus();
  phase_ = Phase::kServing;
  if (written) {
    Bootstrapped();
    return Advance();
  }
  bootstrapped_ = false;
  new_cluster_ = state_.format().empty();
  Pending bootstrap;
  bootstrap.made = MakeBootstrap(options_.token, options_.new_cluster_id);
  bootstrap.bootstrap = true;
  for (Lane* lane : {&urgent_, &normal_}) {
    if (!lane->running.has_value()) continue;
    lane->running->operation = nullptr;
    lane->queue.push_front(*std::exchange(lane->running, std::nullopt));
  }
  normal_.queue.push_front(std::move(bootstrap));
  Advance();
}

void Core::OnCommitted(CommittedEvent event) {
  HOTBED_CHECK(commit_in_flight_);
  commit_in_flight_ = false;
  std::optional<Pending>& running = committing_lane_->running;
  if (!event.result.ok()) {
    // The caller must not be told that it failed: it may have been written, unless it is refused
    // as it stands.
    const absl::Status& s = event.result.status();
    if (absl::IsInvalidArgument(s) && running->caller != 0) {
      // Nothing was written, and the store is well: the others need not hear of it.
      Finish(committing_lane_, s);
      running.reset();
      committing_.clear();
      return Advance();
    }
    if (!running->bootstrap) Finish(committing_lane_, OutcomeUnknown(s));
    running.reset();
    trouble_ = event.result.status();
    phase_ = Phase::kLoading;
    load_again_ns_ = now_ns_ + kLoadRetryNs;
    FailAll(Unready());
    return;
  }
  if (!event.result->succeeded) {
    if (++running->attempts > kAttemptsMax) {
      Finish(committing_lane_, absl::AbortedError(absl::StrCat(
                                   "someone else keeps changing the same metadata; gave up after ",
                                   kAttemptsMax, " attempts")));
      running.reset();
    } else if (running->bootstrap) {
      running.reset();
    }
    AskToLoad();  // OnLoaded restarts the running operations
    return;
  }
  state_.Apply(committing_, event.result->revision);
  leases_.Sync(now_ns_, state_);
  if (bootstrapped_) {
    membership_.OnCommitted(now_ns_, state_, committing_);
    trainers_.OnCommitted(now_ns_, state_);
  }
  committing_.clear();
  TakeFromTrainers();
  Advance();
}

Core::Lane* Core::NextLane(bool* looked) {
  if (!bootstrapped_) {
    if (!normal_.running.has_value()) {
      normal_.running = std::move(normal_.queue.front());  // OnLoaded has put it there
      normal_.queue.pop_front();
    }
    return &normal_;
  }
  if (urgent_.running.has_value()) return &urgent_;
  if (membership_.HasUrgent()) {
    StartMembership(&urgent_, /*urgent=*/true);
    return &urgent_;
  }
  if (!urgent_.queue.empty()) {
    urgent_.running = std::move(urgent_.queue.front());
    urgent_.queue.pop_front();
    return &urgent_;
  }
  if (normal_.running.has_value()) return &normal_;
  if (!state_.Orphans(1).empty()) {
    // Between operations, every shard without a table is a leftover.
    normal_.running = Pending();
    normal_.running->made = MakeCleanup();
  } else if (membership_.HasWork() && !*looked && (moves_turn_ || normal_.queue.empty())) {
    StartMembership(&normal_, /*urgent=*/false);
    moves_turn_ = false;
    *looked = true;
  } else if (!normal_.queue.empty()) {
    normal_.running = std::move(normal_.queue.front());
    normal_.queue.pop_front();
    moves_turn_ = true;
  } else {
    return nullptr;
  }
  return &normal_;
}

void Core::StartMembership(Lane* lane, bool urgent) {
  lane->running = Pending();
  lane->running->made = [this, urgent, done = false](const ClusterState& state) mutable -> Next {
    if (std::exchange(done, true)) return Reply();
    std::optional<Transaction> batch = membership_.NextBatch(state, now_ns_, unix_ms_, urgent);
    if (!batch.has_value()) return Reply();
    return *std::move(batch);
  };
}

void Core::Advance() {
  bool looked = false;
  while (phase_ == Phase::kServing && !commit_in_flight_) {
    Lane* const lane = NextLane(&looked);
    if (lane == nullptr) return;
    Pending& pending = *lane->running;
    if (pending.operation == nullptr) pending.operation = pending.made;
    Next next = pending.operation(state_);
    if (auto* const transaction = std::get_if<Transaction>(&next)) {
      if (leading_) transaction->Require(keys::kLeaderKey);
      committing_ = transaction->ops();
      committing_lane_ = lane;
      ready_.commit = std::move(*transaction);
      commit_in_flight_ = true;
      return;
    }
    auto& reply = std::get<absl::StatusOr<Reply>>(next);
    if (pending.bootstrap) {
      lane->running.reset();
      if (!reply.ok()) return Stop(Phase::kFailed, reply.status());
      // From here on nobody else's transaction is carried out. One that came after the read and
      // before the leader's record is in no state yet: it is read once more.
      leader_written_ = true;
      return AskToLoad();
    }
    Finish(lane, std::move(reply));
    lane->running.reset();
  }
}

void Core::Bootstrapped() {
  leading_ = true;
  bootstrapped_ = true;
  leases_.Sync(now_ns_, state_);
  leases_.RenewAll(now_ns_);  // nobody's heartbeats counted while the store was away
  serving_.Begin(now_ns_);
  remembered_.Begin(now_ns_);
  membership_.OnLoaded(state_);
  cuts_.OnLoaded(now_ns_, unix_ms_, state_);
  trainers_.OnLoaded(now_ns_, state_, new_cluster_);
  TakeFromTrainers();
}

void Core::Finish(Lane* lane, absl::StatusOr<Reply> reply) {
  if (reply.ok()) {
    if (auto* registered = std::get_if<v1::RegisterServerReply>(&*reply)) {
      registered->set_lease_ttl_ms(options_.lease_ttl_ms);
      registered->set_heartbeat_interval_ms(options_.heartbeat_interval_ms);
      // The lease counts from the answer: handing over many shards takes a while.
      leases_.Renew(now_ns_, registered->server());
    }
  }
  const CallerToken caller = lane->running->caller;
  if (caller != 0) ready_.replies.push_back({caller, std::move(reply)});
}

void Core::FailAll(const absl::Status& why) {
  for (Lane* lane : {&urgent_, &normal_}) {
    // An operation that waits for the other lane may have written a part already.
    if (lane->running.has_value()) Finish(lane, OutcomeUnknown(why));
    lane->running.reset();
    for (const Pending& pending : lane->queue) {
      if (pending.caller != 0) ready_.replies.push_back({pending.caller, why});
    }
    lane->queue.clear();
  }
  trainers_.FailAll(why);
  TakeFromTrainers();
  leases_.ForgetTold();
}

void Core::Stop(Phase phase, absl::Status why) {
  phase_ = phase;
  trouble_ = std::move(why);
  for (Lane* lane : {&urgent_, &normal_}) {
    if (lane->running.has_value()) Finish(lane, trouble_);
    lane->running.reset();
  }
  FailAll(trouble_);
}

}  // namespace hotbed
