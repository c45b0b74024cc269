// What Membership hears of members that are to leave though they live, and what it notes of those
// that left.
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "planner/coordinator/membership/membership.h"
#include "planner/coordinator/membership/membership_batch.h"

namespace hotbed {
void Membership::NoteOut(const v1::ShardRecord& record, OutMember out) {
  const auto is = [&](const v1::Member& m) { return Same(m, out.member); };
  const auto& members = record.members();
  const auto& learners = record.learners();
  const bool counts = std::any_of(members.begin(), members.end(), is) ||
                      std::any_of(learners.begin(), learners.end(), is);
  const MemberOut known = Out(record, out.member);
  // What a process says of itself comes before what its primary says of it.
  if (!counts || known == out.why || known == MemberOut::kReplicaLost) return;
  Outs& outs = outs_[record.shard()];
  if (outs.epoch != record.epoch()) outs = Outs();
  outs.epoch = record.epoch();
  std::erase_if(outs.members, [&](const OutMember& other) { return is(other.member); });
  outs.members.push_back(std::move(out));
  urgent_.insert(record.shard());
}

const Membership::OutMember* Membership::FindOut(const v1::ShardRecord& record,
                                                 const v1::Member& member) const {
  auto outs = outs_.find(record.shard());
  if (outs == outs_.end() || outs->second.epoch != record.epoch()) return nullptr;
  for (const OutMember& out : outs->second.members) {
    if (Same(out.member, member)) return &out;
  }
  return nullptr;
}

MemberOut Membership::Out(const v1::ShardRecord& record, const v1::Member& member) const {
  const OutMember* const out = FindOut(record, member);
  return out == nullptr ? MemberOut::kNo : out->why;
}

void Membership::NoteFailOver(const v1::ShardRecord& record, const ShardDecision& decision,
                              MembershipBatch* batch) {
  ++counts_.fail_overs;
  int64_t since = 0;
  bool gone = false;  // a process, not only what it holds
  bool lost = false;  // only what it holds
  for (const v1::Member& m : record.members()) {
    if (leases_->LiveIncarnation(m.server()) == m.incarnation()) {
      lost = lost || Out(record, m) == MemberOut::kReplicaLost;
      continue;
    }
    gone = true;
    lost_[record.shard()] = m.server();
    since = std::max(since, leases_->GoneSinceNs(m.server()));
  }
  failing_since_ns_.try_emplace(record.shard(), since != 0 ? since : batch->now_ns());
  const char* const kind = decision.step == ShardStep::kTakeBack ? "take_back"
                           : gone                                ? "fail_over"
                           : lost                                ? "copy_lost"
                                                                 : "cut_off";
  const std::string more = NoteBackoff(record, decision, batch->now_ns(), batch->state());
  batch->Note(kind, absl::StrCat(decision.reason, more), record.shard());
}

std::string Membership::NoteBackoff(const v1::ShardRecord& record, const ShardDecision& decision,
                                    int64_t now_ns, const ClusterState& state) {
  std::string told;
  const auto look = [&](const v1::Member& m, const std::vector<Member>& next) {
    const bool lives = leases_->LiveIncarnation(m.server()) == m.incarnation();
    const bool stays = std::any_of(next.begin(), next.end(), [&](const Member& other) {
      return other.server == m.server() && other.incarnation == m.incarnation();
    });
    if (!lives || stays) return;
    const OutMember* const out = FindOut(record, m);
    if (out == nullptr || out->why != MemberOut::kReplicaLost) {
      // A primary too: the one before it did not hear of it.
      backoff_.NoteUnreached(record.shard(), m.server(), now_ns);
      return;
    }
    const std::string again = backoff_.NoteLost(record.shard(), m.server(), now_ns);
    if (!again.empty()) absl::StrAppend(&told, "; ", again);
    if (!out->said.empty()) {
      absl::StrAppend(&told, "; ", state.ServerName(m.server()), " says: ", out->said);
    }
  };
  for (const v1::Member& m : record.members()) look(m, decision.next.members);
  for (const v1::Member& m : record.learners()) {
    const OutMember* const out = FindOut(record, m);
    if (out != nullptr && out->why == MemberOut::kReplicaLost) look(m, decision.next.learners);
  }
  return told;
}

}  // namespace hotbed
