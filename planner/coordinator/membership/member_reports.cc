#include "planner/coordinator/membership/member_reports.h"

#include <algorithm>
#include <utility>

#include "planner/coordinator/membership/membership_batch.h"

namespace hotbed {
namespace {

bool HasProcess(const google::protobuf::RepeatedPtrField<v1::Member>& members,
                const v1::Member& member) {
  return std::any_of(members.begin(), members.end(),
                     [&](const v1::Member& m) { return Same(m, member); });
}

}  // namespace

MemberReports::Changed MemberReports::OnHeartbeat(const ClusterState& state,
                                                  const v1::HeartbeatRequest& request) {
  Changed changed;
  v1::Member self;
  self.set_server(request.server());
  self.set_incarnation(request.incarnation());
  for (const v1::JoinReady& ready : request.join_ready()) {
    if (!state.shards().contains(ready.shard())) continue;
    Joins& joins = joins_[ready.shard()];
    if (joins.epoch > ready.epoch()) continue;
    if (joins.epoch < ready.epoch()) joins = Joins();
    joins.epoch = ready.epoch();
    joins.primary = self;
    const bool known = std::any_of(joins.learners.begin(), joins.learners.end(),
                                   [&](const v1::Member& m) { return Same(m, ready.member()); });
    if (!known) joins.learners.push_back(ready.member());
    changed.joins.push_back(ready.shard());
  }
  const auto find = [&](uint64_t packed, Epoch epoch) -> const v1::ShardRecord* {
    auto record = state.shards().find(packed);
    const bool counts = record != state.shards().end() && record->second.epoch() == epoch;
    return counts ? &record->second : nullptr;
  };
  for (const v1::LostCopy& lost : request.copies_lost()) {
    const v1::ShardRecord* const record = find(lost.shard(), lost.epoch());
    if (record == nullptr) continue;
    if (NoteLeaving(*record,
                    {self, MemberOut::kReplicaLost, lost.why().substr(0, kSaidBytesMax)})) {
      changed.leaving.push_back(lost.shard());
    }
  }
  for (const v1::SilentMember& silent : request.silent()) {
    const v1::ShardRecord* const record = find(silent.shard(), silent.epoch());
    if (record == nullptr || !Same(record->primary(), self)) continue;
    if (NoteLeaving(*record, {silent.member(), MemberOut::kSilent, ""})) {
      changed.leaving.push_back(silent.shard());
    }
  }
  if (!request.held().empty()) {
    HeldOf& of = HeldBy({request.server(), request.incarnation()});
    for (const v1::HeldReplica& message : request.held()) {
      if (state.shards().contains(message.shard()) && NoteHeld(message, &of)) {
        changed.held.push_back(message.shard());
      }
    }
  }
  return changed;
}

MemberReports::HeldOf& MemberReports::HeldBy(const Member& process) {
  HeldOf& of = held_[process.server];
  if (of.incarnation != process.incarnation) of = {.incarnation = process.incarnation};
  return of;
}

void MemberReports::OnRegister(const ClusterState& state, const Member& process,
                               const google::protobuf::RepeatedPtrField<v1::HeldReplica>& held) {
  HeldOf& of = HeldBy(process);
  of.all = true;
  const absl::btree_set<uint64_t>& named = state.ShardsOfServer(process.server);
  for (const v1::HeldReplica& message : held) {
    if (named.contains(message.shard())) NoteHeld(message, &of);
  }
}

bool MemberReports::NoteHeld(const v1::HeldReplica& message, HeldOf* of) {
  const HeldReplica held = {.nothing = message.nothing(),
                            .damaged = message.damaged(),
                            .behind = message.behind(),
                            .end = {message.end().epoch(), message.end().lsn()},
                            .member_of = message.member_of()};
  const auto [known, added] = of->shards.try_emplace(message.shard(), held);
  if (added) return true;
  if (known->second == held) return false;
  known->second = held;
  return true;
}

std::optional<HeldReplica> MemberReports::Held(uint64_t shard, const Member& process) const {
  const auto of = held_.find(process.server);
  if (of == held_.end() || of->second.incarnation != process.incarnation) return std::nullopt;
  const auto held = of->second.shards.find(shard);
  if (held != of->second.shards.end()) return held->second;
  return of->second.all ? std::make_optional(HeldReplica{.nothing = true}) : std::nullopt;
}

bool MemberReports::NoteLeaving(const v1::ShardRecord& record, Leaving report) {
  const MemberOut known = WhyLeaving(record, report.member);
  const bool counts =
      HasProcess(record.members(), report.member) || HasProcess(record.learners(), report.member);
  // A process's own report about itself outweighs that of its primary.
  if (!counts || known == report.why || known == MemberOut::kReplicaLost) return false;
  LeavingOfEpoch& leaving = leaving_[record.shard()];
  if (leaving.epoch != record.epoch()) leaving = LeavingOfEpoch();
  leaving.epoch = record.epoch();
  std::erase_if(leaving.members,
                [&](const Leaving& other) { return Same(other.member, report.member); });
  leaving.members.push_back(std::move(report));
  return true;
}

void MemberReports::OnRecord(const v1::ShardRecord& record) {
  if (auto joins = joins_.find(record.shard()); joins != joins_.end()) {
    if (joins->second.epoch < record.epoch()) joins_.erase(joins);
  }
  if (auto leaving = leaving_.find(record.shard()); leaving != leaving_.end()) {
    if (leaving->second.epoch < record.epoch()) leaving_.erase(leaving);
  }
}

void MemberReports::Forget(uint64_t shard) {
  joins_.erase(shard);
  leaving_.erase(shard);
  for (auto& [server, of] : held_) of.shards.erase(shard);
}

bool MemberReports::Joined(const v1::ShardRecord& record, const v1::Member& learner) const {
  auto joins = joins_.find(record.shard());
  // Only the primary of this epoch knows its acknowledging set.
  return joins != joins_.end() && joins->second.epoch == record.epoch() &&
         Same(joins->second.primary, record.primary()) &&
         std::any_of(joins->second.learners.begin(), joins->second.learners.end(),
                     [&](const v1::Member& m) { return Same(m, learner); });
}

const MemberReports::Leaving* MemberReports::FindLeaving(const v1::ShardRecord& record,
                                                         const v1::Member& member) const {
  auto leaving = leaving_.find(record.shard());
  if (leaving == leaving_.end() || leaving->second.epoch != record.epoch()) return nullptr;
  for (const Leaving& report : leaving->second.members) {
    if (Same(report.member, member)) return &report;
  }
  return nullptr;
}

MemberOut MemberReports::WhyLeaving(const v1::ShardRecord& record, const v1::Member& member) const {
  const Leaving* const report = FindLeaving(record, member);
  return report == nullptr ? MemberOut::kNo : report->why;
}

}  // namespace hotbed
