// The faults of the simulated cluster, and the changes of what is wanted of it.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tests/sim/cluster_simulation.h"
#include "tests/sim/sim_mutant.h"

namespace hotbed::sim {
namespace {

using Pairs = std::vector<std::pair<int, int>>;

Pairs FromCoordinators(int server) {
  Pairs pairs;
  for (int i = 0; i < kCoordinators; ++i) {
    pairs.emplace_back(CoordinatorNode(i), ServerNode(server));
  }
  return pairs;
}

Pairs ToCoordinators(int server) {
  Pairs pairs;
  for (int i = 0; i < kCoordinators; ++i) {
    pairs.emplace_back(ServerNode(server), CoordinatorNode(i));
  }
  return pairs;
}

}  // namespace

void ClusterSimulation::Nemesis() {
  const int faults = 7 + Pick(6) + weather_.faults_more;
  for (int i = 0; i < faults; ++i) {
    At(300 * kMs + static_cast<Time>(random_.Uniform(heal_time_ - 600 * kMs)), [this] { Fault(); });
  }
  for (int i = 0; i < 3; ++i) {
    At(static_cast<Time>(random_.Uniform(heal_time_)), [this] { RestartClient(Pick(kClients)); });
  }
  At(Delay(300 * kMs), [this] { ChangeWishes(); });
  if (weather_.cuts_every > 0) At(Delay(weather_.cuts_every), [this] { AskForCuts(); });
  if (weather_.merges_every > 0) At(Delay(weather_.merges_every), [this] { AskForMerges(); });
  At(heal_time_, [this] { Heal(); });
}

void ClusterSimulation::Fault() {
  if (healed() || Exposed()) return;
  ++stats_.faults;
  int server = Pick(servers_.size());
  const RecordPtr& record = records_[Pick(records_.size())];
  if (Chance(0.5)) server = static_cast<int>(record->primary.server) - 1;
  switch (weather_.faults[Pick(weather_.faults.size())]) {
    case FaultKind::kKill:
      return KillServer(server, MayLoseMachine(server) && Chance(0.5));
    case FaultKind::kPause:
      return PauseServer(server);
    case FaultKind::kCut:
      return CutServer(server);
    case FaultKind::kStopCoordinator:
      return StopCoordinator(Pick(kCoordinators));
    case FaultKind::kCutCoordinator: {
      const int coordinator = CoordinatorNode(Pick(kCoordinators));
      return CutPairs({{coordinator, kStoreNode}, {kStoreNode, coordinator}}, Delay(2 * kSecond));
    }
    case FaultKind::kDiskFull:
      servers_[server].disk_full_until = time_ + Delay(kSecond);
      return;
    case FaultKind::kDeaf:
      return CutPairs(FromCoordinators(server), Delay(3 * kSecond));
    case FaultKind::kMute:
      return Mute(server);
    case FaultKind::kFlap:
      return Flap(server);
    case FaultKind::kLinks:
      return CutLinks();
    case FaultKind::kTriangle:
      return Triangle(*record);
    case FaultKind::kDisks:
      return LoseDisks(*record);
    case FaultKind::kSpoil:
      return SpoilReplica(server, Pick(shards_.size()));
    case FaultKind::kDrain:
      return DrainServer(server);
    case FaultKind::kStop:
      return StopServer(server);
  }
}

// The primary's entries reach only one of the others, which restarts with them.
void ClusterSimulation::Triangle(const ShardRecord& record) {
  if (record.members.size() < 3) return;
  std::vector<int> others;
  for (const Member& member : record.members) {
    if (!(member == record.primary)) others.push_back(static_cast<int>(member.server) - 1);
  }
  const int primary = static_cast<int>(record.primary.server) - 1;
  if (Chance(0.5)) std::swap(others[0], others[1]);
  CutPairs(
      {{ServerNode(primary), ServerNode(others[0])}, {ServerNode(others[0]), ServerNode(primary)}},
      3 * kSecond + Delay(kSecond));
  At(Delay(400 * kMs), [this, other = others[1]] {
    if (stormy()) KillServer(other, false);
  });
  At(1500 * kMs + Delay(kSecond), [this, primary] {
    if (stormy()) KillServer(primary, false);
  });
}

// Its first entries stay with it, and it may die with them.
void ClusterSimulation::CutActivated(const ShardRecord& record) {
  const int primary = static_cast<int>(record.primary.server) - 1;
  Pairs pairs;
  for (const Server& other : servers_) {
    if (other.index == primary) continue;
    pairs.emplace_back(ServerNode(primary), ServerNode(other.index));
    pairs.emplace_back(ServerNode(other.index), ServerNode(primary));
  }
  CutPairs(pairs, Delay(200 * kMs));
  if (!Chance(weather_.dies_young)) return;
  At(Delay(150 * kMs), [this, primary] {
    if (stormy() && !Exposed()) KillServer(primary, false);
  });
}

// Its rows are found to be damaged, or others than its primary's. (That they are is not simulated,
// only what the server does then.)
void ClusterSimulation::SpoilReplica(int server, int shard) {
  const ShardRecord& record = *records_[shard];
  if (faults_open_ > 0 || Gone(shard) || !record.active || record.members.size() < 2) return;
  for (const Member& member : record.members) {
    if (ProcessOf(member) == nullptr || leases_[member.server].incarnation == 0) return;
  }
  const Server& s = servers_[server];
  Replica* const replica = s.process == nullptr ? nullptr : Open(s, shard);
  if (replica == nullptr || replica->shard->refused()) return;
  if (s.process->known[shard] == nullptr) return;
  ++stats_.spoilt;
  if (trace_ != nullptr) Trace(absl::StrCat("SPOIL s", server + 1, " shard ", shard));
  replica->shard->Refuse(absl::DataLossError("its rows are damaged"));
  AfterEvent(server, shard);
}

bool ClusterSimulation::IsSpoilt(int shard, const Member& member) const {
  if (ProcessOf(member) == nullptr) return false;
  const Replica* const replica = Open(servers_[member.server - 1], shard);
  return replica != nullptr && replica->shard->refused();
}

void ClusterSimulation::DrainServer(int server) {
  for (size_t shard = 0; shard < wishes_.size(); ++shard) {
    if (Gone(static_cast<int>(shard))) continue;
    std::vector<ServerId> wanted = wishes_[shard]->servers;
    std::vector<ServerId> others;
    for (const Server& other : servers_) {
      const auto id = static_cast<ServerId>(other.index) + 1;
      const bool used = std::count(wanted.begin(), wanted.end(), id) != 0;
      if (other.index != server && !used) others.push_back(id);
    }
    if (others.empty()) continue;
    for (ServerId& id : wanted) {
      if (id == static_cast<ServerId>(server) + 1) id = others[Pick(others.size())];
    }
    Wish(static_cast<int>(shard), std::move(wanted));
  }
}

void ClusterSimulation::Isolate(int server, Time duration) {
  Pairs pairs = FromCoordinators(server);
  for (const auto& pair : ToCoordinators(server)) pairs.push_back(pair);
  if (trace_ != nullptr) Trace(absl::StrCat("ISOLATE s", server + 1, " for ", duration / kMs));
  CutPairs(pairs, duration);
}

// One heartbeat passes, with its answer, between two cuts.
void ClusterSimulation::Revive(const Member& process) {
  Process* const p = ProcessOf(process);
  Lease& lease = leases_[process.server];
  if (p == nullptr || p->paused || p->dead || lease.incarnation != 0) return;
  const int server = static_cast<int>(process.server) - 1;
  if (trace_ != nullptr) Trace(absl::StrCat("REVIVE s", server + 1));
  lease = {process.incarnation, time_ + 3 * kSecond};
  Changed();
  ForLife(server, [this, server, view = View()] {
    LearnView(server, *view);
    const int64_t granted_ns = (LocalTime(servers_[server]) + 2850 * kMs) * (kMillisecondNs / kMs);
    std::atomic<int64_t>& until_ns = servers_[server].process->budget.lease_until_ns;
    until_ns = std::max(until_ns.load(), granted_ns);
  })();
}

// Heard no more; and often it soon hears no more either, after a late answer or two.
void ClusterSimulation::Mute(int server) {
  CutPairs(ToCoordinators(server), 3 * kSecond + Delay(2 * kSecond));
  if (!Chance(0.7)) return;
  At(1500 * kMs + Delay(750 * kMs), [this, server] {
    if (stormy()) CutPairs(FromCoordinators(server), 2 * kSecond + Delay(2 * kSecond));
  });
}

// Its lease ends; what was decided then may be written once it is back, and it does not hear of it.
void ClusterSimulation::Flap(int server) {
  const Time first = 3 * kSecond + Delay(400 * kMs);
  Isolate(server, first);
  At(first + 50 * kMs + Delay(250 * kMs), [this, server] {
    if (stormy()) Isolate(server, Delay(2 * kSecond));
  });
}

void ClusterSimulation::CutLinks() {
  const int server = Pick(servers_.size());
  Pairs pairs;
  for (const Server& other : servers_) {
    if (other.index == server || !Chance(0.6)) continue;
    pairs.emplace_back(ServerNode(server), ServerNode(other.index));
    if (Chance(0.7)) pairs.emplace_back(ServerNode(other.index), ServerNode(server));
  }
  if (trace_ != nullptr) Trace(absl::StrCat("LINKS of s", server + 1));
  CutPairs(pairs, Chance(0.7) ? Delay(400 * kMs) : Delay(3 * kSecond));
}

// A member that may have lost the end of its log, or what it holds, is still named somewhere: until
// it is replaced nothing more goes wrong, for two losses at once are beyond what two replicas
// promise.
bool ClusterSimulation::Exposed() const {
  const auto lost = [this](const Member& member) {
    return member.incarnation <= servers_[member.server - 1].tail_lost;
  };
  for (size_t shard = 0; stats_.spoilt > 0 && shard < records_.size(); ++shard) {
    if (Gone(static_cast<int>(shard))) continue;
    for (const Member& member : records_[shard]->members) {
      if (IsSpoilt(static_cast<int>(shard), member)) return true;
    }
  }
  return std::any_of(records_.begin(), records_.end(), [&](const RecordPtr& record) {
    if (Gone(static_cast<int>(record->shard.index))) return false;
    return std::any_of(record->members.begin(), record->members.end(), lost) ||
           (!record->active && std::any_of(record->base.begin(), record->base.end(), lost));
  });
}

// Whether no fault is open, and every shard of several replicas has all of them.
bool ClusterSimulation::AllWell() const {
  if (faults_open_ > 0) return false;
  for (size_t shard = 0; shard < records_.size(); ++shard) {
    if (shards_[shard].setting.durability != Durability::kReplicated) continue;
    if (Gone(static_cast<int>(shard))) continue;
    const ShardRecord& record = *records_[shard];
    if (!record.active || record.members.size() < 2) return false;
    for (const Member& member : record.members) {
      const Server& s = servers_[member.server - 1];
      const bool well = s.process != nullptr && s.process->incarnation == member.incarnation &&
                        !s.process->paused && leases_[member.server].incarnation != 0;
      if (!well) return false;
    }
  }
  return true;
}

bool ClusterSimulation::MayLoseMachine(int server) const {
  return fsync_ || (AllWell() && servers_[server].process != nullptr);
}

// All members die. Disks of some of them, never of all, lose records, rows or everything, and each
// server comes back when it likes.
void ClusterSimulation::LoseDisks(const ShardRecord& record) {
  if (record.members.size() < 2 || !AllWell()) return;
  std::vector<int> victims;
  for (const Member& member : record.members) {
    victims.push_back(static_cast<int>(member.server) - 1);
  }
  std::shuffle(victims.begin(), victims.end(), random_);
  const size_t losers = 1 + Pick(victims.size() - 1);
  for (size_t i = 0; i < victims.size(); ++i) {
    Server& s = servers_[victims[i]];
    const Incarnation incarnation = s.process->incarnation;
    KillServer(victims[i], /*machine=*/i < losers && Chance(0.3));
    if (i >= losers) continue;
    s.tail_lost = incarnation;
    for (Watched& watched : shards_) watched.kept.erase(static_cast<ServerId>(victims[i]) + 1);
    if (Chance(0.7)) DamageDisk(&s);
  }
}

// All members die before they have heard of the merge; the machines of some, never of all, die too.
void ClusterSimulation::KillMerging(const ShardRecord& record) {
  if (record.members.size() < 2 || Exposed()) return;
  std::vector<int> victims;
  for (const Member& member : record.members) {
    if (ProcessOf(member) == nullptr) return;
    victims.push_back(static_cast<int>(member.server) - 1);
  }
  std::shuffle(victims.begin(), victims.end(), random_);
  const size_t losers = 1 + Pick(victims.size() - 1);
  for (size_t i = 0; i < victims.size(); ++i) KillServer(victims[i], /*machine=*/i < losers);
}

void ClusterSimulation::DamageDisk(Server* server) {
  ++stats_.disks_lost;
  Disk& disk = server->disk;
  disk.damaged = true;
  const int dice = Pick(3);
  disk.log.resize(dice == 0 ? random_.Uniform(disk.log.size() + 1) : 0);
  disk.synced = std::min(disk.synced, disk.log.size());
  for (int shard = 0; shard < static_cast<int>(shards_.size()); ++shard) {
    if (dice == 2) Wipe(server, shard);
    SpilledShard& spilled = disk.shards[shard];
    spilled.log_from = std::min(spilled.log_from, disk.log.size());
  }
  if (trace_ != nullptr) Trace(absl::StrCat("DISK of s", server->index + 1, " lost, kind ", dice));
}

void ClusterSimulation::KillServer(int server, bool machine) {
  Server& s = servers_[server];
  if (s.process == nullptr) return;
  ++stats_.kills;
  Process& p = *s.process;
  // Any prefix of what was on its way to the log may have reached it; none of the rest.
  size_t reached = Chance(0.5) ? 0 : random_.Uniform(p.appending.size() + 1);
  if (time_ < s.disk_full_until) reached = 0;
  for (size_t i = 0; i < reached; ++i) {
    WriteRecord(&s, p.appending[i]);
  }
  if (machine) {
    ++stats_.machines_lost;
    const size_t unsynced = s.disk.log.size() - s.disk.synced;
    s.disk.log.resize(s.disk.synced + random_.Uniform(unsynced + 1));
    if (!fsync_) s.tail_lost = p.incarnation;
  }
  s.disk.synced = std::min(s.disk.synced, s.disk.log.size());
  const Incarnation incarnation = p.incarnation;
  if (trace_ != nullptr) Trace(absl::StrCat("KILL s", server + 1, machine ? " machine" : ""));
  EndProcess(&s);
  ++faults_open_;
  if (Chance(0.7)) {  // a probe is refused: the lease ends at once
    At(Delay(250 * kMs), [this, server, incarnation] {
      Lease& lease = leases_[server + 1];
      if (lease.incarnation == incarnation) lease = Lease();
      Changed();
    });
  }
  At(Chance(0.5) ? Delay(400 * kMs) : Delay(4 * kSecond), [this, server] {
    --faults_open_;
    Boot(server);
  });
}

// It says that it stops, and ends when it has handed over, or after a while.
void ClusterSimulation::StopServer(int server) {
  const Process* const p = servers_[server].process.get();
  Lease& lease = leases_[server + 1];
  if (p == nullptr || p->paused || lease.incarnation != p->incarnation || lease.stops) return;
  ++stats_.stops;
  lease.stops = true;
  Changed();
  ++faults_open_;
  if (trace_ != nullptr) Trace(absl::StrCat("STOP s", server + 1));
  At(Delay(600 * kMs), [this, server, incarnation = p->incarnation] {
    --faults_open_;
    EndStopped(server, incarnation);
  });
}

void ClusterSimulation::EndStopped(int server, Incarnation incarnation) {
  Server& s = servers_[server];
  Lease& lease = leases_[server + 1];
  if (s.process == nullptr || s.process->incarnation != incarnation || s.process->paused ||
      healed()) {  // it died, or goes on
    if (lease.incarnation == incarnation && lease.stops) {
      lease.stops = false;
      Changed();
    }
    return;
  }
  for (int shard = 0; shard < static_cast<int>(shards_.size()); ++shard) {
    const Replica* const replica = Open(s, shard);
    if (replica != nullptr && !replica->shard->refused()) WriteBackAll(&s, shard);
  }
  SyncLog(&s);
  if (trace_ != nullptr) Trace(absl::StrCat("END s", server + 1));
  EndProcess(&s);
  if (lease.incarnation == incarnation) lease = Lease();  // its streams break, its port is closed
  Changed();
  ++faults_open_;
  At(Chance(0.5) ? Delay(400 * kMs) : Delay(4 * kSecond), [this, server] {
    --faults_open_;
    Boot(server);
  });
}

void ClusterSimulation::PauseServer(int server) {
  Process* p = servers_[server].process.get();
  if (p == nullptr || p->paused) return;
  p->paused = true;
  ++faults_open_;
  if (trace_ != nullptr) Trace(absl::StrCat("PAUSE s", server + 1));
  At(Delay(3 * kSecond), [this, server, incarnation = p->incarnation] {
    --faults_open_;
    Process* again = servers_[server].process.get();
    if (again == nullptr || again->incarnation != incarnation) return;
    again->paused = false;
    if (trace_ != nullptr) Trace(absl::StrCat("RESUME s", server + 1));
    for (Task& task : std::exchange(again->backlog, {})) At(0, ForLife(server, std::move(task)));
  });
}

void ClusterSimulation::CutPairs(const std::vector<std::pair<int, int>>& pairs, Time duration) {
  for (const auto& [from, to] : pairs) ++cuts_[from][to];
  ++faults_open_;
  At(duration, [this, pairs] {
    --faults_open_;
    for (const auto& [from, to] : pairs) {
      if (cuts_[from][to] > 0) --cuts_[from][to];
    }
  });
}

void ClusterSimulation::CutServer(int server) {
  std::vector<std::pair<int, int>> pairs;
  const double part = Chance(0.3) ? 1.0 : 0.5;
  for (int node = 0; node < kStoreNode; ++node) {
    if (node == ServerNode(server) || !Chance(part)) continue;
    if (Chance(0.8)) pairs.emplace_back(ServerNode(server), node);
    if (Chance(0.8)) pairs.emplace_back(node, ServerNode(server));
  }
  if (trace_ != nullptr) {
    std::string line = absl::StrCat("CUT s", server + 1, ":");
    for (const auto& [from, to] : pairs) absl::StrAppend(&line, " ", from, ">", to);
    Trace(line);
  }
  CutPairs(pairs, Chance(0.5) ? Delay(500 * kMs) : Delay(4 * kSecond));
}

void ClusterSimulation::StopCoordinator(int coordinator) {
  Coordinator& c = coordinators_[coordinator];
  if (!c.alive || c.paused) return;
  ++faults_open_;
  const int life = c.life;
  if (Chance(0.4)) {
    c.paused = true;
    At(Delay(3 * kSecond), [this, coordinator, life] {
      --faults_open_;
      Coordinator& again = coordinators_[coordinator];
      if (again.life != life) return;
      again.paused = false;
      for (Task& task : std::exchange(again.backlog, {})) {
        At(0, ForCoordinator(coordinator, std::move(task)));
      }
    });
    return;
  }
  c.alive = false;
  ++c.life;
  c.backlog.clear();
  At(Delay(2 * kSecond), [this, coordinator] {
    --faults_open_;
    Coordinator fresh;
    fresh.index = coordinator;
    fresh.life = coordinators_[coordinator].life;
    coordinators_[coordinator] = std::move(fresh);
    TickCoordinator(coordinator);
  });
}

void ClusterSimulation::Heal() {
  if (trace_ != nullptr) Trace("HEAL");
  std::fill(&cuts_[0][0], &cuts_[0][0] + sizeof(cuts_), uint8_t{0});
  for (Server& server : servers_) {
    server.disk_full_until = -1;
    Boot(server.index);
    Process& p = *server.process;
    p.paused = false;
    for (Task& task : std::exchange(p.backlog, {})) At(0, ForLife(server.index, std::move(task)));
  }
  for (Coordinator& coordinator : coordinators_) {
    coordinator.paused = false;
    for (Task& task : std::exchange(coordinator.backlog, {})) {
      At(0, ForCoordinator(coordinator.index, std::move(task)));
    }
  }
}

void ClusterSimulation::ChangeWishes() {
  if (healed()) return;
  At(Delay(250 * kMs), [this] { ChangeWishes(); });
  const int shard = Pick(shards_.size());
  if (Gone(shard) || (shards_[shard].wish_open && Chance(0.9))) return;
  std::vector<ServerId> servers;
  for (const Server& server : servers_) servers.push_back(static_cast<ServerId>(server.index) + 1);
  std::shuffle(servers.begin(), servers.end(), random_);
  servers.resize(shards_[shard].setting.replicas);
  Wish(shard, std::move(servers));
}

void ClusterSimulation::Wish(int shard, std::vector<ServerId> servers) {
  auto wish = std::make_shared<ShardWish>();
  const ShardSetting& setting = shards_[shard].setting;
  wish->replicas = setting.replicas;
  wish->servers = std::move(servers);
  if (setting.read_replicas) {
    for (const Server& server : servers_) {
      const auto id = static_cast<ServerId>(server.index) + 1;
      if (std::count(wish->servers.begin(), wish->servers.end(), id) == 0) {
        wish->readers.push_back(id);
      }
    }
  }
  wishes_[shard] = std::move(wish);
  shards_[shard].wish_open = !AsWished(shard);
  Changed();
}

}  // namespace hotbed::sim
