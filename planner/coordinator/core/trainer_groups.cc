#include "planner/coordinator/core/trainer_groups.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/clock.h"
#include "common/status_macros.h"
#include "common/tables/table_spec.h"

namespace hotbed {
namespace {

constexpr size_t kGroupNameBytesMax = 256;
constexpr uint64_t kStepsAheadMax = uint64_t{1} << 32;

bool IsPlainName(const std::string& name) {
  return !name.empty() && name.size() <= kGroupNameBytesMax &&
         std::all_of(name.begin(), name.end(), [](char c) { return absl::ascii_isgraph(c); });
}

}  // namespace

// --- events

void TrainerGroups::OnLoaded(int64_t now_ns, const ClusterState& state, bool fresh) {
  now_ns_ = now_ns;
  if (!std::exchange(loaded_, true) && !fresh)
    grace_until_ns_ = now_ns + limits_.lease_ms * kMillisecondNs;
  for (auto& [name, group] : groups_) {
    group.committing = false;
    for (auto& [trainer_name, trainer] : group.trainers) {
      trainer.deadline_ns = now_ns + trainer.lease_ns;
    }
  }
  OnCommitted(now_ns, state);
}

void TrainerGroups::OnCommitted(int64_t now_ns, const ClusterState& state) {
  now_ns_ = now_ns;
  before_ = state.StepBefore();
  for (const auto& [name, commit] : state.groups()) {
    Group& group = GroupOf(name);
    // A group that begins above the steps of earlier generations has no name in its commit.
    const bool unnamed = group.commit.group().empty();
    if (commit.step() < group.commit.step() + (unnamed ? 0 : 1)) continue;
    group.commit = commit;
    group.committing = false;
    Settle(name, &group);
  }
}

TrainerGroups::Group& TrainerGroups::GroupOf(const std::string& name) {
  const auto [it, added] = groups_.try_emplace(name);
  if (added) it->second.commit.set_step(before_);
  return it->second;
}

void TrainerGroups::FailAll(const absl::Status& why) {
  for (auto& [name, group] : groups_) {
    group.committing = false;
    for (const Waiter& waiter : group.waiters) answers_.push_back({waiter.caller, why});
    group.waiters.clear();
  }
  waiting_ = 0;
  commits_.clear();
}

absl::Status TrainerGroups::Check(const v1::TrainRequest& r, const ClusterState& state) const {
  if (!IsPlainName(r.group())) {
    return absl::InvalidArgumentError(absl::StrCat(
        "group \"", absl::CEscape(r.group().substr(0, 80)), "\" of ", r.group().size(),
        " bytes, allowed: 1..", kGroupNameBytesMax, " printable characters without spaces"));
  }
  const auto session = state.sessions().find(r.name());
  if (session == state.sessions().end() || session->second.id != r.session()) {
    return absl::InvalidArgumentError(absl::StrCat("session ", r.session(), " \"",
                                                   absl::CEscape(r.name().substr(0, 80)),
                                                   "\" is not open; call OpenSession first"));
  }
  if (session->second.incarnation != r.incarnation()) {
    return absl::FailedPreconditionError(
        absl::StrCat("session ", r.name(), ": incarnation ", r.incarnation(), " was overtaken by ",
                     session->second.incarnation, "; another client opened this session name"));
  }
  const size_t tables = static_cast<size_t>(r.tables_size());
  if (tables > limits_.tables_max) {
    return absl::InvalidArgumentError(absl::StrCat("session ", r.name(), " names ", tables,
                                                   " tables, the limit is ", limits_.tables_max));
  }
  if (r.lease_ms() != 0 &&
      (r.lease_ms() < limits_.lease_ms_min || r.lease_ms() > limits_.lease_ms_max)) {
    return absl::InvalidArgumentError(absl::StrCat("a trainer's lease of ", r.lease_ms(),
                                                   " ms, allowed: ", limits_.lease_ms_min, "..",
                                                   limits_.lease_ms_max));
  }
  if (absl::Status bad = CheckSteps(r, state); !bad.ok()) return bad;
  return r.kind() == v1::TrainRequest::LEAVE ? absl::OkStatus() : CheckTables(r, state);
}

// Steps are chosen by trainers. A lone trainer decides those of its group and of its tables, and
// one wrong number must not use up all that could follow.
absl::Status TrainerGroups::CheckSteps(const v1::TrainRequest& r, const ClusterState& state) const {
  uint64_t highest = state.StepBefore();
  for (const auto& [name, commit] : state.groups()) highest = std::max(highest, commit.step());
  const uint64_t limit = std::min(highest + kStepsAheadMax, kTrainingStepMax);
  if (r.ended_step() > limit) {
    return absl::InvalidArgumentError(absl::StrCat(
        "session ", r.name(), " ended step ", r.ended_step(), "; the limit is now ", limit,
        ": the last committed step of any group, ", highest, ", and ", kStepsAheadMax, " more"));
  }
  const auto group = state.groups().find(r.group());
  const uint64_t committed =
      std::max(state.StepBefore(), group == state.groups().end() ? 0 : group->second.step());
  if (r.delivered_step() > committed) {
    return absl::InvalidArgumentError(
        absl::StrCat("session ", r.name(), " delivered the commit of step ", r.delivered_step(),
                     "; the last one of group ", r.group(), " is of step ", committed));
  }
  return absl::OkStatus();
}

absl::Status TrainerGroups::CheckTables(const v1::TrainRequest& r,
                                        const ClusterState& state) const {
  const absl::btree_set<TableId> asked(r.tables().begin(), r.tables().end());
  // Nearly all requests name the same tables as the last one, which were checked then.
  if (const auto group = groups_.find(r.group()); group != groups_.end()) {
    const auto it = group->second.trainers.find(r.name());
    if (it != group->second.trainers.end() &&
        std::equal(asked.begin(), asked.end(), it->second.tables.begin(),
                   it->second.tables.end())) {
      return absl::OkStatus();
    }
  }
  for (const auto& [name, group] : groups_) {
    if (asked.empty() || name == r.group()) continue;
    for (const auto& [trainer_name, trainer] : group.trainers) {
      // A trainer whose session was opened again can no longer push, so it does not count.
      const auto session = state.sessions().find(trainer_name);
      if (session == state.sessions().end() || session->second.incarnation != trainer.incarnation) {
        continue;
      }
      for (const TableId table : trainer.tables) {
        if (!asked.contains(table)) continue;
        const auto spec = state.tables().find(table);
        return absl::FailedPreconditionError(absl::StrCat(
            "session ", r.name(), " of group ", r.group(), ": synchronous table ",
            spec == state.tables().end() ? absl::StrCat(table) : spec->second.name(),
            " is trained by group ", name, " (", trainer_name,
            "), and a table belongs to one group at a time; join that group, or wait until its "
            "trainers have left"));
      }
    }
  }
  return absl::OkStatus();
}

int64_t TrainerGroups::LeaseNs(const v1::TrainRequest& request) const {
  return (request.lease_ms() == 0 ? limits_.lease_ms : int64_t{request.lease_ms()}) *
         kMillisecondNs;
}

void TrainerGroups::OnRequest(int64_t now_ns, CallerToken caller, const v1::TrainRequest& request,
                              const ClusterState& state) {
  now_ns_ = now_ns;
  absl::Status bad = Check(request, state);
  const bool known = groups_.contains(request.group());
  if (bad.ok() && !known && groups_.size() >= limits_.groups_max) {
    bad = absl::ResourceExhaustedError(
        absl::StrCat("group ", request.group(), ": there are ", groups_.size(),
                     " groups of trainers, the limit is ", limits_.groups_max));
  }
  if (bad.ok() && waiting_ >= limits_.waiting_max) {
    bad = absl::ResourceExhaustedError(
        absl::StrCat(waiting_, " trainers wait, the limit is ", limits_.waiting_max));
  }
  if (!bad.ok()) {
    answers_.push_back({caller, bad});
    return;
  }
  Group& group = GroupOf(request.group());
  Waiter waiter;
  waiter.caller = caller;
  waiter.name = request.name();
  waiter.session = request.session();
  waiter.incarnation = request.incarnation();
  waiter.joins = request.kind() == v1::TrainRequest::JOIN;
  waiter.commit = request.wait_commit();
  waiter.ended = request.wait_ended();
  waiter.step = request.wait_step();
  waiter.lease_ns = LeaseNs(request);
  waiter.deadline_ns =
      now_ns + std::min<int64_t>(request.wait_ms(), limits_.wait_ms_max) * kMillisecondNs;
  if (request.kind() == v1::TrainRequest::LEAVE) {
    const auto it = group.trainers.find(request.name());
    if (it != group.trainers.end() && it->second.incarnation == request.incarnation()) {
      group.trainers.erase(it);
    }
  } else if (!waiter.joins) {
    Renew(&group, request);
  }
  group.delivered = std::max(group.delivered, request.delivered_step());
  ++waiting_;
  group.waiters.push_back(std::move(waiter));
  Settle(request.group(), &group);
}

void TrainerGroups::Renew(Group* group, const v1::TrainRequest& request) {
  auto it = group->trainers.find(request.name());
  const bool member =
      it != group->trainers.end() && it->second.incarnation == request.incarnation();
  // A member from before this coordinator's start. A trainer that had not ended the last commit's
  // step was given up by that commit.
  const bool heard_again = !member && InGrace() && it == group->trainers.end() &&
                           request.ended_step() >= group->commit.step();
  if (!member && !heard_again) return;
  if (!member) it = group->trainers.try_emplace(request.name()).first;
  Trainer& trainer = it->second;
  trainer.session = request.session();
  trainer.incarnation = request.incarnation();
  trainer.ended = std::max(trainer.ended, request.ended_step());
  trainer.lease_ns = LeaseNs(request);
  trainer.deadline_ns = now_ns_ + trainer.lease_ns;
  const absl::btree_set<TableId> tables(request.tables().begin(), request.tables().end());
  trainer.tables.assign(tables.begin(), tables.end());
}

// --- holds

absl::StatusOr<std::string> TrainerGroups::GroupToHold(const v1::HoldStepRequest& request) const {
  if (!request.group().empty()) {
    if (groups_.contains(request.group())) return request.group();
    return absl::NotFoundError(
        absl::StrCat("there is no group of trainers \"", absl::CEscape(request.group()), "\""));
  }
  std::vector<std::string> names;
  for (const auto& [name, group] : groups_) {
    if (!group.trainers.empty()) names.push_back(name);
  }
  if (names.size() == 1) return names[0];
  if (names.empty()) {
    return absl::FailedPreconditionError(
        "no group of trainers is at work, so there is no step to save at; save without one");
  }
  return absl::FailedPreconditionError(absl::StrCat("several groups of trainers are at work, ",
                                                    absl::StrJoin(names, ", "), ": name one"));
}

absl::Status TrainerGroups::BeginHold(const std::string& name, const v1::HoldStepRequest& request,
                                      const ClusterState& state, Group* group) {
  if (group->hold.number != 0) {
    return absl::FailedPreconditionError(absl::StrCat("group ", name, " is held at step ",
                                                      group->hold.step,
                                                      " for another checkpoint; try again"));
  }
  if (group->trainers.empty()) {
    return absl::FailedPreconditionError(absl::StrCat("group ", name, " has no trainers"));
  }
  uint64_t staleness = 0;
  for (const TableId table : request.tables()) {
    const auto spec = state.tables().find(table);
    if (spec == state.tables().end()) continue;
    staleness = std::max<uint64_t>(staleness, spec->second.staleness());
  }
  const uint64_t first = Slowest(*group).first + 1 + staleness;
  if (request.step() != 0 && request.step() < first) {
    return absl::FailedPreconditionError(
        absl::StrCat("trainers of group ", name, " may have begun step ", request.step() + 1,
                     " already; the first step to save at is now ", first));
  }
  group->hold.number = request.hold();
  group->hold.step = request.step() == 0 ? first : request.step();
  return absl::OkStatus();
}

absl::StatusOr<v1::HoldStepReply> TrainerGroups::OnHold(int64_t now_ns,
                                                        const v1::HoldStepRequest& request,
                                                        const ClusterState& state) {
  now_ns_ = now_ns;
  if (request.hold() == 0) return absl::InvalidArgumentError("a hold has a number above 0");
  if (InGrace()) {
    return absl::UnavailableError("the coordinator waits until its trainers were heard of; retry");
  }
  HOTBED_ASSIGN_OR_RETURN(const std::string name, GroupToHold(request));
  Group& group = groups_[name];
  if (group.hold.number != request.hold()) {
    if (request.renews()) {
      return absl::NotFoundError(absl::StrCat("group ", name, " is not held any more"));
    }
    HOTBED_RETURN_IF_ERROR(BeginHold(name, request, state, &group));
  }
  group.hold.deadline_ns =
      now_ns + std::min<int64_t>(request.hold_ms(), limits_.hold_ms_max) * kMillisecondNs;
  const auto [ended, slowest] = Slowest(group);
  v1::HoldStepReply reply;
  reply.set_group(name);
  reply.set_step(group.hold.step);
  reply.set_ended_min(ended);
  reply.set_slowest(slowest);
  reply.set_members(static_cast<uint32_t>(group.trainers.size()));
  const bool delivered = group.commit.tables_size() == 0 || group.delivered >= group.commit.step();
  reply.set_reached(group.commit.step() >= group.hold.step && !group.committing && delivered);
  if (request.hold_ms() == 0) group.hold = GroupHold();
  Settle(name, &group);
  return reply;
}

void TrainerGroups::Tick(int64_t now_ns, bool held_up) {
  now_ns_ = now_ns;
  for (auto& [name, group] : groups_) {
    if (group.hold.deadline_ns <= now_ns) group.hold = GroupHold();
    for (auto it = group.trainers.begin(); it != group.trainers.end();) {
      Trainer& trainer = it->second;
      if (held_up || InGrace()) {
        trainer.deadline_ns = std::max(trainer.deadline_ns, now_ns + trainer.lease_ns);
      }
      it = trainer.deadline_ns <= now_ns ? group.trainers.erase(it) : std::next(it);
    }
  }
  SettleAll();
  ForgetEmpty();
}

// A group that has committed a step stays, as its commit does in the store.
void TrainerGroups::ForgetEmpty() {
  for (auto it = groups_.begin(); it != groups_.end();) {
    const Group& group = it->second;
    const bool empty = group.trainers.empty() && group.waiters.empty() && !group.committing &&
                       group.commit.group().empty() && group.hold.number == 0;
    it = empty ? groups_.erase(it) : std::next(it);
  }
}

void TrainerGroups::SettleAll() {
  for (auto& [name, group] : groups_) Settle(name, &group);
}

// --- decisions

bool TrainerGroups::IsSynchronous(const Group& group) {
  if (group.commit.tables_size() > 0) return true;
  return std::any_of(group.trainers.begin(), group.trainers.end(),
                     [](const auto& entry) { return !entry.second.tables.empty(); });
}

std::pair<uint64_t, std::string> TrainerGroups::Slowest(const Group& group) {
  std::pair<uint64_t, std::string> slowest = {group.commit.step(), ""};
  for (const auto& [name, trainer] : group.trainers) {
    if (slowest.second.empty() || trainer.ended < slowest.first) slowest = {trainer.ended, name};
  }
  return slowest;
}

void TrainerGroups::Settle(const std::string& name, Group* group) {
  AdmitJoiners(group);
  StartCommit(name, group);
  const auto answered = [&](const Waiter& waiter) { return AnswerWaiter(*group, waiter); };
  const auto rest = std::remove_if(group->waiters.begin(), group->waiters.end(), answered);
  waiting_ -= static_cast<size_t>(group->waiters.end() - rest);
  group->waiters.erase(rest, group->waiters.end());
}

// The earlier process of a trainer that joins stays a member until then: the steps it ended are
// committed with those of the others, and the new process does the rest.
void TrainerGroups::AdmitJoiners(Group* group) {
  for (Waiter& waiter : group->waiters) {
    if (!waiter.joins) continue;
    auto it = group->trainers.find(waiter.name);
    if (it != group->trainers.end() && it->second.incarnation == waiter.incarnation) {
      waiter.joins = false;  // its answer was lost
      it->second.deadline_ns = now_ns_ + it->second.lease_ns;
      continue;
    }
    const uint64_t last = group->commit.step();
    if (group->committing || (InGrace() && last > 0)) continue;
    const uint64_t least = Slowest(*group).first;
    if (least > last && IsSynchronous(*group)) continue;  // about to be committed
    if (it == group->trainers.end() && group->trainers.size() >= limits_.members_max) continue;
    Trainer& trainer = group->trainers[waiter.name];
    trainer.tables.clear();
    trainer.session = waiter.session;
    trainer.incarnation = waiter.incarnation;
    trainer.ended = trainer.base = std::max(last, least);
    trainer.lease_ns = waiter.lease_ns;
    trainer.deadline_ns = now_ns_ + trainer.lease_ns;
    waiter.joins = false;
  }
}

void TrainerGroups::StartCommit(const std::string& name, Group* group) {
  if (group->committing || group->trainers.empty() || InGrace()) return;
  const uint64_t step = Slowest(*group).first;
  if (step <= group->commit.step()) return;
  if (group->hold.number != 0 && step > group->hold.step) return;
  if (group->commit.tables_size() > 0 && group->delivered < group->commit.step()) return;
  v1::GroupCommit commit;
  commit.set_group(name);
  commit.set_step(step);
  absl::btree_set<TableId> tables;
  for (const auto& [trainer_name, trainer] : group->trainers) {
    if (trainer.base < step) commit.add_sessions(trainer.session);
    tables.insert(trainer.tables.begin(), trainer.tables.end());
  }
  for (const TableId table : tables) commit.add_tables(table);
  group->committing = true;
  commits_.push_back(std::move(commit));
}

v1::TrainReply TrainerGroups::ReplyOf(const Group& group, const Trainer* trainer) const {
  v1::TrainReply reply;
  reply.set_member(trainer != nullptr);
  *reply.mutable_commit() = group.commit;
  const auto [ended, slowest] = Slowest(group);
  // While members may be missing, no step is known to be ended by all of them.
  reply.set_ended_min(InGrace() ? 0 : ended);
  reply.set_slowest(slowest);
  reply.set_members(static_cast<uint32_t>(group.trainers.size()));
  reply.set_hold_step(group.hold.number == 0 ? 0 : group.hold.step);
  if (trainer == nullptr) return reply;
  reply.set_ended_step(trainer->ended);
  reply.set_lease_ms(static_cast<uint32_t>(trainer->lease_ns / kMillisecondNs));
  return reply;
}

bool TrainerGroups::AnswerWaiter(const Group& group, const Waiter& waiter) {
  const bool over = waiter.deadline_ns <= now_ns_;
  if (waiter.joins) {
    if (!over) return false;
    const bool full = group.trainers.size() >= limits_.members_max;
    const std::string why =
        full ? absl::StrCat("the group has ", group.trainers.size(), " trainers, the limit is ",
                            limits_.members_max)
             : absl::StrCat("the step that is ending is to be committed first (slowest: ",
                            Slowest(group).second, "); retry");
    answers_.push_back(
        {waiter.caller, full ? absl::ResourceExhaustedError(why) : absl::UnavailableError(why)});
    return true;
  }
  const auto it = group.trainers.find(waiter.name);
  const bool member = it != group.trainers.end() && it->second.incarnation == waiter.incarnation;
  const bool held = group.hold.number != 0 && waiter.step > group.hold.step;
  const bool done = !held && waiter.commit <= group.commit.step() &&
                    (waiter.ended == 0 || (!InGrace() && waiter.ended <= Slowest(group).first));
  if (member && !done && !over) return false;
  answers_.push_back({waiter.caller, ReplyOf(group, member ? &it->second : nullptr)});
  return true;
}

// --- results

std::vector<TrainerGroups::Answer> TrainerGroups::TakeAnswers() {
  return std::exchange(answers_, {});
}

std::vector<v1::GroupCommit> TrainerGroups::TakeCommits() { return std::exchange(commits_, {}); }

v1::ListTrainersReply TrainerGroups::List(int64_t now_ns) const {
  v1::ListTrainersReply list;
  for (const auto& [name, group] : groups_) {
    v1::TrainerGroup* entry = list.add_groups();
    *entry->mutable_commit() = group.commit;
    entry->mutable_commit()->set_group(name);
    for (const auto& [trainer_name, trainer] : group.trainers) {
      v1::Trainer* t = entry->add_trainers();
      t->set_name(trainer_name);
      t->set_session(trainer.session);
      t->set_ended_step(trainer.ended);
      t->set_lease_left_ms(static_cast<uint32_t>(
          std::max<int64_t>(0, (trainer.deadline_ns - now_ns) / kMillisecondNs)));
    }
    const auto joins = [](const Waiter& waiter) { return waiter.joins; };
    entry->set_joining(
        static_cast<uint32_t>(std::count_if(group.waiters.begin(), group.waiters.end(), joins)));
  }
  return list;
}

}  // namespace hotbed
