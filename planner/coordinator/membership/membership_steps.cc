// The next step of one shard: its wish, its goal, and the decision put into a batch.
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "planner/coordinator/membership/membership.h"
#include "planner/coordinator/membership/membership_batch.h"
#include "planner/coordinator/membership/replica_placement.h"
#include "proto/convert.h"

namespace hotbed {
namespace {

// The order in which waiting transfers begin.
constexpr int kRefillRank = 0;
constexpr int kGoalRank = 1;
constexpr int kReaderRank = 2;
// Transfers to a server that gets its replicas back: most of them need only the tail of the log.
constexpr size_t kReturnsPerServer = 16;
// Nobody waits for a read replica, and nobody reports when one is complete.
constexpr size_t kReadersPerServer = 8;

uint32_t ReplicasOf(const v1::TableSpec& spec) {
  const bool replicated = spec.durability() == v1::DURABILITY_REPLICATED;
  return replicated ? std::max<uint32_t>(1, spec.replicas()) : 1;
}

bool Fulfills(const ShardRecord& record, const v1::ShardGoal& goal, uint32_t replicas) {
  if (goal.servers().empty() || record.primary.server != goal.servers(0)) return false;
  if (!TargetsOf(goal, record).empty()) return false;
  // If a replica was missing when the goal was made, one member more than the goal names stays.
  return SourcesOf(goal, record).empty() ||
         (record.members.size() <= replicas && goal.servers_size() < static_cast<int>(replicas));
}

std::string NamesOf(const ClusterState& state, const std::vector<ServerId>& servers) {
  return absl::StrJoin(servers, " ", [&](std::string* out, ServerId server) {
    absl::StrAppend(out, state.ServerName(server));
  });
}

std::string MoveText(const ClusterState& state, const ShardRecord& record,
                     const v1::ShardGoal& goal) {
  const std::vector<ServerId> to = TargetsOf(goal, record);
  const std::vector<ServerId> from = SourcesOf(goal, record);
  std::string text = from.empty() ? "" : absl::StrCat("from ", NamesOf(state, from), " ");
  absl::StrAppend(&text, "to ",
                  to.empty() ? state.ServerName(goal.servers(0)) : NamesOf(state, to));
  return goal.reason().empty() ? text : absl::StrCat(text, ", ", goal.reason());
}

}  // namespace

std::vector<ServerId> Membership::Avoided(const ShardRecord& record, int64_t now_ns) const {
  std::vector<ServerId> avoided = backoff_.Avoided(record.shard.packed(), now_ns);
  for (const PassedOver& passed : record.passed_over) avoided.push_back(passed.server);
  return avoided;
}

ShardWish Membership::WishOf(const ShardRecord& record, const ClusterState& state,
                             int64_t now_ns) const {
  const v1::TableSpec& spec = state.tables().at(record.shard.table);
  ShardWish wish;
  wish.replicas = ReplicasOf(spec);
  if (const v1::ShardGoal* goal = state.FindGoal(record.shard.packed())) {
    wish.servers.assign(goal->servers().begin(), goal->servers().end());
  }
  if (!spec.data_parallel()) return wish;
  const std::vector<ServerId> avoided = Avoided(record, now_ns);
  const uint64_t bytes = ShardBytes(leases_).Of(record);
  for (const auto& [server, info] : state.servers()) {
    if (ContainsServer(record.members, server) || Contains(wish.servers, server) ||
        Contains(avoided, server)) {
      continue;
    }
    const bool learns = ContainsServer(record.learners, server);
    const bool may = MayTakeReplicas(state, *leases_, server, learns ? 0 : bytes).ok();
    // A read replica stays until its server is gone: one that is dropped is deleted.
    if (may || (learns && leases_->Stopping(server))) wish.readers.push_back(server);
  }
  return wish;
}

template <typename Ask>
auto Membership::WithView(const ShardRecord& record, MembershipBatch* batch, const Ask& ask) {
  const auto live = [&](ServerId server) { return leases_->LiveIncarnation(server); };
  const auto awaited = [&](ServerId server) { return leases_->Awaited(batch->now_ns(), server); };
  const auto refill = [&](const std::vector<ServerId>& members) {
    return RefillPlace(record, members, batch);
  };
  const auto join_ready = [&](Epoch epoch, const Member& member) {
    return epoch == record.epoch && reports_.Joined(record, member);
  };
  const auto out = [&](Epoch epoch, const Member& member) {
    return epoch == record.epoch ? reports_.WhyLeaving(record, member) : MemberOut::kNo;
  };
  const auto held = [&](const Member& process) {
    return reports_.Held(record.shard.packed(), process);
  };
  const auto waited = [&](ServerId server) {
    return !options_.asks_person && leases_->LiveForAwaited(batch->now_ns(), server);
  };
  const auto stops = [&](ServerId server) {
    if (!leases_->Stopping(server)) return ServerStops::kNo;
    return leases_->StopsAlone(batch->now_ns(), server) ? ServerStops::kHandsOver
                                                        : ServerStops::kSoon;
  };
  return ask(ServerView{.live = live,
                        .awaited = awaited,
                        .refill = refill,
                        .join_ready = join_ready,
                        .out = out,
                        .held = held,
                        .waited = waited,
                        .stops = stops});
}

absl::StatusOr<Membership::Chosen> Membership::Choose(const ClusterState& state, int64_t now_ns,
                                                      int64_t unix_ms,
                                                      const v1::ChooseReplicaRequest& request) {
  const ShardRecord* const found = state.FindVisibleShard(request.shard());
  if (found == nullptr) {
    return absl::NotFoundError(absl::StrCat(ShardId::FromPacked(request.shard()).ToString(),
                                            " does not exist: 'hotbed shard list' names them"));
  }
  const ShardRecord& record = *found;
  ServerId server = 0;
  if (const v1::ServerInfo* const info = state.FindServer(request.server())) {
    server = info->server();
  } else if (!absl::SimpleAtoi(request.server(), &server) || !state.servers().contains(server)) {
    return absl::NotFoundError(
        absl::StrCat("server \"", request.server(), "\" is not known: 'hotbed status' names them"));
  }
  MembershipBatch batch(&state, now_ns, unix_ms);
  absl::StatusOr<ShardDecision> decision = WithView(
      record, &batch, [&](const ServerView& view) { return ChooseReplica(record, server, view); });
  const auto text_of = [&](absl::string_view text) {
    return absl::StrCat(state.ShardName(record.shard.packed()), ": ", state.WithServerNames(text));
  };
  if (!decision.ok()) {
    return absl::Status(decision.status().code(), text_of(decision.status().message()));
  }
  if (decision->step == ShardStep::kNone) return absl::InternalError(text_of(decision->reason));
  v1::ChooseReplicaReply reply;
  *reply.mutable_record() = ToProto(decision->next);
  reply.set_text(text_of(decision->reason));
  batch.PutRecord(decision->next);
  batch.Note("chosen", state.WithServerNames(absl::StrCat("a person chose ", decision->reason)),
             record.shard.packed());
  return Chosen{*batch.Finish(), std::move(reply)};
}

void Membership::NoteDoubt(const ShardRecord& record, const ShardDecision& decision,
                           MembershipBatch* batch) {
  if (decision.stopped) {
    const auto news = doubts_.NoteStopped(record, decision.reason, batch->unix_ms());
    if (news != ShardDoubts::News::kStopped) return;
    const absl::string_view why = absl::StripPrefix(decision.reason, "stopped: ");
    batch->Note("stopped", std::string(why), record.shard.packed());
    return;
  }
  const auto news = doubts_.NoteServed(batch->state(), reports_, record, batch->unix_ms());
  if (news == ShardDoubts::News::kHoldsMore) {
    batch->Note("holds_more", doubts_.TextOf(record.shard.packed()), record.shard.packed());
  }
}

void Membership::LookAt(uint64_t packed, MembershipBatch* batch) {
  const ClusterState& state = batch->state();
  waiting_.erase(packed);
  if (gate_why_.erase(packed) > 0) {
    for (const int rank : {kRefillRank, kGoalRank, kReaderRank}) gated_.erase({rank, packed});
  }
  const ShardRecord* const found = state.FindVisibleShard(packed);
  if (found == nullptr) return;
  const ShardRecord& record = *found;
  if (SettleGoal(record, batch)) return;
  ShardDecision decision = WithView(record, batch, [&](const ServerView& view) {
    return DecideShard(record, WishOf(record, state, batch->now_ns()), view);
  });
  decision.reason = state.WithServerNames(decision.reason);
  NoteDoubt(record, decision, batch);
  if (decision.step != ShardStep::kNone) return CarryOut(record, std::move(decision), batch);
  const auto stops = [&](const Member& m) {
    return leases_->Stopping(m.server) && !leases_->StopsAlone(batch->now_ns(), m.server);
  };
  if (!decision.reason.empty()) {
    waiting_[packed] = std::move(decision.reason);
  } else if (std::any_of(record.members.begin(), record.members.end(), stops)) {
    waiting_[packed] = "a server of it is about to stop: looks whether others are, too";
  } else if (state.FindGoal(packed) != nullptr) {
    waiting_[packed] = "nothing can be done for it now";
  }
}

bool Membership::SettleGoal(const ShardRecord& record, MembershipBatch* batch) {
  const ClusterState& state = batch->state();
  const v1::ShardGoal* const goal = state.FindGoal(record.shard.packed());
  if (goal == nullptr) return record.active && DrainGoal(record, batch);
  const v1::TableSpec& spec = state.tables().at(record.shard.table);
  std::string why;
  if (Fulfills(record, *goal, ReplicasOf(spec))) {
    why = "it is so already";
  } else {
    const uint64_t bytes = ShardBytes(leases_).Of(record);
    for (const ServerId server : TargetsOf(*goal, record)) {
      const uint64_t more = ContainsServer(record.learners, server) ? 0 : bytes;
      const absl::Status may = MayTakeReplicas(state, *leases_, server, more);
      const std::string setback = backoff_.Why(record.shard.packed(), server, batch->now_ns());
      if (!setback.empty()) why = absl::StrCat(state.ServerName(server), ": ", setback);
      if (may.ok() || leases_->Awaited(batch->now_ns(), server)) continue;
      why = std::string(may.message());
    }
  }
  if (why.empty()) return false;
  batch->DeleteGoal(record.shard.packed());
  batch->Note("give_up", absl::StrCat(MoveText(state, record, *goal), ": ", why),
              record.shard.packed());
  ++counts_.given_up;
  return true;
}

bool Membership::DrainGoal(const ShardRecord& record, MembershipBatch* batch) {
  const ClusterState& state = batch->state();
  std::vector<ServerId> members = MemberServers(record);
  const auto draining = std::find_if(members.begin(), members.end(), [&](ServerId server) {
    auto info = state.servers().find(server);
    return info != state.servers().end() && info->second.draining();
  });
  if (draining == members.end()) return false;
  const ServerId from = *draining;
  PlaceSearch search;
  for (const ServerId server : members) {
    if (server != from) search.members.push_back(server);
  }
  search.avoid = Avoided(record, batch->now_ns());
  const ServerId to = FindPlace(record, std::move(search), batch);
  const std::string reason = absl::StrCat("drain of ", state.ServerName(from));
  if (to == 0) {
    waiting_[record.shard.packed()] = absl::StrCat(reason, ": no other server can take it");
    return false;
  }
  *draining = to;
  batch->PutGoal(MakeGoal(record.shard, members, reason, state.servers().at(from).drain_number(),
                          batch->unix_ms()));
  return true;
}

ServerId Membership::FindPlace(const ShardRecord& record, PlaceSearch search,
                               MembershipBatch* batch) const {
  search.bytes = ShardBytes(leases_).Of(record);
  search.bytes_to = &batch->bytes_to;
  search.promised = &batch->Promised();
  const auto busy = batch->BusyTargets(options_.transfers_per_server);
  search.busy = &busy;
  return PlaceForReplica(batch->state(), *leases_, search);
}

ServerId Membership::RefillPlace(const ShardRecord& record, const std::vector<ServerId>& members,
                                 MembershipBatch* batch) {
  const ClusterState& state = batch->state();
  PlaceSearch search;
  search.avoid = Avoided(record, batch->now_ns());
  auto holder = last_holder_.find(record.shard.packed());
  if (holder != last_holder_.end() && !Contains(search.avoid, holder->second)) {
    // The last holder needs only the tail of the log.
    const ServerId before = holder->second;
    const bool holds = Contains(members, before);
    if (!holds && MayTakeReplicas(state, *leases_, before).ok()) return before;
    if (!holds && leases_->Awaited(batch->now_ns(), before)) return 0;
    last_holder_.erase(holder);
  } else if (leases_->AnyAwaited(batch->now_ns())) {
    return 0;  // one may be the last holder: this process may have started after the loss
  }
  search.members = members;
  for (const Member& m : record.learners) search.learners.push_back(m.server);
  return FindPlace(record, std::move(search), batch);
}

std::string Membership::Gate(const ShardRecord& record, const Member& learner,
                             const std::vector<ServerId>& readers,
                             const MembershipBatch& batch) const {
  const ClusterState& state = batch.state();
  if (state.move_control().limits().paused()) return "transfers are paused";
  auto holder = last_holder_.find(record.shard.packed());
  const bool returns = holder != last_holder_.end() && holder->second == learner.server;
  const bool reads = Contains(readers, learner.server);
  size_t transfers_max = options_.transfers_per_server;
  if (returns) transfers_max = std::max(transfers_max, kReturnsPerServer);
  if (reads) transfers_max = std::max(transfers_max, kReadersPerServer);
  const auto full = [&](const absl::flat_hash_map<ServerId, size_t>& transfers, ServerId server) {
    auto it = transfers.find(server);
    return it != transfers.end() && it->second >= transfers_max;
  };
  const ServerId from = record.primary.server;
  if (full(batch.transfers_from, from)) {
    return absl::StrCat(transfers_max, " transfers from ", state.ServerName(from),
                        " are in progress");
  }
  if (full(batch.transfers_to, learner.server)) {
    return absl::StrCat(transfers_max, " transfers to ", state.ServerName(learner.server),
                        " are in progress");
  }
  if (returns) return "";  // the server has the rows already
  auto others = batch.bytes_to.find(learner.server);
  const uint64_t bytes = ShardBytes(leases_).Of(record);
  const uint64_t room =
      bytes == 0 || others == batch.bytes_to.end() ? bytes : bytes + others->second;
  return std::string(MayTakeReplicas(state, *leases_, learner.server, room).message());
}

void Membership::CarryOut(const ShardRecord& record, ShardDecision decision,
                          MembershipBatch* batch) {
  const ClusterState& state = batch->state();
  const uint64_t packed = record.shard.packed();
  const v1::ShardGoal* const goal = state.FindGoal(packed);
  const v1::TableSpec& spec = state.tables().at(ShardId::FromPacked(packed).table);
  const uint32_t replicas = ReplicasOf(spec);
  const bool missing = record.members.size() < replicas;
  switch (decision.step) {
    case ShardStep::kAddLearner: {
      const Member& learner = decision.next.learners.back();
      const std::string why = Gate(record, learner, decision.next.readers, *batch);
      if (!why.empty()) {
        gated_.insert({missing ? kRefillRank : goal != nullptr ? kGoalRank : kReaderRank, packed});
        gate_why_[packed] = why;
        return;
      }
      ++batch->transfers_from[record.primary.server];
      ++batch->transfers_to[learner.server];
      batch->bytes_to[learner.server] += ShardBytes(leases_).Of(record);
      if (goal != nullptr) {
        batch->Note("move", MoveText(state, record, *goal), packed);
      } else {
        batch->Note(missing ? "refill" : "read_replica",
                    absl::StrCat("a replica on ", state.ServerName(learner.server)), packed);
      }
      break;
    }
    case ShardStep::kLetJoin:
      break;
    case ShardStep::kJoin:
      if (missing && goal == nullptr) ++counts_.refills;
      if (missing) last_holder_.erase(packed);
      break;
    case ShardStep::kFailOver:
    case ShardStep::kTakeBase:
    case ShardStep::kTakeBack:
      NoteFailOver(record, decision, batch);
      break;
    case ShardStep::kSwitch:
      if (goal == nullptr) batch->Note("switch", decision.reason, packed);
      break;
    case ShardStep::kDropLearner: {
      const std::string more = NoteBackoff(record, decision, batch->now_ns(), state);
      batch->Note(more.empty() ? "drop" : "replica_lost", absl::StrCat(decision.reason, more),
                  packed);
      break;
    }
    case ShardStep::kHeard:
      batch->Note("heard", decision.reason, packed);
      break;
    case ShardStep::kDropMember:
      for (const Member& member : record.members) {
        // It is expected back, and then needs only the tail of the log.
        const bool stops =
            !Contains(decision.next.members, member) && leases_->Stopping(member.server);
        if (stops) last_holder_[packed] = member.server;
      }
      if (goal == nullptr) batch->Note("drop", decision.reason, packed);
      break;
    case ShardStep::kNone:
      return;
  }
  batch->PutRecord(decision.next);
  if (goal == nullptr || !Fulfills(decision.next, *goal, replicas)) return;
  batch->DeleteGoal(packed);
  batch->Note("moved", goal->reason(), packed);
  ++counts_.moves;
}

void Membership::NoteFailOver(const ShardRecord& record, const ShardDecision& decision,
                              MembershipBatch* batch) {
  ++counts_.fail_overs;
  int64_t since = 0;
  bool gone = false;  // the process of some member is gone
  bool lost = false;  // some live process lost its replica
  for (const Member& m : record.members) {
    if (leases_->LiveIncarnation(m.server) == m.incarnation) {
      lost = lost || reports_.WhyLeaving(record, m) == MemberOut::kReplicaLost;
      continue;
    }
    gone = true;
    last_holder_[record.shard.packed()] = m.server;
    since = std::max(since, leases_->GoneSinceNs(m.server));
  }
  const std::vector<PassedOver>& passed_over = decision.next.passed_over;
  const bool passes_over = std::any_of(
      passed_over.begin(), passed_over.end(),
      [&](const PassedOver& passed) { return record.FindPassedOver(passed.server) == nullptr; });
  failing_since_ns_.try_emplace(record.shard.packed(), since != 0 ? since : batch->now_ns());
  const char* const kind = passes_over                             ? "passed_over"
                           : decision.step == ShardStep::kTakeBack ? "take_back"
                           : gone                                  ? "fail_over"
                           : lost                                  ? "replica_lost"
                                                                   : "cut_off";
  const std::string more = NoteBackoff(record, decision, batch->now_ns(), batch->state());
  batch->Note(kind, absl::StrCat(decision.reason, more), record.shard.packed());
}

std::string Membership::NoteBackoff(const ShardRecord& record, const ShardDecision& decision,
                                    int64_t now_ns, const ClusterState& state) {
  std::string told;
  const auto look = [&](const Member& m, const std::vector<Member>& next) {
    // The members of a fence are processes that never lived.
    const bool lives = m.incarnation != 0 && leases_->LiveIncarnation(m.server) == m.incarnation;
    if (!lives || Contains(next, m)) return;
    const MemberReports::Leaving* const report = reports_.FindLeaving(record, m);
    if (report == nullptr || report->why != MemberOut::kReplicaLost) {
      // This may be a primary that its predecessor did not hear from.
      backoff_.NoteUnreached(record.shard.packed(), m.server, now_ns);
      return;
    }
    const std::string again = backoff_.NoteLost(record.shard.packed(), m.server, now_ns);
    if (!again.empty()) absl::StrAppend(&told, "; ", again);
    if (!report->said.empty()) {
      absl::StrAppend(&told, "; ", state.ServerName(m.server), " says: ", report->said);
    }
  };
  for (const Member& m : record.members) look(m, decision.next.members);
  for (const Member& m : record.learners) {
    if (reports_.WhyLeaving(record, m) == MemberOut::kReplicaLost) look(m, decision.next.learners);
  }
  return told;
}

}  // namespace hotbed
