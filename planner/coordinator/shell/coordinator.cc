#include "planner/coordinator/shell/coordinator.h"

#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "common/check.h"
#include "common/log.h"
#include "common/metrics.h"
#include "common/status_macros.h"
#include "common/threads/await_for.h"
#include "planner/coordinator/state/keys.h"
#include "planner/coordinator/state/metadata_backup.h"
#include "planner/coordinator/state/strangers.h"

namespace hotbed {
namespace {

constexpr char kLedBefore[] = "this coordinator leads no more; another one may";
constexpr absl::Duration kTick = absl::Milliseconds(50);

LatencyHistogram& CommitSeconds() {
  static LatencyHistogram histogram("hotbed_coordinator_commit_seconds",
                                    "Durable transactions in the metadata store.");
  return histogram;
}

Counter& CommitFailures() {
  static Counter counter("hotbed_coordinator_commit_failures_total",
                         "Transactions whose outcome the metadata store did not tell.");
  return counter;
}

LatencyHistogram& FailOverSeconds() {
  static LatencyHistogram histogram(
      "hotbed_coordinator_fail_over_seconds",
      "Of each shard, from its server's loss being noticed until another serves it.");
  return histogram;
}

void LogEvents(const std::vector<Op>& ops) {
  for (const Op& op : ops) {
    v1::ClusterEvent event;
    if (op.kind != Op::Kind::kPut || !absl::StartsWith(op.key, keys::kEvents)) continue;
    if (event.ParseFromString(op.value)) HOTBED_LOG(Info) << event.kind() << ": " << event.text();
  }
}

// Limits of a status page.
constexpr uint32_t kEventsShown = 50;

}  // namespace

bool LeadsNoMore(const absl::Status& status) { return status.message() == kLedBefore; }

Coordinator::Coordinator(CoreOptions options, MetaStore* store, const Clock* clock)
    : store_(store), clock_(clock), core_(std::move(options)) {
  CommitSeconds();  // so that a scrape shows them from the start
  CommitFailures();
  FailOverSeconds();
}

Coordinator::~Coordinator() { Stop(); }

absl::Status Coordinator::Start() {
  probe_ =
      std::make_unique<PortProbe>(clock_, [this](const ProbeRequest& request, ProbeAnswer answer) {
        StepAndGive(ProbedEvent{request.server, request.incarnation, answer});
      });
  thread_ = std::thread([this] { Run(); });
  absl::MutexLock lock(&mu_);
  const auto settled = [this]() ABSL_SHARED_LOCKS_REQUIRED(mu_) {
    return core_.serving() || !core_.trouble().ok();
  };
  mu_.Await(absl::Condition(&settled));
  return core_.serving() ? absl::OkStatus() : core_.trouble();
}

void Coordinator::Stop() {
  absl::flat_hash_map<CallerToken, OnReply> waiting;
  {
    absl::MutexLock lock(&mu_);
    stopping_ = true;
  }
  if (thread_.joinable()) thread_.join();
  probe_.reset();
  {
    absl::MutexLock lock(&mu_);
    waiting.swap(callers_);
  }
  for (auto& [caller, on_reply] : waiting) {
    on_reply(absl::UnavailableError("the coordinator stops; the change may have been made"));
  }
}

void Coordinator::Submit(Request request, OnReply on_reply) {
  Answers answers;
  {
    absl::MutexLock lock(&mu_);
    if (stopping_) {
      answers.emplace_back(std::move(on_reply), absl::UnavailableError("the coordinator stops"));
    } else {
      const CallerToken caller = next_caller_++;
      callers_[caller] = std::move(on_reply);
      StepLocked(RequestEvent{caller, std::move(request)});
      answers = TakeReady();
    }
  }
  Give(std::move(answers));
}

void Coordinator::StepLocked(Event event) {
  core_.SetUnixMs(clock_->WallUs() / 1000);
  core_.Step(clock_->NowNs(), std::move(event));
}

void Coordinator::StepAndGive(Event event) {
  Answers answers;
  {
    absl::MutexLock lock(&mu_);
    if (stopping_) return;
    StepLocked(std::move(event));
    answers = TakeReady();
  }
  Give(std::move(answers));
}

void Coordinator::StreamBroken(ServerId server, Incarnation incarnation) {
  StepAndGive(StreamBrokenEvent{server, incarnation});
}

Coordinator::Answers Coordinator::TakeReady() {
  Ready ready = core_.TakeReady();
  for (ProbeRequest& probe : ready.probes) probe_->Ask(std::move(probe));
  for (const int64_t ns : ready.fail_over_ns) FailOverSeconds().RecordNs(ns);
  if (ready.load || ready.commit.has_value()) {
    HOTBED_CHECK(!work_.has_value());
    work_ = StoreWork{ready.load, ready.head, std::move(ready.commit)};
  }
  Answers answers;
  for (ReplyAction& action : ready.replies) {
    auto it = callers_.find(action.caller);
    if (it == callers_.end()) continue;
    answers.emplace_back(std::move(it->second), Checked(std::move(action.reply)));
    callers_.erase(it);
  }
  return answers;
}

absl::StatusOr<Reply> Coordinator::Checked(absl::StatusOr<Reply> reply) const {
  if (leads_()) return reply;
  // These rest on what was read under the leadership that is over. Other answers come out of a
  // transaction, which compared the leader's record.
  const bool rests = !reply.ok() || std::holds_alternative<v1::HeartbeatReply>(*reply) ||
                     std::holds_alternative<v1::TrainReply>(*reply) ||
                     std::holds_alternative<v1::ServingOrders>(*reply) ||
                     std::holds_alternative<v1::HoldStepReply>(*reply);
  if (!rests) return reply;
  return absl::UnavailableError(kLedBefore);
}

void Coordinator::Give(Answers&& answers) {
  for (auto& [on_reply, reply] : answers) on_reply(std::move(reply));
}

Event Coordinator::Carry(StoreWork work) {
  if (work.load && work.head) return LoadedEvent{ReadKeys(keys::kHeadKeys, store_)};
  if (work.load) {
    return LoadedEvent{store_->Range(keys::kRoot, PrefixLimit(keys::kRoot))};
  }
  const int64_t begin = clock_->NowNs();
  absl::StatusOr<TxnResult> result = store_->Txn(work.commit->compares(), work.commit->ops());
  CommitSeconds().RecordNs(clock_->NowNs() - begin);
  if (!result.ok()) CommitFailures().Add(1);
  if (result.ok() && result->succeeded) LogEvents(work.commit->ops());
  return CommittedEvent{std::move(result)};
}

void Coordinator::Run() {
  NewsKnown told;
  while (true) {
    StoreWork work;
    Answers answers;
    NewsKnown news;
    bool stops = false;
    {
      absl::MutexLock lock(&mu_);
      core_.SetUnixMs(clock_->WallUs() / 1000);
      core_.Tick(clock_->NowNs());
      answers = TakeReady();
      const auto wake = [this]() ABSL_SHARED_LOCKS_REQUIRED(mu_) {
        return stopping_ || work_.has_value();
      };
      if (answers.empty()) AwaitFor(&mu_, absl::Condition(&wake), kTick);
      stops = stopping_;
      if (!stops && work_.has_value()) work = *std::exchange(work_, std::nullopt);
    }
    if (work.load || work.commit.has_value()) {
      Event event = Carry(std::move(work));
      absl::MutexLock lock(&mu_);
      StepLocked(std::move(event));
      for (auto& answer : TakeReady()) answers.push_back(std::move(answer));
      if (core_.serving()) news = core_.NewsNow();
    }
    Give(std::move(answers));
    if (stops) return;
    if (news.plan_revision != 0 && !(news == told)) {
      const bool plan_changed = news.plan_revision != told.plan_revision;
      told = news;
      if (news_listener_) news_listener_(plan_changed);
    }
    if (tick_listener_) tick_listener_();
  }
}

absl::Status Coordinator::Unready() const {
  if (!leads_()) return absl::UnavailableError(kLedBefore);
  if (core_.serving()) return absl::OkStatus();
  return absl::UnavailableError(
      absl::StrCat("the coordinator does not serve now: ",
                   core_.trouble().ok() ? "it is starting" : core_.trouble().ToString()));
}

void Coordinator::SetAdminAddress(std::string address) {
  absl::MutexLock lock(&mu_);
  admin_address_ = std::move(address);
}

absl::StatusOr<v1::ClusterMap> Coordinator::Map(uint64_t revision_known, bool rates) const {
  absl::MutexLock lock(&mu_);
  if (absl::Status unready = Unready(); !unready.ok()) return unready;
  v1::ClusterMap map = core_.Map(revision_known, rates);
  map.set_coordinator_admin_address(admin_address_);
  return map;
}

absl::StatusOr<std::shared_ptr<const v1::ClusterMap>> Coordinator::MapToFollow(
    uint64_t revision_known) const {
  absl::MutexLock lock(&mu_);
  if (absl::Status unready = Unready(); !unready.ok()) return unready;
  if (Strangers::AwaitsRebuild(core_.state())) return nullptr;
  const uint64_t revision = core_.state().plan_revision();
  if (std::exchange(followed_.revision, revision) != revision) followed_.since.clear();
  const auto made = followed_.since.find(revision_known);
  if (made != followed_.since.end()) return made->second;
  std::optional<v1::ClusterMap> map = core_.MapToFollow(revision_known);
  if (!map.has_value()) return nullptr;
  auto shared = std::make_shared<const v1::ClusterMap>(*std::move(map));
  if (followed_.since.size() < kFollowedMax) followed_.since.emplace(revision_known, shared);
  return shared;
}

absl::StatusOr<v1::ListMovesReply> Coordinator::Moves(const v1::ListMovesRequest& request) const {
  absl::MutexLock lock(&mu_);
  if (absl::Status unready = Unready(); !unready.ok()) return unready;
  return core_.Moves(request);
}

absl::StatusOr<v1::ListEventsReply> Coordinator::Events(
    const v1::ListEventsRequest& request) const {
  absl::MutexLock lock(&mu_);
  if (absl::Status unready = Unready(); !unready.ok()) return unready;
  return core_.Events(request);
}

absl::StatusOr<v1::ServingMap> Coordinator::ServingTables() const {
  absl::MutexLock lock(&mu_);
  if (absl::Status unready = Unready(); !unready.ok()) return unready;
  return core_.Serving();
}

absl::StatusOr<v1::ScheduleCheckpointsReply> Coordinator::Schedule() const {
  absl::MutexLock lock(&mu_);
  if (absl::Status unready = Unready(); !unready.ok()) return unready;
  return ShowSchedule(core_.state(), clock_->WallUs() / 1000);
}

absl::StatusOr<v1::BackupMetadataReply> Coordinator::Backup() const {
  v1::BackupMetadataReply reply;
  {
    absl::MutexLock lock(&mu_);
    if (absl::Status unready = Unready(); !unready.ok()) return unready;
    reply.set_cluster_id(core_.state().cluster_id());
    reply.set_plan_revision(core_.state().plan_revision());
  }
  HOTBED_ASSIGN_OR_RETURN(const MetaStore::RangeResult all,
                          store_->Range(keys::kRoot, PrefixLimit(keys::kRoot)));
  reply.set_file(SerializeBackup(all.kvs));
  return reply;
}

std::optional<Coordinator::ServerNews> Coordinator::NewsFor(ServerId server,
                                                            Incarnation incarnation,
                                                            const NewsKnown& known) const {
  if (!leads_()) return std::nullopt;
  absl::MutexLock lock(&mu_);
  std::optional<v1::HeartbeatReply> reply = core_.News(server, incarnation, known);
  if (!reply.has_value()) return std::nullopt;
  return ServerNews{*std::move(reply), core_.NewsNow()};
}

absl::StatusOr<ClusterView> Coordinator::View() const {
  absl::MutexLock lock(&mu_);
  if (absl::Status unready = Unready(); !unready.ok()) return unready;
  return core_.WeighedView();
}

bool Coordinator::Serving() const {
  absl::MutexLock lock(&mu_);
  return core_.serving();
}

uint64_t Coordinator::plan_revision() const {
  absl::MutexLock lock(&mu_);
  return core_.state().plan_revision();
}

v1::ListTrainersReply Coordinator::Trainers() const {
  absl::MutexLock lock(&mu_);
  return core_.Trainers();
}

CoordinatorStatus Coordinator::Status() const {
  absl::MutexLock lock(&mu_);
  CoordinatorStatus status;
  status.serving = core_.serving();
  if (!core_.trouble().ok()) status.trouble = core_.trouble().ToString();
  status.map = core_.Map(0);
  status.trainers = core_.Trainers();
  status.sessions = core_.state().sessions().size();
  status.pending = core_.pending();
  status.moves = core_.Moves({});
  v1::ListEventsRequest last;
  last.set_limit(kEventsShown);
  status.events = core_.Events(last);
  status.done = core_.membership().counts();
  status.shards_waiting = core_.membership().waiting();
  return status;
}

absl::Status Coordinator::Fatal() const {
  absl::MutexLock lock(&mu_);
  const bool ended =
      core_.phase() == Core::Phase::kOvertaken || core_.phase() == Core::Phase::kFailed;
  return ended ? core_.trouble() : absl::OkStatus();
}

}  // namespace hotbed
