// The processes of the simulated cluster: how they begin, what they learn, their promises and the
// one log that all their shards share.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tests/sim/cluster_simulation.h"
#include "tests/sim/sim_mutant.h"

namespace hotbed::sim {
namespace {

// A server's room for records is small, so that the tails of its shards compete for it.
constexpr uint64_t kTailEntriesMin = 16;
constexpr uint64_t kTailEntriesMax = 112;

// The entries that a log holds in the end: an LSN that is handed over again was cut before. Not
// only entries of a higher epoch replace others. A tail that the primary of one epoch did not know
// may survive on a member that is the next primary, and then replaces entries of the epoch between.
std::vector<CoreEntry> LastWord(const Disk& disk, int shard) {
  std::vector<CoreEntry> entries;
  for (size_t i = disk.shards[shard].log_from; i < disk.log.size(); ++i) {
    const LogRecord& record = disk.log[i];
    if (record.shard != shard) continue;
    const CoreEntry& entry = record.entry;
    const bool above = Planted(SimMutant::kReplacedByHigherOnly) && !entries.empty() &&
                       entry.lsn <= entries.back().lsn &&
                       entry.epoch <= entries[entries.size() - 1].epoch;
    if (above) continue;
    while (!entries.empty() && entries.back().lsn >= entry.lsn) entries.pop_back();
    entries.push_back(entry);
  }
  return entries;
}

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
  s.process->budget.tail_bytes_max =
      (kTailEntriesMin + random_.Uniform(kTailEntriesMax - kTailEntriesMin)) * sizeof(CoreEntry);
  if (trace_ != nullptr) Trace(absl::StrCat("BOOT s", server + 1, "/", s.last_incarnation));
  for (int shard = 0; shard < static_cast<int>(shards_.size()); ++shard) {
    SpilledShard& spilled = s.disk.shards[shard];
    if (spilled.installing) spilled = SpilledShard();
    if (spilled.held) LoadShard(&s, shard);
  }
  SyncLog(&s);  // as recovery does: the records found may be acknowledged from here on
  At(Delay(20 * kMs), ForLife(server, [this, server] { TickServer(server); }));
  At(Delay(20 * kMs), ForLife(server, [this, server] { Heartbeat(server); }));
}

// Recovery, as the shell does it: the state written back last, then the log behind it.
void ClusterSimulation::LoadShard(Server* server, int shard) {
  SpilledShard& spilled = server->disk.shards[shard];
  const bool scratch = shards_[shard].setting.durability == Durability::kCheckpoint;
  Replica& replica = *FreshReplica(server, shard);
  replica.core->Recover(server->disk.promised[shard], spilled.meta);
  replica.rows = spilled.rows;
  for (const StagedPush& push : spilled.meta.staged) {
    replica.staged[push.lsn] = static_cast<PushId>(std::stoul(push.payload));
  }
  Lsn stamped = 0;
  for (const Row& row : spilled.rows) stamped = std::max(stamped, row.lsn);
  replica.guard = stamped;
  if (!scratch) {
    for (const CoreEntry& entry : LastWord(server->disk, shard)) {
      // A commit's staged pushes are there until it is replayed.
      if (entry.lsn == replica.core->last_lsn() + 1) ApplyEntry(shard, &replica, entry);
      const absl::StatusOr<bool> applies = replica.core->Replay(entry);
      if (!applies.ok()) return Violation(applies.status().ToString());
    }
  }
  if (replica.core->last_lsn() < spilled.guard) {
    // Rows of an LSN that its log never came to: some are newer than others, for good.
    spilled = SpilledShard();
    FreshReplica(server, shard)->core->Recover(server->disk.promised[shard], ShardMeta());
    return;
  }
  replica.core->SkipTo(stamped);
}

Replica* ClusterSimulation::FreshReplica(Server* server, int shard) {
  Process& p = *server->process;
  p.replicas[shard] = std::make_unique<Replica>();
  Replica& replica = *p.replicas[shard];
  CoreOptions options;  // as ShardHost
  options.keep_tail = shards_[shard].setting.durability == Durability::kReplicated;
  replica.core = std::make_unique<ShardCore>(options);
  replica.core->SetSelf(Self(*server));
  replica.tail = std::make_unique<RecordTail>(replica.core.get(), &p.budget, &clock_);
  replica.tail->StartKeeping();
  SpilledShard& spilled = server->disk.shards[shard];
  if (!std::exchange(spilled.held, true)) BeginLog(server, shard);
  return &replica;
}

// The appends handed to the log for a replica that is gone are done, one way or the other. From
// here on the log's entries of that replica do not count; this mark must last as long as the log.
void ClusterSimulation::BeginLog(Server* server, int shard) {
  std::erase_if(server->process->appending,
                [shard](const QueuedAppend& append) { return append.shard == shard; });
  if (!Planted(SimMutant::kSpillBeforeSync)) SyncLog(server);
  server->disk.shards[shard].log_from = server->disk.log.size();
}

void ClusterSimulation::Heartbeat(int server) {
  At(Delay(300 * kMs), ForLife(server, [this, server] { Heartbeat(server); }));
  Server& s = servers_[server];
  HeardOf heard;
  for (int shard = 0; shard < static_cast<int>(shards_.size()); ++shard) {
    const Replica* replica = s.process->replicas[shard].get();
    if (replica == nullptr || replica->core == nullptr) continue;
    if (replica->spoilt) {
      const RecordPtr& known = s.process->known[shard];
      if (ReplicaLost(*replica, *known, Self(s)))
        heard.lost.push_back({shard, known->epoch, Self(s)});
      continue;
    }
    for (const Member& member : replica->core->JoinReady()) {
      heard.joins.push_back({shard, replica->core->epoch(), member});
    }
    for (const Member& member : replica->core->SilentMembers()) {
      heard.silent.push_back({shard, replica->core->epoch(), member});
    }
    // Wrong reports too: they may cost replicas, and never more.
    const bool wrongly = weather_.silences > 0 && stormy() && replica->core->primary();
    if (!wrongly || !Chance(weather_.silences)) continue;
    const ShardRecord& record = replica->core->record();
    for (const std::vector<Member>* others : {&record.members, &record.learners}) {
      for (const Member& member : *others) {
        if (member == Self(s)) continue;
        heard.silent.push_back({shard, replica->core->epoch(), member});
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
  const bool disk_works = time_ >= s.disk_full_until;
  if (!fsync_ && Chance(0.1) && disk_works) SyncLog(&s);
  for (int shard = 0; shard < static_cast<int>(shards_.size()); ++shard) {
    AdvanceTransfers(server, shard);
    Replica* replica = s.process->replicas[shard].get();
    if (replica == nullptr || replica->core == nullptr || replica->spoilt) continue;
    replica->core->SetNow(time_ * 100'000);
    const bool writing =
        std::any_of(s.process->appending.begin(), s.process->appending.end(),
                    [shard](const QueuedAppend& append) { return append.shard == shard; });
    if (replica->core->read_only() && !writing && disk_works) replica->core->Resume();
    replica->core->Tick();
    replica->wants_activation = false;  // asks again
    Drain(server, shard);
    if (Chance(0.2)) WriteBack(&s, shard);
    if (Chance(0.05)) WriteBackAll(&s, shard);
    if (Chance(stormy() ? 0.03 : 0.0)) {  // another server's shards left no room for a moment
      const uint64_t room = std::exchange(s.process->budget.tail_bytes_max, 0);
      Drain(server, shard);
      s.process->budget.tail_bytes_max = room;
    }
    RunParked(server, shard);
  }
}

void ClusterSimulation::Learn(int server, const RecordPtr& record) {
  Server& s = servers_[server];
  Process& p = *s.process;
  const int shard = static_cast<int>(record->shard.index);
  RecordPtr& known = p.known[shard];
  if (known == nullptr || record->revision > known->revision) known = record;
  if (DeletesReplica(s, *record)) return DeleteReplica(&s, *record);
  // The newest counts: an old record must not make a replica that nobody deletes again.
  if (p.replicas[shard] == nullptr && record->Holds(Self(s)) && known == record) {
    FreshReplica(&s, shard)->core->Recover(s.disk.promised[shard], ShardMeta());
  }
  Replica* replica = p.replicas[shard].get();
  if (replica == nullptr || replica->core == nullptr) return;
  replica->core->LearnRecord(*record);
  Drain(server, shard);
}

// The record is above all epochs in which this replica had a part, active, and without this server
// in any life.
bool ClusterSimulation::DeletesReplica(const Server& server, const ShardRecord& record) const {
  const int shard = static_cast<int>(record.shard.index);
  const auto id = static_cast<ServerId>(server.index) + 1;
  if (server.process->replicas[shard] == nullptr) return false;
  if (record.Names(id)) return false;
  if (stormy() && time_ % 3 != 0) return false;  // later: a replica that stays may be of use again
  if (!record.active && !Planted(SimMutant::kDeletedWhileInactive)) return false;
  return record.epoch > server.disk.promised[shard] || Planted(SimMutant::kDeletedByOldRecord);
}

void ClusterSimulation::DeleteReplica(Server* server, const ShardRecord& record) {
  const int shard = static_cast<int>(record.shard.index);
  CheckDeleted(*server, record);
  ++stats_.replicas_deleted;
  if (trace_ != nullptr) Trace(absl::StrCat("DELETE s", server->index + 1, " shard ", shard));
  Replica& replica = *server->process->replicas[shard];
  if (replica.core != nullptr) {
    replica.core->LearnRecord(record);  // answers requests that wait
    Drain(server->index, shard);
  }
  std::erase_if(server->process->appending,
                [shard](const QueuedAppend& append) { return append.shard == shard; });
  server->process->replicas[shard] = nullptr;
  // The log keeps its records until it is truncated.
  server->disk.shards[shard] = SpilledShard();
}

void ClusterSimulation::Promise(int server, int shard, Epoch epoch) {
  At(Delay(8 * kMs), ForLife(server, [this, server, shard, epoch] {
       Server& s = servers_[server];
       s.disk.promised[shard] = std::max(s.disk.promised[shard], epoch);
       Replica* replica = s.process->replicas[shard].get();
       if (replica == nullptr || replica->core == nullptr) return;
       replica->core->PromiseDurable(epoch);
       Drain(server, shard);
     }));
}

// --- the log

void ClusterSimulation::SyncLog(Server* server) { server->disk.synced = server->disk.log.size(); }

void ClusterSimulation::ScheduleAppend(int server) {
  Process& p = *servers_[server].process;
  if (p.append_scheduled || p.appending.empty()) return;
  p.append_scheduled = true;
  At(Delay(stormy() ? weather_.log_time : 3 * kMs), ForLife(server, [this, server] {
       servers_[server].process->append_scheduled = false;
       FinishAppend(server);
     }));
}

void ClusterSimulation::FinishAppend(int server) {
  Server& s = servers_[server];
  Process& p = *s.process;
  if (p.appending.empty()) return;
  if (time_ < s.disk_full_until || (stormy() && Chance(weather_.log_fails))) {
    FailAppends(&s);
  } else {
    // A group commit takes some of the waiting entries.
    const size_t count = 1 + random_.Uniform(p.appending.size());
    for (size_t i = 0; i < count; ++i) {
      const QueuedAppend append = p.appending.front();
      p.appending.pop_front();
      s.disk.log.push_back({append.shard, append.entry});
      if (fsync_) SyncLog(&s);
      Replica* replica = p.replicas[append.shard].get();
      // Also of an entry that was cut since: the core tells by the ticket.
      if (replica == nullptr || replica->core == nullptr) continue;
      replica->core->Appended(append.entry.lsn, append.entry.ticket);
      Drain(server, append.shard);
    }
  }
  ScheduleAppend(server);
}

void ClusterSimulation::FailAppends(Server* server) {
  ++stats_.append_failures;
  Process& p = *server->process;
  const std::deque<QueuedAppend> failed = std::exchange(p.appending, {});
  uint32_t touched = 0;
  for (const QueuedAppend& append : failed) {
    Replica* replica = p.replicas[append.shard].get();
    if (replica == nullptr || replica->core == nullptr) continue;
    replica->core->AppendFailed(append.entry.lsn, append.entry.ticket);
    replica->tail->CutFrom(replica->core->last_lsn() + 1);
    touched |= 1u << append.shard;
  }
  for (int shard = 0; shard < static_cast<int>(shards_.size()); ++shard) {
    if ((touched & (1u << shard)) != 0) Drain(server->index, shard);
  }
}

}  // namespace hotbed::sim
