#include "planner/coordinator/membership/member_reports.h"

#include <algorithm>
#include <utility>

#include "planner/coordinator/state/leases.h"

namespace hotbed {
namespace {

// The shard was merged, and the process has not merged its replica yet: it says so again when it
// has.
bool IsPart(const ShardRecord& record, const v1::HeldReplica& held) {
  return held.end().epoch() != 0 && held.end().epoch() < record.merge.base.epoch;
}

}  // namespace

MemberReports::Changed MemberReports::OnHeartbeat(const ClusterState& state,
                                                  const v1::HeartbeatRequest& request) {
  Changed changed;
  const Member self{request.server(), request.incarnation()};
  for (const v1::JoinReady& ready : request.join_ready()) {
    if (!state.shards().contains(ready.shard())) continue;
    Joins& joins = joins_[ready.shard()];
    if (joins.epoch > ready.epoch()) continue;
    if (joins.epoch < ready.epoch()) joins = Joins();
    joins.epoch = ready.epoch();
    joins.primary = self;
    const Member learner = MemberOf(ready.member());
    if (!Contains(joins.learners, learner)) joins.learners.push_back(learner);
    changed.joins.push_back(ready.shard());
  }
  const auto find = [&](uint64_t packed, Epoch epoch) -> const ShardRecord* {
    auto record = state.shards().find(packed);
    const bool counts = record != state.shards().end() && record->second.epoch == epoch;
    return counts ? &record->second : nullptr;
  };
  for (const v1::LostReplica& lost : request.replicas_lost()) {
    const ShardRecord* const record = find(lost.shard(), lost.epoch());
    if (record == nullptr) continue;
    std::string said = lost.why().substr(0, kSaidBytesMax);
    if (NoteLeaving(*record, {self, MemberOut::kReplicaLost, std::move(said)})) {
      changed.leaving.push_back(lost.shard());
    }
  }
  for (const v1::SilentMember& silent : request.silent()) {
    const ShardRecord* const record = find(silent.shard(), silent.epoch());
    if (record == nullptr || record->primary != self) continue;
    if (NoteLeaving(*record, {MemberOf(silent.member()), MemberOut::kSilent, ""})) {
      changed.leaving.push_back(silent.shard());
    }
  }
  if (!request.held().empty()) {
    HeldOf& of = HeldBy({request.server(), request.incarnation()});
    for (const v1::HeldReplica& message : request.held()) {
      const auto record = state.shards().find(message.shard());
      if (record == state.shards().end() || record->second.Holds(self)) continue;  // said before
      if (IsPart(record->second, message)) continue;
      if (NoteHeld(message, &of)) changed.held.push_back(message.shard());
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
    of.tables.insert(ShardId::FromPacked(message.shard()).table);
    const auto record = state.shards().find(message.shard());
    const bool part = record != state.shards().end() && IsPart(record->second, message);
    if (named.contains(message.shard()) && !part) NoteHeld(message, &of);
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
  // It may hold the shard under the name of another one, if it has not heard of a cut. It cuts that
  // and says so once it knows the records.
  const bool all = of->second.all && !of->second.tables.contains(ShardId::FromPacked(shard).table);
  return all ? std::make_optional(HeldReplica{.nothing = true}) : std::nullopt;
}

bool MemberReports::NoteLeaving(const ShardRecord& record, Leaving report) {
  const MemberOut known = WhyLeaving(record, report.member);
  // A process's own report about itself outweighs that of its primary.
  if (!record.Holds(report.member) || known == report.why || known == MemberOut::kReplicaLost) {
    return false;
  }
  LeavingOfEpoch& leaving = leaving_[record.shard.packed()];
  if (leaving.epoch != record.epoch) leaving = LeavingOfEpoch();
  leaving.epoch = record.epoch;
  std::erase_if(leaving.members,
                [&](const Leaving& other) { return other.member == report.member; });
  leaving.members.push_back(std::move(report));
  return true;
}

void MemberReports::OnRecord(const ShardRecord& record) {
  // The replica of a process that takes part changes: what it said before says nothing now.
  for (const std::vector<Member>* some : {&record.members, &record.learners}) {
    for (const Member& process : *some) {
      const auto of = held_.find(process.server);
      if (of == held_.end() || of->second.incarnation != process.incarnation) continue;
      of->second.shards.erase(record.shard.packed());
      of->second.all = false;
    }
  }
  // A rebuilt record ends all earlier epochs: what was said before it says nothing. Heartbeats
  // repeat what is asked for.
  if (record.primary.incarnation == 0) {
    for (const Member& member : record.members) {
      const auto of = held_.find(member.server);
      if (of == held_.end()) continue;
      of->second.shards.erase(record.shard.packed());
      of->second.all = false;
    }
  }
  if (auto joins = joins_.find(record.shard.packed()); joins != joins_.end()) {
    if (joins->second.epoch < record.epoch) joins_.erase(joins);
  }
  if (auto leaving = leaving_.find(record.shard.packed()); leaving != leaving_.end()) {
    if (leaving->second.epoch < record.epoch) leaving_.erase(leaving);
  }
}

void MemberReports::Forget(uint64_t shard) {
  joins_.erase(shard);
  leaving_.erase(shard);
  for (auto& [server, of] : held_) of.shards.erase(shard);
}

bool MemberReports::Joined(const ShardRecord& record, const Member& learner) const {
  auto joins = joins_.find(record.shard.packed());
  // Only the primary of this epoch knows its acknowledging set.
  return joins != joins_.end() && joins->second.epoch == record.epoch &&
         joins->second.primary == record.primary && Contains(joins->second.learners, learner);
}

const MemberReports::Leaving* MemberReports::FindLeaving(const ShardRecord& record,
                                                         const Member& member) const {
  auto leaving = leaving_.find(record.shard.packed());
  if (leaving == leaving_.end() || leaving->second.epoch != record.epoch) return nullptr;
  for (const Leaving& report : leaving->second.members) {
    if (report.member == member) return &report;
  }
  return nullptr;
}

MemberOut MemberReports::WhyLeaving(const ShardRecord& record, const Member& member) const {
  const Leaving* const report = FindLeaving(record, member);
  return report == nullptr ? MemberOut::kNo : report->why;
}

}  // namespace hotbed
