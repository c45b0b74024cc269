// The metadata store, and the coordinators that read it, decide and write by compare-and-set.
#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "planner/coordinator/state/record_text.h"
#include "tests/sim/cluster_simulation.h"
#include "tests/sim/sim_mutant.h"

namespace hotbed::sim {
namespace {

constexpr Time kLeaderTtl = 2 * kSecond;
constexpr Time kPersonLater = 2 * kSecond;  // after all is healed
constexpr size_t kViewsMax = 64;

}  // namespace

// --- the store

ViewPtr ClusterSimulation::View() {
  if (view_ != nullptr) return view_;
  auto view = std::make_shared<StoreView>();
  view->revision = revision_;
  view->records = records_;
  view->wishes = wishes_;
  for (const Watched& watched : shards_) view->gone.push_back(watched.merged_into >= 0);
  for (size_t id = 1; id < leases_.size(); ++id) {
    view->live[id] = leases_[id].incarnation;
    view->stops[id] = leases_[id].stops;
  }
  view_ = view;
  views_.push_back(view_);
  if (views_.size() > kViewsMax) views_.erase(views_.begin(), views_.begin() + kViewsMax / 2);
  return view_;
}

bool ClusterSimulation::AsWished(int shard) const {
  if (records_[shard] == nullptr) return false;
  const ShardRecord& now = *records_[shard];
  const std::vector<ServerId>& wanted = wishes_[shard]->servers;
  return now.active && now.members.size() == wanted.size() &&
         now.primary.server == wanted.front() &&
         std::all_of(now.members.begin(), now.members.end(), [&](const Member& member) {
           return std::count(wanted.begin(), wanted.end(), member.server) != 0;
         });
}

void ClusterSimulation::Put(int shard, ShardRecord record, bool cut) {
  record.revision = ++revision_;
  if (records_[shard] != nullptr) CheckRecord(shard, *records_[shard], record, cut);
  if (records_[shard] == nullptr || record.epoch != records_[shard]->epoch) ++stats_.epochs;
  if (trace_ != nullptr) Trace(absl::StrCat("RECORD ", shard, ": ", RecordText(record)));
  records_[shard] = std::make_shared<const ShardRecord>(std::move(record));
  shards_[shard].past.push_back(records_[shard]);
  if (AsWished(shard) && std::exchange(shards_[shard].wish_open, false)) ++stats_.moves;
  Changed();
}

void ClusterSimulation::ExpireLeases() {
  for (Lease& lease : leases_) {
    if (lease.incarnation != 0 && lease.expires <= time_) {
      lease = Lease();
      Changed();
    }
  }
  if (leader_ >= 0 && leader_expires_ <= time_) leader_ = -1;
}

Task ClusterSimulation::ForCoordinator(int coordinator, Task task) {
  return [this, coordinator, life = coordinators_[coordinator].life, task = std::move(task)] {
    Coordinator& c = coordinators_[coordinator];
    if (!c.alive || c.life != life) return;
    if (c.paused) {
      c.backlog.push_back(task);
    } else {
      task();
    }
  };
}

void ClusterSimulation::AtStore(int coordinator, Task exec, Task done) {
  const int node = CoordinatorNode(coordinator);
  if (Cut(node, kStoreNode) || (stormy() && Chance(0.01))) return;
  // Occasionally a request is delayed so long that its sender is no leader any more.
  const Time way = stormy() && Chance(weather_.store_late) ? Delay(1500 * kMs) : Delay(2 * kMs);
  At(way, [this, node, exec = std::move(exec),
           done = ForCoordinator(coordinator, std::move(done))]() mutable {
    exec();
    if (Cut(kStoreNode, node) || (stormy() && Chance(0.01))) return;
    At(stormy() && Chance(weather_.answers_late) ? Delay(kSecond) : Delay(2 * kMs),
       std::move(done));
  });
}

// --- coordinators

void ClusterSimulation::TickCoordinator(int coordinator) {
  At(Delay(150 * kMs), ForCoordinator(coordinator, [=, this] { TickCoordinator(coordinator); }));
  Lead(coordinator);
  Coordinator& c = coordinators_[coordinator];
  if (c.term == 0 || (c.deciding && time_ < c.deciding_until)) return;
  c.deciding = true;
  c.deciding_until = time_ + kSecond;
  auto read = std::make_shared<ViewPtr>();
  AtStore(
      coordinator,
      [=, this] {
        *read = View();
        if (stormy() && Chance(0.1))
          *read = views_[views_.size() - 1 - Pick(std::min<size_t>(views_.size(), 12))];
      },
      [=, this] { DecideAll(coordinator, *read); });
}

// Takes the leader key when it is free, keeps it alive, and believes its last answer about it.
void ClusterSimulation::Lead(int coordinator) {
  auto term = std::make_shared<uint64_t>(0);
  AtStore(
      coordinator,
      [=, this] {
        if (leader_ == coordinator && stormy() && Chance(0.02)) leader_ = -1;  // revoked
        if (leader_ < 0) {
          leader_ = coordinator;
          leader_term_ = ++revision_;
        }
        if (leader_ != coordinator) return;
        leader_expires_ = time_ + kLeaderTtl;
        *term = leader_term_;
      },
      [=, this] {
        // One that was deposed notices late, or only by its refused writes.
        if (*term != 0 || Chance(0.3)) coordinators_[coordinator].term = *term;
      });
}

ShardDecision ClusterSimulation::Decide(int coordinator, int shard, const StoreView& view) {
  Coordinator& c = coordinators_[coordinator];
  const auto live = [&](ServerId server) { return view.live[server]; };
  const auto awaited = [&](ServerId server) {
    return view.live[server] == 0 ? time_ < c.last_live[server] + kAwaited : view.stops[server];
  };
  const auto refill = [&](const std::vector<ServerId>& members) {
    const int first = Pick(servers_.size());
    for (size_t i = 0; i < servers_.size(); ++i) {
      const ServerId server = (first + i) % servers_.size() + 1;
      const bool member = std::count(members.begin(), members.end(), server) != 0;
      if (!member && view.live[server] != 0 && !view.stops[server]) return server;
    }
    return ServerId{0};
  };
  const auto join_ready = [&](Epoch epoch, const Member& member) {
    if (!Planted(SimMutant::kJoinOfAnyEpoch)) return c.joins.contains({shard, epoch, member});
    return std::any_of(c.joins.begin(), c.joins.end(), [&](const JoinReport& report) {
      return report.shard == shard && report.member == member;
    });
  };
  const auto out = [&](Epoch epoch, const Member& member) {
    const JoinReport report = {shard, epoch, member};
    return c.lost.contains(report)     ? MemberOut::kReplicaLost
           : c.silent.contains(report) ? MemberOut::kSilent
                                       : MemberOut::kNo;
  };
  const auto held = [&](const Member& process) {
    const HeldBy& by = c.held[process.server];
    std::optional<HeldReplica> said;
    if (by.incarnation == process.incarnation) said = by.shards[shard];
    if (said.has_value() && Planted(SimMutant::kEmptierWins)) {
      said->end = {0, std::numeric_limits<Lsn>::max() - said->end.lsn};
    }
    return said;
  };
  const auto waited = [&](ServerId server) {
    const SeenProcess& seen = c.seen[server];
    return Planted(SimMutant::kFirstBackWins) ||
           (seen.incarnation != 0 && time_ >= seen.since + kAwaited);
  };
  const auto stops = [&](ServerId server) {
    return view.stops[server] ? ServerStops::kHandsOver : ServerStops::kNo;
  };
  const ServerView servers = {live, awaited, refill, join_ready, out, held, waited, stops};
  const ShardRecord& record = *view.records[shard];
  ShardDecision decision = DecideShard(record, *view.wishes[shard], servers);
  // A person gives up what was passed over, or begins anew where nobody holds anything, so that the
  // shard may be as wished in the end.
  const bool doubt = record.active && !record.passed_over.empty();
  if (time_ > heal_time_ + kPersonLater && decision.step == ShardStep::kNone &&
      (doubt || decision.stopped)) {
    auto chosen = ChooseReplica(record, record.primary.server, servers);
    for (const Member& other : record.base) {  // where the primary's replica is found to be spoilt
      if (chosen.ok() || view.live[record.primary.server] == 0) break;
      if (decision.stopped) chosen = ChooseReplica(record, other.server, servers);
    }
    if (chosen.ok()) decision = *chosen;
  }
  if (g_sim_mutant != SimMutant::kNone) {
    Mutate(*view.records[shard], *view.wishes[shard], &decision);
  }
  return decision;
}

void ClusterSimulation::Mutate(const ShardRecord& record, const ShardWish& wish,
                               ShardDecision* decision) {
  ShardRecord& next = decision->next;
  if (Planted(SimMutant::kPassedOverForgotten)) next.passed_over.clear();
  if (Planted(SimMutant::kLearnerGoesInItsEpoch) && decision->step == ShardStep::kDropLearner) {
    next.epoch = record.epoch;
    next.active = record.active;
  }
  const bool switches = decision->step == ShardStep::kSwitch;
  if (Planted(SimMutant::kSwitchDropsPrimary) && switches && next.members.size() > wish.replicas) {
    std::erase(next.members, record.primary);
  }
  if (Planted(SimMutant::kSilentPrimaryLeaves) && decision->step == ShardStep::kFailOver &&
      !record.active && !record.base.empty() && next.primary == record.base.front() &&
      !(next.primary == record.primary)) {
    next.members = record.members;
    std::erase(next.members, next.primary);
    next.primary = record.primary;
  }
  if (Planted(SimMutant::kBaseTakenFromActive) && decision->step == ShardStep::kNone &&
      record.active && record.members.size() > 1) {
    next.members.erase(next.members.begin());
    next.primary = next.members.front();
    next.epoch = record.epoch + 1;
    next.active = false;
  }
}

void ClusterSimulation::DecideAll(int coordinator, const ViewPtr& view) {
  Coordinator& c = coordinators_[coordinator];
  c.deciding = false;
  if (c.term == 0) return;
  for (size_t id = 1; id < view->live.size(); ++id) {
    if (view->live[id] != 0) c.last_live[id] = time_;
    if (view->live[id] != c.seen[id].incarnation) c.seen[id] = {view->live[id], time_};
  }
  // The replica of a process that takes part changes: what it said before says nothing now.
  for (size_t shard = 0; shard < view->records.size(); ++shard) {
    const ShardRecord& record = *view->records[shard];
    for (const std::vector<Member>* some : {&record.members, &record.learners}) {
      for (const Member& process : *some) {
        HeldBy& by = c.held[process.server];
        if (by.incarnation == process.incarnation) by.shards[shard].reset();
      }
    }
  }
  std::vector<Write> writes;
  for (int shard = 0; shard < static_cast<int>(view->records.size()); ++shard) {
    if (Gone(shard)) continue;
    ShardDecision decision = Decide(coordinator, shard, *view);
    if (decision.step == ShardStep::kNone && decision.next.epoch == view->records[shard]->epoch) {
      continue;
    }
    writes.push_back({shard, view->records[shard]->revision, std::move(decision)});
  }
  if (writes.empty()) return;
  c.deciding = true;
  c.deciding_until = time_ + kSecond;
  Time held_back = 0;
  for (const Write& write : writes) {
    if (write.decision.step != ShardStep::kFailOver || weather_.revives == 0) continue;
    if (!stormy() || !Chance(weather_.revives)) continue;
    held_back = Delay(100 * kMs);
    At(held_back, [this, dead = view->records[write.shard]->primary] { Revive(dead); });
  }
  const Task commit = [=, this, term = c.term] {
    AtStore(
        coordinator, [=, this] { Commit(coordinator, term, writes); },
        [=, this] { coordinators_[coordinator].deciding = false; });
  };
  if (held_back == 0) return commit();
  At(held_back, ForCoordinator(coordinator, commit));
}

bool ClusterSimulation::WriteHolds(const Write& write) const {
  const ShardRecord& now = *records_[write.shard];
  if (Gone(write.shard)) return false;
  if (!Planted(SimMutant::kRecordNotCompared) && now.revision != write.revision) return false;
  if (Planted(SimMutant::kLeaseNotCompared)) return true;
  const ShardStep step = write.decision.step;
  if (step != ShardStep::kFailOver && step != ShardStep::kTakeBase &&
      step != ShardStep::kTakeBack) {
    return true;
  }
  // Who is replaced as dead may not have come alive since, if it was primary: it may answer strict
  // pulls again. Whose replica is spoilt answers none, nor who left before: its lease came with
  // that.
  const std::vector<Member>& kept = write.decision.next.members;
  const Member& last = now.active || now.base.empty() ? now.primary : now.base.front();
  return Contains(kept, last) || !Contains(now.members, last) ||
         leases_[last.server].incarnation != last.incarnation || IsSpoilt(write.shard, last) ||
         Planted(SimMutant::kSilentPrimaryLeaves);
}

// One transaction: all writes, or none.
void ClusterSimulation::Commit(int coordinator, uint64_t term, const std::vector<Write>& writes) {
  const bool leads = leader_ == coordinator && leader_term_ == term;
  bool holds = leads || Planted(SimMutant::kLeaderNotCompared);
  for (const Write& write : writes) holds = holds && WriteHolds(write);
  if (!holds) {
    ++stats_.writes_refused;
    return;
  }
  if (!leads) Violation("a write of a deposed coordinator landed");  // I11
  for (const Write& write : writes) {
    const RecordPtr before = records_[write.shard];
    if (trace_ != nullptr) Trace(absl::StrCat("c", coordinator, ": ", write.decision.reason));
    Put(write.shard, write.decision.next);
    CountStep(write.shard, *before, write.decision);
    if (weather_.isolates > 0 && stormy() && Chance(weather_.isolates)) {
      Isolate(static_cast<int>(before->primary.server) - 1, Delay(4 * kSecond));
    }
    Spread(coordinator, records_[write.shard]);
  }
}

void ClusterSimulation::CountStep(int shard, const ShardRecord& before,
                                  const ShardDecision& decision) {
  switch (decision.step) {
    case ShardStep::kFailOver:
      ++stats_.fail_overs;
      return CountCutOff(shard, before, decision.next);
    case ShardStep::kTakeBase:
      ++stats_.bases_taken;
      for (const Member& member : before.base) shards_[shard].kept.erase(member.server);
      return;
    case ShardStep::kTakeBack:
      ++stats_.taken_back;
      return NoteTakenBack(shard, before, decision.next.primary);
    case ShardStep::kHeard:
      for (const PassedOver& passed : before.passed_over) {
        if (records_[shard]->FindPassedOver(passed.server) != nullptr) continue;
        if (time_ > heal_time_ + kPersonLater) shards_[shard].kept.erase(passed.server);
      }
      return;
    default:
      return;
  }
}

void ClusterSimulation::CountCutOff(int shard, const ShardRecord& before, const ShardRecord& next) {
  for (const Member& member : before.members) {
    const bool stays = Contains(next.members, member);
    const bool lives = leases_[member.server].incarnation == member.incarnation;
    if (!stays && lives && !IsSpoilt(shard, member)) ++stats_.cut_off;
  }
}

// State that no disk has kept may be gone now.
void ClusterSimulation::NoteTakenBack(int shard, const ShardRecord& before, const Member& primary) {
  Watched& watched = shards_[shard];
  if (!before.active && before.base.empty()) return;  // nothing was acknowledged
  CheckTakenBack(shard, before, primary);
  stats_.passed_over += records_[shard]->passed_over.size();
  watched.kept.erase(primary.server);
  const Replica* const replica =
      ProcessOf(primary) == nullptr ? nullptr : Open(servers_[primary.server - 1], shard);
  const Lsn log_end = replica == nullptr ? 0 : replica->shard->core().last_lsn();
  const Lsn last = replica == nullptr ? 0 : std::max(log_end, replica->guard);
  // Rows ahead of the log hold pushes that no session knows of, acknowledged or not: sent again,
  // they are added again.
  watched.torn = watched.torn || last > log_end;
  if (HoldsAll(primary.server, shard)) return;
  const auto lost = [&](const Member& member) {
    return member.server == primary.server &&
           member.incarnation <= servers_[member.server - 1].tail_lost;
  };
  const bool may_lose = watched.setting.durability == Durability::kCheckpoint ||
                        std::any_of(before.members.begin(), before.members.end(), lost) ||
                        std::any_of(before.base.begin(), before.base.end(), lost);
  if (!may_lose && ProcessOf(primary) != nullptr) {
    Violation(absl::StrCat("shard ", shard, ": s", primary.server,
                           " has lost entries, and its disk", " has not: ", RecordText(before)));
  }
  ++stats_.lossy;
  watched.lossy = true;
  watched.lost_below = records_[shard]->epoch;
  watched.committed.resize(std::min<size_t>(watched.committed.size(), last));
  watched.commit = std::min(watched.commit, last);
  watched.activations.clear();
  watched.acknowledged_lsn.clear();
  watched.acknowledged_seq.clear();
  const RowSet rows = RowsOf(shard);
  for (int row = 0; row < kRows; ++row) {
    if ((rows >> row & 1) != 0) Family(shard).acknowledged_sum[row] = 0;
  }
  for (PushInfo& push : pushes_) {
    if (push.family == watched.family) push.may_be_lost |= rows;
  }
  // But not what the last checkpoint has, whatever was cut or merged since.
  const auto& checkpointed = Family(shard).checkpointed[primary.server - 1];
  for (int row = 0; row < kRows; ++row) {
    if ((rows >> row & 1) == 0) continue;
    for (uint32_t node = checkpointed[row]; node != 0; node = nodes_[node].before) {
      pushes_[nodes_[node].push].may_be_lost &= static_cast<RowSet>(~(1u << row));
    }
  }
  for (Client& client : clients_) {
    for (size_t lane = 0; lane < shards_.size(); ++lane) {
      Pipe& pipe = client.pipes[lane];
      if (shards_[lane].family != watched.family || (pipe.rows & rows) == 0) continue;
      pipe.lsn_min = pipe.lsn_known = 0;
      for (int row = 0; row < kRows; ++row) {
        if ((rows >> row & 1) == 0) continue;  // of another shard
        pipe.seen[row] = 0;
        pipe.acknowledged[row] = 0;
      }
    }
  }
}

void ClusterSimulation::HeartbeatArrives(int coordinator, int server, Incarnation incarnation,
                                         Time sent, const HeardOf& heard) {
  Coordinator& c = coordinators_[coordinator];
  if (c.term == 0) return;
  c.joins.insert(heard.joins.begin(), heard.joins.end());
  if (c.joins.size() > 64) c.joins.erase(c.joins.begin());
  c.lost.insert(heard.lost.begin(), heard.lost.end());
  if (c.lost.size() > 64) c.lost.erase(c.lost.begin());
  c.silent.insert(heard.silent.begin(), heard.silent.end());
  if (c.silent.size() > 64) c.silent.erase(c.silent.begin());
  HeldBy& by = c.held[server + 1];
  if (by.incarnation < incarnation) {
    by = HeldBy();
    by.incarnation = incarnation;
  }
  if (by.incarnation == incarnation) {
    const Member process = {static_cast<ServerId>(server) + 1, incarnation};
    for (const HeldReport& report : heard.held) {
      const ShardRecord& now = *records_[report.shard];
      const LogEnd& end = report.replica.end;
      if (end.epoch != 0 && end.epoch < now.merge.base.epoch) continue;  // not merged yet
      if (!now.Holds(process)) by.shards[report.shard] = report.replica;
    }
  }
  auto granted = std::make_shared<std::pair<bool, ViewPtr>>();
  AtStore(
      coordinator,
      [=, this] {
        Lease& lease = leases_[server + 1];
        if (incarnation < lease.incarnation) return;
        if (lease.incarnation != incarnation) {
          lease.incarnation = incarnation;
          lease.stops = false;
          Changed();
        }
        lease.expires = time_ + 3 * kSecond;
        *granted = {true, View()};
      },
      [=, this] {
        if (!granted->first) return;
        Datagram(CoordinatorNode(coordinator), ServerNode(server), [=, this] {
          Process* p = ProcessOf({static_cast<ServerId>(server) + 1, incarnation});
          if (p == nullptr) return;
          ForLife(server, [=, this] {
            LearnView(server, *granted->second);
            // Records first: a lease that outlived its end must not be taken up in an old epoch.
            const Time from =
                Planted(SimMutant::kLeaseFromAnswer) ? LocalTime(servers_[server]) : sent;
            std::atomic<int64_t>& until_ns = servers_[server].process->budget.lease_until_ns;
            const int64_t granted_ns = (from + 2850 * kMs) * (kMillisecondNs / kMs);
            until_ns = std::max(until_ns.load(), granted_ns);
          })();
        });
      });
}

void ClusterSimulation::ActivationArrives(int coordinator, int shard, Member asks, Epoch epoch,
                                          Lsn tail) {
  const uint64_t term = coordinators_[coordinator].term;
  if (term == 0) return;
  AtStore(
      coordinator,
      [=, this] {
        const bool leads = leader_ == coordinator && leader_term_ == term;
        if (leads || Planted(SimMutant::kLeaderNotCompared)) Activate(shard, asks, epoch, tail);
      },
      [=, this] { Spread(coordinator, records_[shard]); });
}

void ClusterSimulation::Activate(int shard, const Member& asks, Epoch epoch, Lsn tail) {
  const ShardRecord& record = *records_[shard];
  if (Gone(shard) || record.epoch != epoch || !(record.primary == asks) || record.active) return;
  ShardRecord next = record;
  next.active = true;
  next.base = next.members;
  Put(shard, std::move(next));
  CheckActivated(shard, epoch, tail);
  if (weather_.cuts_activated > 0 && stormy() && Chance(weather_.cuts_activated)) {
    CutActivated(*records_[shard]);
  }
}

void ClusterSimulation::Spread(int coordinator, const RecordPtr& record) {
  for (const Server& server : servers_) {
    Datagram(CoordinatorNode(coordinator), ServerNode(server.index),
             [this, index = server.index, record] {
               if (servers_[index].process == nullptr) return;
               ForLife(index, [this, index, record] { Learn(index, record); })();
             });
  }
}

}  // namespace hotbed::sim
