// The processes of the simulated cluster: how they begin and end, and what they learn.
#include <utility>

#include "absl/strings/str_cat.h"
#include "tests/sim/cluster_simulation.h"
#include "tests/sim/sim_mutant.h"

namespace hotbed::sim {
namespace {

// A server's room for records is small, so that the tails of its shards compete for it.
constexpr uint64_t kTailBytesMin = 4096;
constexpr uint64_t kTailBytesMax = 28672;

}  // namespace

Task ClusterSimulation::ForLife(int server, Task task) {
  return
      [this, server, incarnation = servers_[server].process->incarnation, task = std::move(task)] {
        Process* p = servers_[server].process.get();
        if (p == nullptr || p->incarnation != incarnation) return;
        if (p->paused) {
          p->backlog.push_back(task);
        } else {
          task();
        }
      };
}

Member ClusterSimulation::Self(const Server& server) const {
  return {static_cast<ServerId>(server.index) + 1, server.process->incarnation};
}

Process* ClusterSimulation::ProcessOf(const Member& member) {
  Process* p = servers_[member.server - 1].process.get();
  return p != nullptr && p->incarnation == member.incarnation ? p : nullptr;
}

const Process* ClusterSimulation::ProcessOf(const Member& member) const {
  const Process* p = servers_[member.server - 1].process.get();
  return p != nullptr && p->incarnation == member.incarnation ? p : nullptr;
}

Time ClusterSimulation::LocalTime(const Server& server) const {
  return server.clock_offset + static_cast<Time>(static_cast<double>(time_) * server.clock_rate);
}

void ClusterSimulation::Boot(int server) {
  Server& s = servers_[server];
  if (s.process != nullptr) return;
  s.process = std::make_unique<Process>();
  const bool keeps = Planted(SimMutant::kRestartKeepsIncarnation) && s.last_incarnation > 0;
  s.last_incarnation += keeps ? 0 : 1;
  s.process->incarnation = s.last_incarnation;
  s.process->booted = time_;
  s.process->budget.tail_bytes_max = kTailBytesMin + random_.Uniform(kTailBytesMax - kTailBytesMin);
  if (Planted(SimMutant::kStrictWithoutLease)) s.process->budget.lease_until_ns = INT64_MAX;
  MakeDisk(&s);
  MakeOutlet(&s);
  MakeIntake(&s);
  if (trace_ != nullptr) Trace(absl::StrCat("BOOT s", server + 1, "/", s.last_incarnation));
  for (int shard = 0; shard < static_cast<int>(shards_.size()); ++shard) {
    SpilledShard& spilled = s.disk.shards[shard];
    const bool logged = shards_[shard].setting.durability != Durability::kCheckpoint;
    if (spilled.installing || !(logged || spilled.kept)) Wipe(&s, shard);
    if (spilled.held) LoadShard(&s, shard);
  }
  SyncLog(&s);  // as recovery does: the records found may be acknowledged from here on
  At(Delay(20 * kMs), ForLife(server, [this, server] { TickServer(server); }));
  At(Delay(20 * kMs), ForLife(server, [this, server] { Heartbeat(server); }));
}

// Whether the process has more of a shard of class checkpoint than its last checkpoint, to which a
// restart goes back.
bool ClusterSimulation::LosesMemory(const Server& server, int shard) const {
  if (shards_[shard].setting.durability != Durability::kCheckpoint) return false;
  const Replica* const replica = Open(server, shard);
  if (replica == nullptr) return false;
  const SpilledShard spilled = AfterKill(server.disk.shards[shard]);
  const absl::StatusOr<ShardMeta> meta = ShardMeta::Parse(spilled.meta);
  const Lsn checkpoint = spilled.kept && meta.ok() ? meta->applied_lsn : 0;
  return replica->shard->core().log_end().lsn > checkpoint;
}

// The shards end what they have in flight, so that their memory can be freed.
void ClusterSimulation::EndProcess(Server* server) {
  if (server->process == nullptr) return;
  Process& p = *server->process;
  p.dead = true;
  for (int shard = 0; shard < static_cast<int>(shards_.size()); ++shard) {
    if (LosesMemory(*server, shard)) {
      shards_[shard].kept.erase(static_cast<ServerId>(server->index) + 1);
    }
    Retire(server, shard);
    SpilledShard& spilled = server->disk.shards[shard];
    if (const auto before = spilled.unflushed; before != nullptr) spilled = *before;
  }
  if (p.budget.tail_bytes != 0 || *p.staged_bytes != 0) {
    Violation(absl::StrCat("s", server->index + 1, " ends, and ", p.budget.tail_bytes.load(),
                           " bytes of records and ", p.staged_bytes->load(),
                           " of staged pushes were not given back"));
  }
  server->process.reset();
}

// As HostReports. Before it has heard of a record a process says all, as it does when it registers.
std::optional<HeldReplica> ClusterSimulation::HeldHere(const Server& server, int shard) const {
  const RecordPtr& known = server.process->known[shard];
  if (known != nullptr && !known->AsksFor(Self(server))) return std::nullopt;
  const Replica* const replica = Open(server, shard);
  if (replica == nullptr && HoldsUnderAnother(server, shard)) return std::nullopt;
  if (replica == nullptr) return HeldReplica{.nothing = true};
  const Shard::ReplicaEnd end = replica->shard->End();
  return HeldReplica{.damaged = replica->shard->refused(),
                     .behind = end.behind,
                     .end = end.log,
                     .member_of = end.member_of};
}

void ClusterSimulation::Heartbeat(int server) {
  At(Delay(300 * kMs), ForLife(server, [this, server] { Heartbeat(server); }));
  Server& s = servers_[server];
  HeardOf heard;
  for (int shard = 0; shard < static_cast<int>(shards_.size()); ++shard) {
    if (auto held = HeldHere(s, shard); held.has_value()) heard.held.push_back({shard, *held});
    const Replica* const replica = Open(s, shard);
    if (replica == nullptr) continue;
    if (replica->shard->refused()) {
      const RecordPtr& known = s.process->known[shard];
      if (known != nullptr && replica->shard->ReplicaLost(*known, Self(s))) {
        heard.lost.push_back({shard, known->epoch, Self(s)});
      }
      continue;
    }
    const ReplicasHeard others = replica->shard->Heard();
    for (const Member& member : others.joined) {
      heard.joins.push_back({shard, others.epoch, member});
    }
    for (const Member& member : others.silent) {
      heard.silent.push_back({shard, others.epoch, member});
    }
    // Wrong reports too: they may cost replicas, and never more.
    const bool wrongly = weather_.silences > 0 && stormy() && replica->shard->primary();
    if (!wrongly || !Chance(weather_.silences)) continue;
    const ShardRecord& record = replica->shard->core().record();
    for (const std::vector<Member>* members : {&record.members, &record.learners}) {
      for (const Member& member : *members) {
        if (!(member == Self(s))) heard.silent.push_back({shard, record.epoch, member});
      }
    }
  }
  for (int coordinator = 0; coordinator < kCoordinators; ++coordinator) {
    const Time sent = LocalTime(s);
    const Incarnation incarnation = s.process->incarnation;
    Datagram(ServerNode(server), CoordinatorNode(coordinator),
             ForCoordinator(coordinator, [=, this] {
               HeartbeatArrives(coordinator, server, incarnation, sent, heard);
             }));
  }
}

void ClusterSimulation::TickServer(int server) {
  At(Delay(60 * kMs), ForLife(server, [this, server] { TickServer(server); }));
  Server& s = servers_[server];
  Process& p = *s.process;
  const bool disk_works = time_ >= s.disk_full_until;
  if (disk_works) p.log_read_only = false;
  if (!fsync_ && Chance(0.1) && disk_works) SyncLog(&s);
  p.intake->Check();
  for (int shard = 0; shard < static_cast<int>(shards_.size()); ++shard) {
    CheckTransfers(server, shard);
    const Replica* const replica = Open(s, shard);
    if (replica == nullptr || replica->shard->refused()) continue;
    // Now and then another server's shards leave no room for a moment.
    const uint64_t room = p.budget.tail_bytes_max;
    if (Chance(stormy() ? 0.03 : 0.0)) p.budget.tail_bytes_max = 0;
    replica->shard->Tick();
    AfterEvent(server, shard);
    p.budget.tail_bytes_max = room;
    if (replica->shard->wants_activation()) AskActivation(s, shard);
    if (weather_.expires) SweepRows(server, shard);
    if (Chance(0.2)) WriteBack(&s, shard);
    if (Chance(0.05) || replica->shard->wants_write_back()) WriteBackAll(&s, shard);
    if (s.disk.shards[shard].cut.has_value() && Chance(0.05)) FinishCut(&s, shard);
  }
}

// As RowSweeper, but at every replica: none but an active primary may delete anything.
void ClusterSimulation::SweepRows(int server, int shard) {
  const Replica& replica = *Open(servers_[server], shard);
  const auto swept = replica.shard->row_sweep()->Sweep([] { return absl::OkStatus(); });
  if (swept.ok()) stats_.expired += swept->expired;
  AfterEvent(server, shard);
}

void ClusterSimulation::LearnView(int server, const StoreView& view) {
  for (size_t shard = 0; shard < view.records.size(); ++shard) {
    if (!view.gone[shard]) Learn(server, view.records[shard]);
  }
}

void ClusterSimulation::Learn(int server, const RecordPtr& record) {
  Server& s = servers_[server];
  Process& p = *s.process;
  const int shard = static_cast<int>(record->shard.index);
  if (!MergeFirst(&s, record) || !CutFirst(&s, record)) return;
  RecordPtr& known = p.known[shard];
  if (known == nullptr || record->revision > known->revision) known = record;
  if (DeletesReplica(s, *record)) return DeleteReplica(&s, *record);
  // The newest counts: an old record must not make a replica that nobody deletes again.
  if (p.replicas[shard] == nullptr && record->Holds(Self(s)) && known == record &&
      s.disk.promised[shard] <= record->epoch && !HoldsUnderAnother(s, shard)) {
    FreshReplica(&s, shard);
  }
  Replica* const replica = Open(s, shard);
  if (replica == nullptr || std::exchange(replica->told, record) == record) return;
  replica->shard->LearnRecord(Self(s), *record, [](Epoch) {});  // PromiseWanted says it too
  AfterEvent(server, shard);
}

// The record is above all epochs in which this replica had a part, active, and without this server
// in any life.
bool ClusterSimulation::DeletesReplica(const Server& server, const ShardRecord& record) const {
  const int shard = static_cast<int>(record.shard.index);
  const auto id = static_cast<ServerId>(server.index) + 1;
  if (server.process->replicas[shard] == nullptr) return false;
  if (record.Names(id) || IsCutFrom(server.disk, shard)) return false;
  if (stormy() && time_ % 3 != 0) return false;  // later: a replica that stays may be of use again
  if (!record.active && !Planted(SimMutant::kDeletedWhileInactive)) return false;
  return record.epoch > server.disk.promised[shard] || Planted(SimMutant::kDeletedByOldRecord);
}

void ClusterSimulation::DeleteReplica(Server* server, const ShardRecord& record) {
  const int shard = static_cast<int>(record.shard.index);
  CheckDeleted(*server, record);
  CheckGivenUp(*server, shard);
  ++stats_.replicas_deleted;
  if (trace_ != nullptr) Trace(absl::StrCat("DELETE s", server->index + 1, " shard ", shard));
  if (const Replica* const replica = Open(*server, shard); replica != nullptr) {
    replica->shard->LearnRecord(Self(*server), record, [](Epoch) {});
  }
  Retire(server, shard);
  // The log keeps its records until it is truncated.
  Wipe(server, shard);
}

}  // namespace hotbed::sim
