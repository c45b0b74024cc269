#include "client/trainers/trainer_member.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "common/threads/await_for.h"

namespace hotbed {
namespace {

constexpr uint32_t kTrainWaitMsMax = 2000;        // that one request waits; then it is sent again
constexpr int64_t kTrainReplyNs = 3'000'000'000;  // that a reply may take in addition to the wait
constexpr int64_t kAskAgainNs = 50'000'000;
constexpr int64_t kLeaveNsMax = 1'000'000'000;  // when the client ends
constexpr int64_t kSlackNs = 2'000'000;         // requests state waits in milliseconds
constexpr int64_t kRenewNsMax = 2'000'000'000;  // for one renewal
constexpr int64_t kRenewSoonNs = 100'000'000;   // after the members changed; then twice as long

bool MayAskAgain(const absl::Status& status) {
  return absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status) ||
         absl::IsResourceExhausted(status);
}

}  // namespace

absl::Status TrainerMember::Member() const {
  const std::string& group = options_->trainer_group;
  if (group.empty()) {
    return absl::FailedPreconditionError(
        "this client is in no group of trainers: set ClientOptions::trainer_group");
  }
  if (!lost_.ok()) return lost_;
  if (joined_) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("this client has not joined its group of trainers, ", group,
                   ": call Client::JoinTrainers first"));
}

v1::TrainRequest TrainerMember::Request(v1::TrainRequest::Kind kind) const {
  v1::TrainRequest request;
  request.set_kind(kind);
  request.set_group(options_->trainer_group);
  request.set_name(session_->name());
  request.set_session(identity_.session);
  request.set_incarnation(identity_.incarnation);
  request.set_ended_step(ended_);
  for (const TableId table : pushed_) request.add_tables(table);
  request.set_delivered_step(delivered_);
  request.set_lease_ms(static_cast<uint32_t>(absl::ToInt64Milliseconds(options_->trainer_lease)));
  return request;
}

absl::StatusOr<v1::TrainReply> TrainerMember::Ask(v1::TrainRequest request, int64_t deadline_ns) {
  while (true) {
    const int64_t left_ns = deadline_ns - clock_->NowNs();
    if (left_ns <= 0) return absl::DeadlineExceededError("the deadline passed");
    const uint32_t left_ms = static_cast<uint32_t>(std::min<int64_t>(left_ns / 1'000'000, 1 << 30));
    request.set_wait_ms(std::min(left_ms, kTrainWaitMsMax));
    const int64_t timeout_ns =
        std::min(left_ns, request.wait_ms() * int64_t{1'000'000} + kTrainReplyNs);
    absl::StatusOr<v1::TrainReply> reply = control_->Train(request, absl::Nanoseconds(timeout_ns));
    if (reply.ok() || !MayAskAgain(reply.status())) return reply;
    const int64_t now_ns = clock_->NowNs();
    if (now_ns >= deadline_ns) return reply.status();
    clock_->SleepNs(std::min(kAskAgainNs, deadline_ns - now_ns));
  }
}

absl::Status TrainerMember::NoteReply(const v1::TrainReply& reply) {
  absl::MutexLock lock(&mu_);
  ended_min_ = std::max(ended_min_, reply.ended_min());
  members_ = reply.members();
  if (reply.hold_step() != 0) hold_step_ = reply.hold_step();
  group_commits_ |= reply.commit().tables_size() > 0;
  if (reply.lease_ms() != 0) lease_ns_ = int64_t{reply.lease_ms()} * 1'000'000;
  if (!reply.member() && joined_ && lost_.ok()) {
    lost_ = absl::AbortedError(absl::StrCat(
        "trainer ", session_->name(), " was given up by its group, ", options_->trainer_group,
        ": it was not heard of for its lease; what it pushed since step ", ended_,
        " is dropped; call Client::JoinTrainers again"));
  }
  return lost_;
}

// --- joining and leaving

absl::StatusOr<uint64_t> TrainerMember::Join(int64_t deadline_ns) {
  absl::MutexLock step_lock(&step_mu_);
  StopRenewing();
  if (options_->trainer_group.empty()) {
    absl::MutexLock lock(&mu_);
    return Member();
  }
  HOTBED_ASSIGN_OR_RETURN(const SessionIdentity identity, session_->Open(deadline_ns));
  v1::TrainRequest request;
  {
    absl::MutexLock lock(&mu_);
    identity_ = identity;
    const bool anew = !joined_ || !lost_.ok();
    if (anew) ended_ = open_step_ = delivered_ = 0;
    joined_ = false;
    begun_ = 0;
    lost_ = absl::OkStatus();
    request = Request(v1::TrainRequest::JOIN);
  }
  HOTBED_ASSIGN_OR_RETURN(const v1::TrainReply reply, Ask(std::move(request), deadline_ns));
  if (!reply.member()) {
    return absl::UnavailableError("the group did not let this trainer in; join again");
  }
  {
    absl::MutexLock lock(&mu_);
    joined_ = renewing_ = true;
    ended_ = reply.ended_step();
    members_ = reply.members();
    hold_step_ = reply.hold_step();
    lease_ns_ = int64_t{reply.lease_ms()} * 1'000'000;
    group_commits_ = reply.commit().tables_size() > 0;
  }
  renewer_ = std::thread([this] { RenewLoop(); });
  // The trainer that was to deliver the last commit may have died before it did.
  HOTBED_RETURN_IF_ERROR(Deliver(reply.commit(), deadline_ns));
  return reply.ended_step() + 1;
}

absl::Status TrainerMember::Leave(int64_t deadline_ns) {
  absl::MutexLock step_lock(&step_mu_);
  StopRenewing();
  v1::TrainRequest request;
  {
    absl::MutexLock lock(&mu_);
    if (!std::exchange(joined_, false) || !lost_.ok()) return absl::OkStatus();
    request = Request(v1::TrainRequest::LEAVE);
    open_step_ = 0;
  }
  return Ask(std::move(request), deadline_ns).status();
}

void TrainerMember::Stop() { (void)Leave(clock_->NowNs() + kLeaveNsMax); }

void TrainerMember::StopRenewing() {
  {
    absl::MutexLock lock(&mu_);
    renewing_ = false;
  }
  if (renewer_.joinable()) renewer_.join();
}

void TrainerMember::RenewLoop() {
  int64_t wait_ns = kRenewSoonNs;
  uint32_t members_before = 0;
  while (true) {
    v1::TrainRequest request;
    int64_t timeout_ns = 0;
    {
      absl::MutexLock lock(&mu_);
      const auto stopped = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) { return !renewing_; };
      if (std::exchange(members_before, members_) != members_) wait_ns = kRenewSoonNs;
      wait_ns = std::min(wait_ns, lease_ns_ / 3);
      if (AwaitFor(&mu_, absl::Condition(&stopped), absl::Nanoseconds(wait_ns))) return;
      if (!lost_.ok()) return;
      wait_ns *= 2;
      request = Request(v1::TrainRequest::RENEW);
      timeout_ns = std::min(lease_ns_, kRenewNsMax);
    }
    const absl::StatusOr<v1::TrainReply> reply =
        control_->Train(request, absl::Nanoseconds(timeout_ns));
    if (reply.ok()) (void)NoteReply(*reply);
  }
}

// --- pushes

absl::Status TrainerMember::AdmitPush(uint64_t step, absl::Span<const PushFeature> features,
                                      const PushOptions& options, int64_t deadline_ns) {
  if (options.assign) return absl::OkStatus();
  HOTBED_RETURN_IF_ERROR(AdmitSteps(step, features, deadline_ns));
  return AwaitHold(step, deadline_ns);
}

absl::Status TrainerMember::AdmitSteps(uint64_t step, absl::Span<const PushFeature> features,
                                       int64_t deadline_ns) {
  bool synchronous = false;
  std::optional<uint32_t> staleness;
  for (const PushFeature& feature : features) {
    if (feature.table == nullptr) continue;
    const TableOptions& table = feature.table->options();
    if (table.consistency == Consistency::kAsync) continue;
    {
      absl::MutexLock lock(&mu_);
      const absl::Status member = Member();
      if (!member.ok()) {
        return absl::Status(
            member.code(),
            absl::StrCat("table ", table.name, " is ",
                         IsSynchronous(table) ? "synchronous" : "of bounded staleness", "; ",
                         member.message()));
      }
    }
    if (IsSynchronous(table)) {
      synchronous = true;
    } else {
      staleness = std::min(staleness.value_or(table.staleness), table.staleness);
    }
  }
  if (synchronous) HOTBED_RETURN_IF_ERROR(AdmitSynchronous(step, features));
  if (!staleness.has_value() || step < uint64_t{*staleness} + 1) return absl::OkStatus();
  return AwaitEnded(step - 1 - *staleness, deadline_ns);
}

absl::Status TrainerMember::AdmitSynchronous(uint64_t step,
                                             absl::Span<const PushFeature> features) {
  absl::MutexLock lock(&mu_);
  if (step <= ended_) {
    return absl::InvalidArgumentError(
        absl::StrCat("step ", step, " has ended; the next one of this trainer is ", ended_ + 1));
  }
  if (open_step_ != 0 && step != open_step_) {
    return absl::FailedPreconditionError(
        absl::StrCat("step ", open_step_, " of the synchronous tables has not ended: call ",
                     "Client::EndStep(", open_step_, ") before step ", step));
  }
  open_step_ = step;
  for (const PushFeature& feature : features) {
    if (feature.table == nullptr || !IsSynchronous(feature.table->options())) continue;
    pushed_.insert(static_cast<const TableHandle*>(feature.table)->id());
  }
  return absl::OkStatus();
}

// --- steps

absl::Status TrainerMember::Begin(uint64_t step, int64_t deadline_ns) {
  std::optional<uint64_t> staleness;
  for (const TableHandle* table : tables_()) {
    const TableOptions& options = table->options();
    if (options.consistency == Consistency::kAsync) continue;
    const uint64_t steps = IsSynchronous(options) ? 0 : options.staleness;
    staleness = std::min(staleness.value_or(steps), steps);
  }
  {
    absl::MutexLock lock(&mu_);
    HOTBED_RETURN_IF_ERROR(Member());
  }
  if (staleness.has_value() && step >= *staleness + 1) {
    HOTBED_RETURN_IF_ERROR(AwaitEnded(step - 1 - *staleness, deadline_ns));
  }
  HOTBED_RETURN_IF_ERROR(AwaitHold(step, deadline_ns));
  absl::MutexLock lock(&mu_);
  begun_ = step;
  return absl::OkStatus();
}

TrainerSteps TrainerMember::Steps() const {
  absl::MutexLock lock(&mu_);
  return {begun_, ended_min_, delivered_};
}

uint32_t TrainerMember::Members() const {
  absl::MutexLock lock(&mu_);
  return joined_ && lost_.ok() ? members_ : 0;
}

absl::Status TrainerMember::AwaitEnded(uint64_t step, int64_t deadline_ns) {
  while (true) {
    v1::TrainRequest request;
    {
      absl::MutexLock lock(&mu_);
      HOTBED_RETURN_IF_ERROR(Member());
      if (ended_min_ >= step) return absl::OkStatus();
      if (ended_ < step) {
        return absl::FailedPreconditionError(absl::StrCat("this trainer has not ended step ", step,
                                                          " itself: call Client::EndStep(", step,
                                                          ") first"));
      }
      request = Request(v1::TrainRequest::RENEW);
    }
    request.set_wait_ended(step);
    HOTBED_ASSIGN_OR_RETURN(const v1::TrainReply reply, Ask(std::move(request), deadline_ns));
    HOTBED_RETURN_IF_ERROR(NoteReply(reply));
    if (reply.ended_min() < step && clock_->NowNs() + kSlackNs >= deadline_ns) {
      return absl::DeadlineExceededError(absl::StrCat(
          "not all trainers of group ", options_->trainer_group, " have ended step ", step,
          "; the slowest, ", reply.slowest(), ", has ended step ", reply.ended_min()));
    }
  }
}

absl::Status TrainerMember::AwaitHold(uint64_t step, int64_t deadline_ns) {
  while (true) {
    v1::TrainRequest request;
    {
      absl::MutexLock lock(&mu_);
      if (!joined_ || hold_step_ == 0 || step <= hold_step_) return absl::OkStatus();
      HOTBED_RETURN_IF_ERROR(Member());
      request = Request(v1::TrainRequest::RENEW);
    }
    request.set_wait_step(step);
    HOTBED_ASSIGN_OR_RETURN(const v1::TrainReply reply, Ask(std::move(request), deadline_ns));
    HOTBED_RETURN_IF_ERROR(NoteReply(reply));
    const bool held = reply.hold_step() != 0 && step > reply.hold_step();
    {
      absl::MutexLock lock(&mu_);
      if (!held) hold_step_ = reply.hold_step();
    }
    if (held && clock_->NowNs() + kSlackNs >= deadline_ns) {
      return absl::DeadlineExceededError(absl::StrCat("group ", options_->trainer_group,
                                                      " is held at step ", reply.hold_step(),
                                                      " for a checkpoint; try again"));
    }
  }
}

bool TrainerMember::WaitsForCommits() const {
  {
    absl::MutexLock lock(&mu_);
    if (group_commits_ || !pushed_.empty()) return true;
  }
  const std::vector<const TableHandle*> tables = tables_();
  return std::any_of(tables.begin(), tables.end(),
                     [](const TableHandle* table) { return IsSynchronous(table->options()); });
}

absl::Status TrainerMember::End(uint64_t step, int64_t deadline_ns) {
  absl::MutexLock step_lock(&step_mu_);
  v1::TrainRequest request;
  {
    absl::MutexLock lock(&mu_);
    HOTBED_RETURN_IF_ERROR(Member());
    if (open_step_ != 0 && step < open_step_) {
      return absl::InvalidArgumentError(absl::StrCat("step ", step, " ends, and pushes of step ",
                                                     open_step_, " were made already"));
    }
    if (step <= delivered_ || (step <= ended_ && open_step_ == 0)) return absl::OkStatus();
  }
  HOTBED_RETURN_IF_ERROR(pushes_->AwaitStep(step, deadline_ns));
  {
    absl::MutexLock lock(&mu_);
    ended_ = std::max(ended_, step);
    open_step_ = step;  // until the whole of End succeeds: a failed step is ended again
    request = Request(v1::TrainRequest::RENEW);
  }
  if (!WaitsForCommits()) {
    HOTBED_ASSIGN_OR_RETURN(const v1::TrainReply reply, Ask(std::move(request), deadline_ns));
    HOTBED_RETURN_IF_ERROR(NoteReply(reply));
    if (!WaitsForCommits()) {
      absl::MutexLock lock(&mu_);
      open_step_ = 0;
      return absl::OkStatus();
    }
  }
  return AwaitCommit(step, deadline_ns);
}

// Waits for the coordinator's decision, then delivers it to all shards.
absl::Status TrainerMember::AwaitCommit(uint64_t step, int64_t deadline_ns) {
  while (true) {
    v1::TrainRequest request;
    SessionIdentity identity;
    {
      absl::MutexLock lock(&mu_);
      HOTBED_RETURN_IF_ERROR(Member());
      request = Request(v1::TrainRequest::RENEW);
      identity = identity_;
    }
    request.set_wait_commit(step);
    HOTBED_ASSIGN_OR_RETURN(const v1::TrainReply reply, Ask(std::move(request), deadline_ns));
    HOTBED_RETURN_IF_ERROR(NoteReply(reply));
    const v1::GroupCommit& commit = reply.commit();
    // It may be of an earlier step, whose trainer died before it delivered the commit.
    HOTBED_RETURN_IF_ERROR(Deliver(commit, deadline_ns));
    if (commit.step() >= step) {
      const auto& sessions = commit.sessions();
      const bool named =
          std::find(sessions.begin(), sessions.end(), identity.session) != sessions.end();
      absl::MutexLock lock(&mu_);
      open_step_ = 0;
      if (named && commit.step() == step) return absl::OkStatus();
      lost_ = absl::AbortedError(
          absl::StrCat("step ", step, " of group ", options_->trainer_group,
                       " was committed without this trainer, ", session_->name(),
                       "; its pushes of the step are dropped; call Client::JoinTrainers again"));
      return lost_;
    }
    if (clock_->NowNs() + kSlackNs < deadline_ns) continue;
    return absl::DeadlineExceededError(absl::StrCat(
        "step ", step, " of group ", options_->trainer_group, " is not committed; the slowest of ",
        reply.members(), " trainers, ", reply.slowest(), ", has ended step ", reply.ended_min(),
        "; end the step again"));
  }
}

absl::Status TrainerMember::Deliver(const v1::GroupCommit& commit, int64_t deadline_ns) {
  SessionIdentity identity;
  {
    absl::MutexLock lock(&mu_);
    if (commit.step() <= delivered_) return absl::OkStatus();
    identity = identity_;
  }
  HOTBED_RETURN_IF_ERROR(delivery_->Deliver(commit, identity, deadline_ns));
  absl::MutexLock lock(&mu_);
  delivered_ = std::max(delivered_, commit.step());
  return absl::OkStatus();
}

}  // namespace hotbed
