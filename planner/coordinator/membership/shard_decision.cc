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
    stays_ = std::any_of(next_.members.begin(), next_.members.end(),
                         [this](const Member& member) { return !Stops(member.server); });
    // Servers that are gone for good lose their place; awaited ones keep it.
    for (const ServerId server : wish.servers) {
      if (wanted_.size() >= wish.replicas) break;
      if (IsPassedOver(server)) continue;
      const bool counts = view.live(server) != 0 || view.awaited(server);
      if (counts && !Contains(wanted_, server)) wanted_.push_back(server);
    }
  }

  ShardDecision Decide() { return Checked(Rule()); }

  absl::StatusOr<ShardDecision> Choose(ServerId server) {
    if (!next_.members.empty()) return ChoosePresent(server);
    const std::vector<Asked> asked = AskedServers();
    const auto one = [server](const Asked& a) { return a.live.server == server; };
    const bool named = std::any_of(asked.begin(), asked.end(), one) || IsPassedOver(server);
    const Asked chosen = Ask({server, 0});
    if (!named || chosen.live.incarnation == 0) {
      return absl::FailedPreconditionError(absl::StrCat(
          "server ", server,
          named ? " is down: start it, then choose it again" : " held no replica that may count",
          "; ", StoppedText(asked)));
    }
    if (Spoilt(chosen.live)) {  // the next epoch would end as this one did
      return absl::FailedPreconditionError(
          absl::StrCat("the replica of server ", server,
                       " is damaged, or differs from its primary's: choose another server; ",
                       StoppedText(asked)));
    }
    std::vector<Asked> unheard;  // those that were heard are given up
    for (const Asked& other : asked) {
      if (!other.said.has_value()) unheard.push_back(other);
    }
    return Checked(Take(chosen, unheard));
  }

 private:
  absl::StatusOr<ShardDecision> ChoosePresent(ServerId server) {
    if (record_.passed_over.empty()) {
      return absl::FailedPreconditionError(
          absl::StrCat("nothing is to be chosen: ", MembersText(next_.members), " hold the shard"));
    }
    if (IsPassedOver(server)) {
      return absl::FailedPreconditionError(absl::StrCat(
          MemberText(record_.primary), " serves the shard and takes pushes that server ", server,
          " lacks; stop ", MemberText(record_.primary), ", then choose server ", server,
          " again, and those pushes are lost"));
    }
    if (server != record_.primary.server) {
      return absl::FailedPreconditionError(
          absl::StrCat("server ", server, " is not the primary; choose server ",
                       record_.primary.server, " to give up the replicas that were passed over"));
    }
    Members given_up;
    for (const PassedOver& passed : record_.passed_over) {
      given_up.push_back({passed.server, view_.live(passed.server)});
    }
    ShardRecord next = record_;
    next.passed_over.clear();
    return Checked({ShardStep::kHeard, std::move(next),
                    absl::StrCat("keeps the replica of ", MemberText(record_.primary),
                                 " and gives up that of ", MembersText(given_up))});
  }

  // A step that breaks no rule, or none.
  ShardDecision Checked(ShardDecision decision) const {
    if (decision.step == ShardStep::kNone) return decision;
    // A reader that is no learner any more goes.
    std::erase_if(decision.next.readers, [&](ServerId server) {
      return FindServer(decision.next.learners, server) == nullptr;
    });
    const std::string broken = BrokenRule(record_, decision.next);
    HOTBED_DCHECK(broken.empty()) << broken << ": " << RecordText(record_) << " became "
                                  << RecordText(decision.next) << " (" << decision.reason << ")";
    // One shard that waits is better than a coordinator that ends again after each start.
    if (broken.empty()) return decision;
    return {ShardStep::kNone, record_, absl::StrCat("a step would break a rule: ", broken)};
  }

  ShardDecision Rule() {
    if (next_.members.size() < record_.members.size()) return LoseMembers();
    if (next_.learners.size() < record_.learners.size()) return LoseLearners();
    // Nothing is acknowledged until the epoch is active, so another change could only delay that.
    // Waiting also keeps `base` the members of one epoch (see TakeBack).
    if (!record_.active) {
      return Wait(absl::StrCat("waits for ", MemberText(record_.primary), " to activate epoch ",
                               record_.epoch));
    }
    if (auto heard = HearPassedOver(); heard.has_value()) return *std::move(heard);
    for (const Member& learner : record_.learners) {
      if (Contains(record_.readers, learner.server)) continue;
      if (Stops(learner.server)) continue;
      if (Joins(learner) && view_.join_ready(record_.epoch, learner)) return Join(learner);
    }
    if (const Member* successor = Successor()) return Switch(*successor);
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
  bool Stops(ServerId server) const { return view_.stops(server) != ServerStops::kNo; }
  // The member is to leave before its server stops. Alone it stays: nobody else serves the shard.
  bool HandsOver(const Member& member) const {
    return stays_ && view_.stops(member.server) == ServerStops::kHandsOver;
  }
  bool Wanted(const Member& member) const { return Contains(wanted_, member.server); }
  bool Reads(const Member& learner) const { return Contains(wish_.readers, learner.server); }

  ShardDecision Wait(std::string reason) const {
    return {ShardStep::kNone, record_, std::move(reason)};
  }
  ShardDecision Stop(std::string reason) const {
    return {ShardStep::kNone, record_, std::move(reason), /*stopped=*/true};
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
      texts.push_back(absl::StrCat("the replica of ", MembersText(spoilt),
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
    // Members of the base that were passed over since hold no more than this one.
    std::erase_if(next_.passed_over, [this](const PassedOver& passed) {
      return ContainsServer(record_.base, passed.server);
    });
    return NewEpoch(ShardStep::kTakeBase,
                    absl::StrCat("lost ", GoneText(), " before epoch ", record_.epoch,
                                 " was active, back to ", MembersText(next_.members)));
  }

  // One of the servers that may hold the shard when no member is left.
  struct Asked {
    Member named;                     // by the record
    Member live;                      // incarnation 0: it is down
    std::optional<HeldReplica> said;  // by `live`
  };

  // The servers of the members, the primary's first, and if the epoch never was active those of the
  // base. No later process of such a server can have been a learner, whose replica may be
  // incomplete, as long as the record names the earlier process: learners are added in active
  // epochs only, and no server appears twice.
  std::vector<Asked> AskedServers() const {
    Members named = record_.members;
    const auto primary = std::find(named.begin(), named.end(), record_.primary);
    if (primary != named.end()) std::iter_swap(named.begin(), primary);
    if (!record_.active) named.insert(named.end(), record_.base.begin(), record_.base.end());
    std::vector<Asked> asked;
    for (const Member& member : named) {
      const auto known = [&](const Asked& a) { return a.live.server == member.server; };
      if (std::none_of(asked.begin(), asked.end(), known)) asked.push_back(Ask(member));
    }
    return asked;
  }

  Asked Ask(const Member& named) const {
    Asked asked{named, {named.server, view_.live(named.server)}, std::nullopt};
    if (asked.live.incarnation == 0) return asked;
    asked.said = view_.held(asked.live);
    if (Spoilt(asked.live)) {  // it may have said so only as a member, after what it said before
      if (!asked.said.has_value()) asked.said.emplace();
      asked.said->damaged = true;
    }
    if (asked.said.has_value() && asked.live.server == record_.primary.server) {
      asked.said->end = EndWhenChosen(asked.said->end);
    }
    return asked;
  }

  // The primary of an epoch that never was active may be one that was taken in spite of others that
  // were not heard. It has logged nothing since, but may have skipped LSNs that its rows carry, and
  // given them the number of its epoch: that makes it no fuller than it was.
  LogEnd EndWhenChosen(LogEnd end) const {
    if (record_.active) return end;
    for (const PassedOver& passed : record_.passed_over) {
      if (ContainsServer(record_.base, passed.server)) end = std::min(end, passed.chosen);
    }
    return end;
  }

  // Whether `a` is the better replica to go on with.
  static bool Fuller(const HeldReplica& a, const HeldReplica& b) {
    if (a.usable() != b.usable()) return a.usable();
    if (a.nothing != b.nothing) return b.nothing;
    return a.end != b.end ? a.end > b.end : b.behind && !a.behind;
  }

  // Each member of an active epoch held everything that was acknowledged, but its disk may have
  // lost the end of the log, all of it, or more. So all members of the last active epoch are waited
  // for, and the fullest is taken: by the order of LogEnd its log contains that of the others. A
  // member that does not come back in time is passed over. This holds for class `checkpoint` too:
  // it promises the contents of the last checkpoint only, and a server that comes back has those.
  ShardDecision TakeBack() {
    const std::vector<Asked> asked = AskedServers();
    const Asked* best = nullptr;
    bool all_heard = true;
    bool waited = false;
    for (const Asked& one : asked) {
      const bool lives = one.live.incarnation != 0;
      // Nothing was ever acknowledged: nobody can lack anything.
      if (NeverActive() && lives && !Spoilt(one.live)) return Take(one, {});
      all_heard = all_heard && one.said.has_value();
      if (!one.said.has_value()) continue;
      const bool whole = record_.active && one.said->member_of == record_.epoch;
      if (whole && one.said->usable()) return Take(one, {});
      waited = waited || (one.said->usable() && view_.waited(one.live.server));
      if (best == nullptr || Fuller(*one.said, *best->said)) best = &one;
    }
    if (best == nullptr) return Stop(StoppedText(asked));
    // A damaged replica becomes primary only to tell clients so, and where there is no other.
    const bool tells = all_heard && !best->said->nothing && !Spoilt(best->live);
    const bool may_take = best->said->usable() ? all_heard || waited : tells;
    return may_take ? Take(*best, asked) : Stop(StoppedText(asked));
  }

  bool NeverActive() const { return !record_.active && record_.base.empty(); }

  // Goes on with the replica of `chosen`, passing over those of `asked` that may hold more.
  ShardDecision Take(const Asked& chosen, const std::vector<Asked>& asked) {
    const ServerId server = chosen.live.server;
    const HeldReplica said = chosen.said.value_or(HeldReplica());
    std::vector<PassedOver> passed = std::exchange(next_.passed_over, {});
    Members unheard;
    for (const Asked& one : asked) {
      if (one.live.server == server) continue;
      const bool heard = one.said.has_value() && !Spoilt(one.live);
      if (heard && (one.said->nothing || one.said->end <= said.end)) {
        std::erase_if(passed, [&](const PassedOver& p) { return p.server == one.live.server; });
        continue;
      }
      unheard.push_back(one.named);
      if (record_.FindPassedOver(one.live.server) == nullptr) {
        passed.push_back({one.live.server, said.end});
      }
    }
    for (const PassedOver& one : passed) {
      if (one.server != server) next_.passed_over.push_back(one);
    }
    next_.primary = chosen.live;
    next_.members = {next_.primary};
    KeepLearnersApart();
    std::string reason = absl::StrCat("lost all of ", MembersText(record_.members), ", ",
                                      MemberText(next_.primary), " is back with ");
    if (NeverActive()) {
      absl::StrAppend(&reason, "nothing to lack: nothing was ever acknowledged");
    } else if (!said.usable()) {
      absl::StrAppend(&reason, "no replica that can be used");
    } else if (unheard.empty()) {
      absl::StrAppend(&reason, "its log");
    } else {
      absl::StrAppend(&reason, "its log up to ", LogEndText(said.end));
    }
    if (said.usable() && said.behind) absl::StrAppend(&reason, ", whose end is lost");
    if (!unheard.empty()) {
      absl::StrAppend(&reason, "; goes on without ", MembersText(unheard), ", which may hold more");
    }
    return NewEpoch(ShardStep::kTakeBack, std::move(reason));
  }

  std::string StoppedText(const std::vector<Asked>& asked) const {
    std::vector<std::string> back;
    Members missing;
    bool usable = false;
    for (const Asked& one : asked) {
      if (one.live.incarnation == 0 || !one.said.has_value()) {
        missing.push_back(one.named);
        continue;
      }
      if (Spoilt(one.live)) continue;  // GoneText names it
      usable = usable || one.said->usable();
      back.push_back(
          absl::StrCat(MemberText(one.live),
                       one.said->nothing ? " is back without a replica"
                       : one.said->damaged
                           ? " is back, its replica is damaged"
                           : absl::StrCat(" is back with its log up to ", LogEndText(one.said->end),
                                          one.said->behind ? " (its end is lost)" : "")));
    }
    std::string text = absl::StrCat("stopped: lost all of ", GoneText());
    if (back.empty()) {
      return absl::StrCat(text, "; goes on when one of them is back with its data directory");
    }
    absl::StrAppend(&text, "; ", absl::StrJoin(back, ", "));
    if (!missing.empty()) {
      absl::StrAppend(&text, "; waits for ", MembersText(missing), ", which may hold ",
                      usable ? "more" : "it");
    }
    return absl::StrCat(text, "; 'hotbed shard choose' goes on at once");
  }

  // A server that was passed over and is back with no more than the replica that was taken is a
  // server like others.
  std::optional<ShardDecision> HearPassedOver() {
    for (const PassedOver& passed : record_.passed_over) {
      const Member live = {passed.server, view_.live(passed.server)};
      const auto said = live.incarnation == 0 ? std::nullopt : view_.held(live);
      if (!said.has_value() || (!said->nothing && said->end > passed.chosen)) continue;
      std::erase(next_.passed_over, passed);
      return ShardDecision{
          ShardStep::kHeard, next_,
          absl::StrCat(MemberText(live), " holds no more than ", LogEndText(passed.chosen),
                       ", the end of the replica that was taken")};
    }
    return std::nullopt;
  }

  bool IsPassedOver(ServerId server) const { return record_.FindPassedOver(server) != nullptr; }

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
    size_t replicas = record_.members.size();
    bool before = true;
    for (const Member& other : record_.learners) {
      if (other == learner) before = false;
      if (Wanted(other) || (before && !Reads(other))) ++replicas;
    }
    return replicas < wish_.replicas;
  }

  ShardDecision Join(Member learner) {
    next_.members.push_back(learner);
    Remove(learner, &next_.learners);
    return NewEpoch(ShardStep::kJoin, absl::StrCat(MemberText(learner), " holds everything"));
  }

  // The member that is to be primary instead of the one that is; nullptr: none.
  const Member* Successor() const {
    for (const ServerId server : wanted_) {
      const Member* const member = FindServer(record_.members, server);
      const bool first = server == wanted_.front();
      if (member == nullptr || Stops(server) || !(first || HandsOver(record_.primary))) continue;
      return *member == record_.primary ? nullptr : member;
    }
    if (!HandsOver(record_.primary)) return nullptr;
    const auto stays = std::find_if(record_.members.begin(), record_.members.end(),
                                    [this](const Member& m) { return !Stops(m.server); });
    return &*stays;
  }

  // The old primary stays a member even if it has to leave later: the new epoch becomes active only
  // once the old primary has promised it. If it left at once, it could, alive and with a valid
  // lease, answer strict pulls from its rows after others have acknowledged newer ones.
  ShardDecision Switch(Member successor) {
    next_.primary = successor;
    return NewEpoch(ShardStep::kSwitch,
                    HandsOver(record_.primary)
                        ? absl::StrCat(MemberText(record_.primary),
                                       " is about to stop, primary is now ", MemberText(successor))
                        : absl::StrCat(MemberText(successor), " is wanted as primary instead of ",
                                       MemberText(record_.primary)));
  }

  // A member that hands over, or the last surplus one; never the primary, which has to be replaced
  // first.
  const Member* Surplus() const {
    for (const Member& member : record_.members) {
      if (!(member == record_.primary) && HandsOver(member)) return &member;
    }
    if (record_.members.size() <= std::max<size_t>(1, wish_.replicas)) return nullptr;
    for (size_t i = record_.members.size(); i-- > 0;) {
      const Member& member = record_.members[i];
      if (!(member == record_.primary) && !Wanted(member)) return &member;
    }
    return nullptr;
  }

  ShardDecision DropMember(const Member& member) {
    const Member gone = member;
    Remove(gone, &next_.members);
    if (HandsOver(gone)) {
      return NewEpoch(ShardStep::kDropMember, absl::StrCat(MemberText(gone), " is about to stop"));
    }
    return NewEpoch(ShardStep::kDropMember,
                    absl::StrCat(MemberText(gone), " is beyond the ", wish_.replicas,
                                 wish_.replicas == 1 ? " replica wanted" : " replicas wanted"));
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
      if (Joins(learner)) return Wait(absl::StrCat("transfer to ", MemberText(learner)));
    }
    std::string awaited;
    for (const ServerId server : wanted_) {
      if (Holds(server)) continue;
      if (view_.live(server) != 0 && !Stops(server)) {
        return NewLearner(server, "is wanted as a member");
      }
      if (awaited.empty()) awaited = absl::StrCat("waits for server ", server, " to come back");
    }
    if (!awaited.empty()) return Wait(std::move(awaited));
    if (record_.members.size() < wish_.replicas) return Refill();
    for (const ServerId server : wish_.readers) {
      const bool may = view_.live(server) != 0 && !Stops(server);
      if (may && !Holds(server) && !IsPassedOver(server)) {
        next_.readers.push_back(server);
        return NewLearner(server, "is wanted as a read replica");
      }
    }
    return Wait("");
  }

  // A read replica may become the member: it holds the rows already.
  ShardDecision Refill() {
    std::vector<ServerId> holders;
    for (const Member& member : record_.members) holders.push_back(member.server);
    const ServerId server = view_.refill(holders);
    const bool may = server != 0 && !Contains(holders, server) && !IsPassedOver(server);
    if (!may || view_.live(server) == 0) {
      return Wait(absl::StrCat("no other server can take replica ", record_.members.size() + 1,
                               " of ", wish_.replicas));
    }
    if (const Member* reader = FindServer(record_.learners, server)) {
      if (Contains(record_.readers, server)) return LetJoin(*reader);
      if (view_.join_ready(record_.epoch, *reader)) return Join(Member(*reader));
      return Wait(absl::StrCat("transfer to ", MemberText(*reader)));
    }
    return NewLearner(
        server, absl::StrCat("takes replica ", record_.members.size() + 1, " of ", wish_.replicas));
  }

  const ShardRecord& record_;
  const ShardWish& wish_;
  const ServerView& view_;
  const Members unheard_;
  ShardRecord next_;              // starts as the record without members that are not live
  std::vector<ServerId> wanted_;  // members wanted now, at most `replicas`
  bool stays_ = false;            // a member lives whose server is not about to stop
};

}  // namespace

ShardDecision DecideShard(const ShardRecord& record, const ShardWish& wish,
                          const ServerView& view) {
  return Rules(record, wish, view).Decide();
}

absl::StatusOr<ShardDecision> ChooseReplica(const ShardRecord& record, ServerId server,
                                            const ServerView& view) {
  const ShardWish wish;
  return Rules(record, wish, view).Choose(server);
}

std::string BrokenRule(const ShardRecord& before, const ShardRecord& after) {
  if (!Contains(after.members, after.primary)) return "the primary is no member";
  for (const Members* members : {&after.members, &after.learners}) {
    for (const Member& m : *members) {
      const size_t replicas = CountServer(after.members, m) + CountServer(after.learners, m);
      if (replicas != 1) return "a server holds two replicas";
      if (after.FindPassedOver(m.server) != nullptr)
        return "a server that was passed over takes part";
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
    const bool back = after.members.size() == 1 && (ContainsServer(before.members, m.server) ||
                                                    ContainsServer(before.base, m.server) ||
                                                    before.FindPassedOver(m.server) != nullptr);
    if (!held && !back) return "a new member may lack acknowledged entries";
  }
  return "";
}

}  // namespace hotbed
