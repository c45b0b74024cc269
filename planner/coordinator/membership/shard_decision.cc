#include "planner/coordinator/membership/shard_decision.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/check.h"
#include "planner/coordinator/state/record_text.h"

namespace hotbed {
namespace {

using Members = std::vector<Member>;

const Member* FindServer(const Members& members, ServerId server) {
  for (const Member& member : members) {
    if (member.server == server) return &member;
  }
  return nullptr;
}

void Remove(const Member& member, Members* members) {
  members->erase(std::remove(members->begin(), members->end(), member), members->end());
}

size_t CountServer(const Members& members, const Member& one) {
  return static_cast<size_t>(std::count_if(
      members.begin(), members.end(), [&](const Member& m) { return m.server == one.server; }));
}

bool SameMembers(const Members& a, const Members& b) {
  return a.size() == b.size() &&
         std::all_of(a.begin(), a.end(), [&](const Member& m) { return Contains(b, m); });
}

// One decision: the rules, in the order in which they are tried.
class Rules {
 public:
  Rules(const ShardRecord& record, const ShardWish& wish, const ServerView& view)
      : record_(record), wish_(wish), view_(view), unheard_(Unheard()), next_(record) {
    const auto is_gone = [this](const Member& member) { return !Live(member); };
    next_.members.erase(std::remove_if(next_.members.begin(), next_.members.end(), is_gone),
                        next_.members.end());
    next_.learners.erase(std::remove_if(next_.learners.begin(), next_.learners.end(), is_gone),
                         next_.learners.end());
    // Servers that are gone for good are passed over; awaited ones keep their place.
    for (const ServerId server : wish.servers) {
      if (wanted_.size() >= wish.copies) break;
      const bool counts = view.live(server) != 0 || view.awaited(server);
      if (counts && !Contains(wanted_, server)) wanted_.push_back(server);
    }
  }

  ShardDecision Decide() {
    ShardDecision decision = Rule();
    // A reader that is no learner any more goes.
    auto& readers = decision.next.readers;
    readers.erase(std::remove_if(readers.begin(), readers.end(),
                                 [&](ServerId server) {
                                   return FindServer(decision.next.learners, server) == nullptr;
                                 }),
                  readers.end());
    return decision;
  }

 private:
  ShardDecision Rule() {
    if (next_.members.size() < record_.members.size()) return LoseMembers();
    if (next_.learners.size() < record_.learners.size()) return LoseLearners();
    // Nothing is acknowledged until the epoch is active, so another change could only delay that.
    // Waiting also keeps `base` the members of one epoch (see TakeBack).
    if (!record_.active) {
      return Wait(absl::StrCat("waits for ", MemberText(record_.primary), " to activate epoch ",
                               record_.epoch));
    }
    for (const Member& learner : record_.learners) {
      if (Contains(record_.readers, learner.server)) continue;
      if (Joins(learner) && view_.join_ready(record_.epoch, learner)) return Join(learner);
    }
    if (SwitchWanted()) return Switch();
    if (const Member* member = Surplus()) return DropMember(*member);
    for (const Member& learner : record_.learners) {
      if (!Joins(learner) && !Reads(learner)) return DropLearner(learner);
    }
    return AddLearner();
  }

  bool Live(const Member& member) const {
    return Alive(member) && !Spoilt(member) && !Contains(unheard_, member);
  }
  bool Alive(const Member& member) const {
    return member.incarnation != 0 && view_.live(member.server) == member.incarnation;
  }
  // The process lives but gave up its replica: it answers nobody, not even pulls.
  bool Spoilt(const Member& member) const {
    return view_.out(record_.epoch, member) == MemberOut::kReplicaLost;
  }
  // The members that leave because they and the primary do not hear of each other. As a rule the
  // primary stays: it can continue without the others, and they might not without it. The exception
  // is the primary of the last active epoch: while alive with a valid lease it may answer strict
  // pulls until it has promised a later epoch, so no epoch without it may become active. Nothing
  // was acknowledged since, so it becomes primary again, and the primary that did not reach it
  // leaves. A learner in the acknowledging set leaves as a member does.
  Members Unheard() const {
    Members silent;
    const Member& primary = record_.primary;
    if (!Alive(primary) || Spoilt(primary)) return silent;
    for (const Member& member : record_.members) {
      const bool counts = !(member == primary) && Alive(member);
      if (!counts || view_.out(record_.epoch, member) != MemberOut::kSilent) continue;
      if (!record_.active && !record_.base.empty() && member == record_.base.front()) {
        return {primary};
      }
      silent.push_back(member);
    }
    for (const Member& learner : record_.learners) {
      if (view_.out(record_.epoch, learner) == MemberOut::kSilent) silent.push_back(learner);
    }
    return silent;
  }
  bool Wanted(const Member& member) const { return Contains(wanted_, member.server); }
  bool Reads(const Member& learner) const { return Contains(wish_.readers, learner.server); }

  ShardDecision Wait(std::string reason) const {
    return {ShardStep::kNone, record_, std::move(reason)};
  }
  // The primary's acknowledging set, and with it every join report, belongs to one epoch. So a
  // learner that goes starts a new epoch too, as a change of members does. Otherwise a learner that
  // was dropped and added again could join by the report of its first stay, without the entries
  // acknowledged in between.
  ShardDecision NewEpoch(ShardStep step, std::string reason) {
    next_.epoch = record_.epoch + 1;
    next_.active = false;
    if (record_.active) {
      const auto primary = std::find(next_.base.begin(), next_.base.end(), record_.primary);
      if (primary != next_.base.end()) std::rotate(next_.base.begin(), primary, primary + 1);
    }
    return {step, std::move(next_), std::move(reason)};
  }

  // The first wanted server among the members, else the first member.
  Member BestOf(const Members& members) const {
    for (const ServerId server : wanted_) {
      if (const Member* member = FindServer(members, server)) return *member;
    }
    return members.front();
  }

  std::string GoneText() const {
    Members gone;
    Members spoilt;
    for (const Member& member : record_.members) {
      if (Contains(unheard_, member) || Live(member)) continue;
      (Alive(member) ? spoilt : gone).push_back(member);
    }
    std::vector<std::string> texts;
    if (!gone.empty()) texts.push_back(MembersText(gone));
    if (!spoilt.empty()) {
      texts.push_back(absl::StrCat("the copy of ", MembersText(spoilt),
                                   " (it is damaged, or differs from its primary's)"));
    }
    if (!unheard_.empty()) {
      texts.push_back(absl::StrCat(MembersText(unheard_), UnheardText()));
    }
    return absl::StrJoin(texts, " and ");
  }

  std::string UnheardText() const {
    if (Contains(unheard_, record_.primary)) {
      return absl::StrCat(" (it lives, but does not hear of ", MemberText(record_.base.front()),
                          ", the primary before it)");
    }
    return absl::StrCat(unheard_.size() == 1 ? " (it lives" : " (they live", ", but ",
                        MemberText(record_.primary), ", the primary, does not hear of ",
                        unheard_.size() == 1 ? "it)" : "them)");
  }

  ShardDecision LoseMembers() {
    if (!next_.members.empty()) {
      std::string reason = absl::StrCat("lost ", GoneText());
      if (!Contains(next_.members, next_.primary)) {
        const bool back = Contains(unheard_, record_.primary);
        next_.primary = back ? record_.base.front() : BestOf(next_.members);
        absl::StrAppend(&reason, ", primary is now ", MemberText(next_.primary));
      }
      return NewEpoch(ShardStep::kFailOver, std::move(reason));
    }
    return record_.active ? TakeBack() : TakeBase();
  }

  // No epoch since that of the base was active, so every member of the base holds everything
  // acknowledged.
  ShardDecision TakeBase() {
    for (const Member& member : record_.base) {
      if (Live(member)) next_.members.push_back(member);
    }
    if (next_.members.empty()) return TakeBack();
    next_.primary = BestOf(next_.members);
    KeepLearnersApart();
    return NewEpoch(ShardStep::kTakeBase,
                    absl::StrCat("lost ", GoneText(), " before epoch ", record_.epoch,
                                 " was active, back to ", MembersText(next_.members)));
  }

  // Any process of a server that was a member has everything acknowledged in its log. No later
  // process of that server can have been a learner, whose replica may be incomplete, as long as the
  // record names the earlier process: learners are added in active epochs only, and no server
  // appears twice.
  ShardDecision TakeBack() {
    Members asked = record_.members;
    const auto primary = std::find(asked.begin(), asked.end(), record_.primary);
    if (primary != asked.end()) std::iter_swap(asked.begin(), primary);
    if (!record_.active) asked.insert(asked.end(), record_.base.begin(), record_.base.end());
    if (!wish_.survives_restart) {
      return Wait(absl::StrCat("stopped: lost all of ", MembersText(record_.members),
                               ", and the table's class keeps nothing over a restart; load a "
                               "checkpoint or create the table again"));
    }
    Members back;
    for (const Member& member : asked) {
      const Incarnation live = view_.live(member.server);
      if (live != 0 && Spoilt({member.server, live})) continue;
      if (live != 0 && FindServer(back, member.server) == nullptr) {
        back.push_back({member.server, live});
      }
    }
    if (back.empty()) {
      return Wait(absl::StrCat("stopped: lost all of ", GoneText(),
                               "; goes on when one of them is back with its data directory"));
    }
    next_.primary = back.front();
    next_.members = {next_.primary};
    KeepLearnersApart();
    return NewEpoch(ShardStep::kTakeBack,
                    absl::StrCat("lost all of ", MembersText(record_.members), ", ",
                                 MemberText(next_.primary), " is back with its log"));
  }

  // A server that became a member is no longer a learner.
  void KeepLearnersApart() {
    for (const Member& member : next_.members) {
      if (const Member* learner = FindServer(next_.learners, member.server)) {
        Remove(Member(*learner), &next_.learners);
      }
    }
  }

  ShardDecision LoseLearners() {
    Members gone;
    for (const Member& learner : record_.learners) {
      if (!Live(learner)) gone.push_back(learner);
    }
    std::string reason = absl::StrCat("lost learner ", MembersText(gone));
    if (gone == unheard_) absl::StrAppend(&reason, UnheardText());
    return NewEpoch(ShardStep::kDropLearner, std::move(reason));
  }

  // Whether the learner is to become a member: it is wanted, or replaces a missing member.
  bool Joins(const Member& learner) const {
    if (Wanted(learner)) return true;
    if (Reads(learner)) return false;
    size_t copies = record_.members.size();
    bool before = true;
    for (const Member& other : record_.learners) {
      if (other == learner) before = false;
      if (Wanted(other) || (before && !Reads(other))) ++copies;
    }
    return copies < wish_.copies;
  }

  ShardDecision Join(Member learner) {
    next_.members.push_back(learner);
    Remove(learner, &next_.learners);
    return NewEpoch(ShardStep::kJoin, absl::StrCat(MemberText(learner), " holds everything"));
  }

  bool SwitchWanted() const {
    return !wanted_.empty() && record_.primary.server != wanted_.front() &&
           FindServer(record_.members, wanted_.front()) != nullptr;
  }

  // The old primary stays a member even if it has to leave later: the new epoch becomes active only
  // once the old primary has promised it. If it left at once, it could, alive and with a valid
  // lease, answer strict pulls from its rows after others have acknowledged newer ones.
  ShardDecision Switch() {
    next_.primary = *FindServer(record_.members, wanted_.front());
    return NewEpoch(ShardStep::kSwitch,
                    absl::StrCat(MemberText(next_.primary), " is wanted as primary instead of ",
                                 MemberText(record_.primary)));
  }

  // The last surplus member; never the primary, which has to be replaced first.
  const Member* Surplus() const {
    if (record_.members.size() <= std::max<size_t>(1, wish_.copies)) return nullptr;
    for (size_t i = record_.members.size(); i-- > 0;) {
      const Member& member = record_.members[i];
      if (!(member == record_.primary) && !Wanted(member)) return &member;
    }
    return nullptr;
  }

  ShardDecision DropMember(const Member& member) {
    Remove(member, &next_.members);
    return NewEpoch(ShardStep::kDropMember,
                    absl::StrCat(MemberText(member), " is beyond the ", wish_.copies,
                                 wish_.copies == 1 ? " copy wanted" : " copies wanted"));
  }

  ShardDecision DropLearner(Member learner) {
    Remove(learner, &next_.learners);
    return NewEpoch(ShardStep::kDropLearner,
                    absl::StrCat("learner ", MemberText(learner), " is not wanted any more"));
  }

  ShardDecision NewLearner(ServerId server, absl::string_view why) {
    const Member learner{server, view_.live(server)};
    next_.learners.push_back(learner);
    return {ShardStep::kAddLearner, next_, absl::StrCat(MemberText(learner), " ", why)};
  }

  bool Holds(ServerId server) const {
    return FindServer(record_.members, server) != nullptr ||
           FindServer(record_.learners, server) != nullptr;
  }

  // Pushes do not wait for a reader, so it may lack acknowledged entries until it is a plain
  // learner.
  ShardDecision LetJoin(const Member& learner) {
    next_.readers.erase(std::remove(next_.readers.begin(), next_.readers.end(), learner.server),
                        next_.readers.end());
    return {ShardStep::kLetJoin, next_, absl::StrCat(MemberText(learner), " is to be a member")};
  }

  ShardDecision AddLearner() {
    for (const Member& learner : record_.learners) {
      if (Joins(learner) && Contains(record_.readers, learner.server)) return LetJoin(learner);
    }
    for (const Member& learner : record_.learners) {
      if (Joins(learner)) return Wait(absl::StrCat("copies to ", MemberText(learner)));
    }
    std::string awaited;
    for (const ServerId server : wanted_) {
      if (Holds(server)) continue;
      if (view_.live(server) != 0) return NewLearner(server, "is wanted as a member");
      if (awaited.empty()) awaited = absl::StrCat("waits for server ", server, " to come back");
    }
    if (!awaited.empty()) return Wait(std::move(awaited));
    if (record_.members.size() < wish_.copies) return Refill();
    for (const ServerId server : wish_.readers) {
      if (!Holds(server) && view_.live(server) != 0) {
        next_.readers.push_back(server);
        return NewLearner(server, "is wanted as a read copy");
      }
    }
    return Wait("");
  }

  // A read copy may become the member: it holds the rows already.
  ShardDecision Refill() {
    std::vector<ServerId> holders;
    for (const Member& member : record_.members) holders.push_back(member.server);
    const ServerId server = view_.refill(holders);
    if (server == 0 || Contains(holders, server) || view_.live(server) == 0) {
      return Wait(absl::StrCat("no other server can take copy ", record_.members.size() + 1, " of ",
                               wish_.copies));
    }
    if (const Member* reader = FindServer(record_.learners, server)) {
      if (Contains(record_.readers, server)) return LetJoin(*reader);
      if (view_.join_ready(record_.epoch, *reader)) return Join(Member(*reader));
      return Wait(absl::StrCat("copies to ", MemberText(*reader)));
    }
    return NewLearner(
        server, absl::StrCat("takes copy ", record_.members.size() + 1, " of ", wish_.copies));
  }

  const ShardRecord& record_;
  const ShardWish& wish_;
  const ServerView& view_;
  const Members unheard_;
  ShardRecord next_;              // starts as the record without members that are not live
  std::vector<ServerId> wanted_;  // members wanted now, at most `copies`
};

}  // namespace

ShardDecision DecideShard(const ShardRecord& record, const ShardWish& wish,
                          const ServerView& view) {
  ShardDecision decision = Rules(record, wish, view).Decide();
  if (decision.step != ShardStep::kNone) {
    const std::string broken = BrokenRule(record, decision.next);
    HOTBED_DCHECK(broken.empty()) << broken << ": " << RecordText(record) << " became "
                                  << RecordText(decision.next) << " (" << decision.reason << ")";
    // One shard that waits is better than a coordinator that ends again after each start.
    if (!broken.empty()) {
      decision.step = ShardStep::kNone;
      decision.next = record;
      decision.reason = absl::StrCat("a step would break a rule: ", broken);
    }
  }
  return decision;
}

std::string BrokenRule(const ShardRecord& before, const ShardRecord& after) {
  if (!Contains(after.members, after.primary)) return "the primary is no member";
  for (const Members* members : {&after.members, &after.learners}) {
    for (const Member& m : *members) {
      const size_t replicas = CountServer(after.members, m) + CountServer(after.learners, m);
      if (replicas != 1) return "a server holds two replicas";
    }
  }
  if (after.epoch < before.epoch || after.epoch > before.epoch + 1) {
    return "the epoch does not stay or rise by one";
  }
  if (before.epoch == 0) return "";
  if (after.epoch == before.epoch) {
    const bool same = after.primary == before.primary && SameMembers(after.members, before.members);
    if (!same) return "primary or members changed within an epoch";
    return after.active < before.active ? "an active epoch became inactive" : "";
  }
  if (after.active) return "a new epoch is active before its primary activated it";
  if (!SameMembers(after.base, before.active ? before.members : before.base)) {
    return "the base is not the members of the last active epoch";
  }
  for (const Member& m : after.members) {
    const bool held = Contains(before.members, m) || Contains(before.learners, m) ||
                      (!before.active && Contains(before.base, m));
    const bool back = after.members.size() == 1 &&
                      CountServer(before.members, m) + CountServer(before.base, m) > 0;
    if (!held && !back) return "a new member may lack acknowledged entries";
  }
  return "";
}

}  // namespace hotbed
