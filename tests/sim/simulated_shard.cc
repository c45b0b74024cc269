// The shell of one shard around its core: the log, the rows, the replies. The records kept for
// followers are in the real RecordTail.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tests/sim/cluster_simulation.h"
#include "tests/sim/sim_mutant.h"

namespace hotbed::sim {

// Works until the core wants nothing more: work that is done at once may bring more.
void ClusterSimulation::Drain(int server, int shard) {
  Server& s = servers_[server];
  for (bool trimmed = false;;) {
    Replica* replica = s.process->replicas[shard].get();
    if (replica == nullptr || replica->core == nullptr) return;
    CheckCore(s, shard);
    CoreReady* ready = replica->core->ready();
    const bool empty = ready->promise == 0 && ready->cut_from == 0 && ready->appends.empty() &&
                       ready->sends.empty() && ready->applies.empty() && ready->replies.empty() &&
                       !ready->stepped_down;
    if (empty && trimmed) break;
    if (empty) {
      trimmed = true;
      replica->tail->Trim();  // a replica that it leaves without entries is asked again, at once
      continue;
    }
    CoreReady work;
    std::swap(work, *ready);
    DrainOnce(&s, shard, &work);
  }
  AskActivation(&s, shard);
  CheckServing(s, shard);
}

// When the core begins to want it, as CommitPipeline::Publish; TickServer asks again.
void ClusterSimulation::AskActivation(Server* server, int shard) {
  Replica& replica = *server->process->replicas[shard];
  const bool wants = !replica.spoilt && replica.core->wants_activation();
  if (std::exchange(replica.wants_activation, wants) || !wants) return;
  for (int coordinator = 0; coordinator < kCoordinators; ++coordinator) {
    Datagram(
        ServerNode(server->index), CoordinatorNode(coordinator),
        ForCoordinator(coordinator, [=, this, self = Self(*server), epoch = replica.core->epoch(),
                                     tail = replica.core->last_lsn()] {
          ActivationArrives(coordinator, shard, self, epoch, tail);
        }));
  }
}

void ClusterSimulation::DrainOnce(Server* server, int shard, CoreReady* ready) {
  Process& p = *server->process;
  Replica& replica = *p.replicas[shard];
  if (ready->promise != 0) Promise(server->index, shard, ready->promise);
  if (ready->cut_from != 0) replica.tail->CutFrom(ready->cut_from);
  for (const CoreEntry& entry : ready->appends) HandToLog(server, shard, entry);
  for (const CoreSend& send : ready->sends) CarryOut(server->index, shard, send);
  replica.applying.insert(replica.applying.end(), ready->applies.begin(), ready->applies.end());
  for (const CoreReply& reply : ready->replies) Reply(server->index, shard, reply);
  ScheduleAppend(server->index);
  ScheduleApply(server->index, shard);
}

void ClusterSimulation::HandToLog(Server* server, int shard, const CoreEntry& entry) {
  Replica& replica = *server->process->replicas[shard];
  RecordTail& tail = *replica.tail;
  if (tail.empty()) tail.BeginAbove(entry.lsn - 1);
  if (entry.lsn != tail.last() + 1) {
    return Violation(absl::StrCat("s", server->index + 1, " shard ", shard, " appends LSN ",
                                  entry.lsn, " behind ", tail.last()));
  }
  const auto record = std::make_shared<const CoreEntry>(entry);
  const auto* const bytes = reinterpret_cast<const uint8_t*>(record.get());
  tail.Add(entry.epoch, {record, absl::MakeConstSpan(bytes, sizeof(CoreEntry))});
  if (shards_[shard].setting.durability == Durability::kCheckpoint) {
    replica.core->Appended(entry.lsn, entry.ticket);  // in memory is all that is asked
  } else {
    server->process->appending.push_back({shard, entry});
  }
}

void ClusterSimulation::CarryOut(int server, int shard, const CoreSend& send) {
  if (send.kind == CoreSend::Kind::kSnapshot) return StartTransfer(server, shard, send);
  const RecordTail& tail = *servers_[server].process->replicas[shard]->tail;
  ReplicaMessage message;
  message.kind = send.kind == CoreSend::Kind::kAppend ? ReplicaMessage::Kind::kAppend
                                                      : ReplicaMessage::Kind::kAppendReply;
  message.shard = shard;
  message.to = send.to;
  message.send = send;
  if (send.kind == CoreSend::Kind::kAppend && send.last_lsn > send.prev_lsn) {
    if (!tail.Has(send.prev_lsn + 1) || !tail.Has(send.last_lsn)) {
      return Violation(absl::StrCat("s", server + 1, " shard ", shard, " is to send LSN ",
                                    send.prev_lsn + 1, " to ", send.last_lsn, ", retained are ",
                                    tail.first(), " to ", tail.last()));
    }
    for (Lsn lsn = send.prev_lsn + 1; lsn <= send.last_lsn; ++lsn) {
      message.entries.push_back(*static_cast<const CoreEntry*>(tail.record(lsn).owner.get()));
    }
  }
  if (trace_ != nullptr) {
    Trace(absl::StrCat("SEND s", server + 1, " to s", send.to.server, "/", send.to.incarnation,
                       " shard ", shard, " epoch ", send.epoch,
                       send.kind == CoreSend::Kind::kAppend
                           ? absl::StrCat(" append ", send.prev_lsn, "@", send.prev_epoch, " to ",
                                          send.last_lsn, " commit ", send.commit)
                           : absl::StrCat(" reply ok ", send.reply.ok, " snapshot ",
                                          send.reply.needs_snapshot, " lsn ", send.reply.lsn)));
  }
  SendReplica(server, std::move(message));
}

// --- rows

void ClusterSimulation::ScheduleApply(int server, int shard) {
  Replica& replica = *servers_[server].process->replicas[shard];
  if (replica.apply_scheduled || replica.applying.empty()) return;
  replica.apply_scheduled = true;
  const auto apply = [this, server, shard] {
    Replica* again = servers_[server].process->replicas[shard].get();
    if (again == nullptr) return;
    again->apply_scheduled = false;
    FinishApply(server, shard);
  };
  const Time slow = stormy() && Chance(weather_.rows_slow) ? Delay(weather_.rows_slow_time)
                                                           : Delay(10 * kMs);  // rows to be read
  At(Chance(weather_.rows_at_once) ? 0 : slow, ForLife(server, apply));
}

void ClusterSimulation::FinishApply(int server, int shard) {
  Process& p = *servers_[server].process;
  for (size_t i = 0; i < 4; ++i) {
    Replica* replica = p.replicas[shard].get();
    if (replica == nullptr || replica->core == nullptr || replica->spoilt) return;
    if (replica->applying.empty()) return;
    const CoreEntry entry = replica->applying.front();
    replica->applying.pop_front();
    const uint64_t state = ApplyEntry(shard, replica, entry);
    CheckApplied(server, shard, *replica, entry, state);
    if (trace_ != nullptr) {
      Trace(absl::StrCat("APPLY s", server + 1, " shard ", shard, " lsn ", entry.lsn, "@",
                         entry.epoch, " kind ", static_cast<int>(entry.kind), " push ",
                         requests_[entry.payload].push));
    }
    replica->core->Applied(entry.lsn);
    Drain(server, shard);
  }
  RunParked(server, shard);
  if (p.replicas[shard] != nullptr) ScheduleApply(server, shard);
}

void ClusterSimulation::AddToRow(Row* row, PushId push) {
  nodes_.push_back({push, row->node});
  row->node = static_cast<uint32_t>(nodes_.size() - 1);
  row->sum += pushes_[push].weight;
  row->chain = (row->chain ^ (push + 0x9e3779b97f4a7c15ull)) * 0xff51afd7ed558ccdull;
  row->chain ^= row->chain >> 29;
}

// Returns a hash of the rows that the entry changed, after it; 0: it changed none.
uint64_t ClusterSimulation::ApplyEntry(int shard, Replica* replica, const CoreEntry& entry) {
  std::vector<PushId> applied;
  if (entry.kind == RecordKind::kPush) {
    const PushId push = requests_[entry.payload].push;
    if (entry.staged) {
      replica->staged[entry.lsn] = push;
      return 0;
    }
    if (pushes_[push].staged) Violation("a staged push was applied before its commit");
    applied.push_back(push);
  } else if (entry.kind == RecordKind::kStepCommit) {
    const uint64_t step = entry.seq >> kStepShift;
    const std::vector<SessionId>& sessions = shards_[shard].commits.at(step);
    for (const Lsn lsn : replica->core->StagedOf(step, sessions)) {
      const auto staged = replica->staged.find(lsn);
      if (staged == replica->staged.end()) {
        Violation(absl::StrCat("shard ", shard, ": the push staged at LSN ", lsn, " is not there"));
        return 0;
      }
      applied.push_back(staged->second);
    }
  }
  uint64_t state = 0;
  for (int row = 0; row < kRows; ++row) {
    Row& at = replica->rows[row];
    bool touched = false;
    for (const PushId push : applied) {
      if ((pushes_[push].rows >> row & 1) == 0) continue;
      touched = true;
      if (entry.lsn > at.lsn) AddToRow(&at, push);
    }
    if (!touched) continue;
    at.lsn = std::max(at.lsn, entry.lsn);
    state = (state + at.chain) * 0xc4ceb9fe1a85ec53ull + row;
  }
  return state;
}

// One row to the spill tier, with the LSN of now: ahead of the meta stored there.
void ClusterSimulation::WriteBack(Server* server, int shard) {
  const Replica& replica = *server->process->replicas[shard];
  if (replica.core == nullptr || shards_[shard].setting.durability == Durability::kCheckpoint) {
    return;
  }
  const int row = Pick(kRows);
  Row& stored = server->disk.shards[shard].rows[row];
  if (stored.chain == replica.rows[row].chain) return;
  if (!Planted(SimMutant::kSpillBeforeSync)) SyncLog(server);
  stored = replica.rows[row];
  stored.lsn = replica.core->applied_lsn();
}

std::shared_ptr<const ShardMeta> ClusterSimulation::WriteBackAll(Server* server, int shard) {
  const Replica& replica = *server->process->replicas[shard];
  SpilledShard& spilled = server->disk.shards[shard];
  if (!Planted(SimMutant::kSpillBeforeSync)) SyncLog(server);
  for (int row = 0; row < kRows; ++row) {
    if (spilled.rows[row].chain == replica.rows[row].chain) continue;
    spilled.rows[row] = replica.rows[row];
    spilled.rows[row].lsn = replica.core->applied_lsn();
  }
  ShardMeta meta = replica.core->AppliedMeta();
  for (StagedPush& push : meta.staged) {
    const auto staged = replica.staged.find(push.lsn);
    if (staged == replica.staged.end()) {
      Violation(absl::StrCat("shard ", shard, ": nothing is staged at LSN ", push.lsn));
    } else {
      push.payload = std::to_string(staged->second);
    }
  }
  spilled.meta = meta;
  return std::make_shared<const ShardMeta>(std::move(meta));
}

// --- requests

void ClusterSimulation::Receive(int server, Request request) {
  Replica* replica = servers_[server].process->replicas[request.shard].get();
  if (replica == nullptr || replica->core == nullptr) {
    CoreReply reply;
    reply.code = SegmentCode::kWrongEpoch;
    requests_.push_back(request);
    reply.token = requests_.size() - 1;
    return Reply(server, request.shard, reply);
  }
  requests_.push_back(request);
  const PushToken token = requests_.size() - 1;
  if (request.commit_step != 0) {
    replica->core->Commit({request.epoch, request.commit_step, token});
    return Drain(server, request.shard);
  }
  if (replica->tail->full()) {  // as CheckPush
    CoreReply reply;
    reply.code = SegmentCode::kResourceExhausted;
    reply.token = token;
    return Reply(server, request.shard, reply);
  }
  CorePush push;
  push.epoch = request.epoch;
  push.staged = pushes_[request.push].staged;
  push.session = SessionOf(request.client);
  push.incarnation = request.incarnation;
  push.seq = request.seq;
  push.prev_seq = request.prev_seq;
  push.open = request.open;
  push.refusal = pushes_[request.push].nan ? SegmentCode::kNanGradient : SegmentCode::kOk;
  push.token = token;
  replica->core->Push(push);
  Drain(server, request.shard);
}

void ClusterSimulation::Reply(int server, int shard, const CoreReply& reply) {
  Request& request = requests_[reply.token];
  if (std::exchange(request.answered, true)) {
    return Violation(absl::StrCat("shard ", shard, ": a push was answered twice"));
  }
  const Server& s = servers_[server];
  const Replica* replica = s.process->replicas[shard].get();
  if (replica != nullptr && replica->core != nullptr) {
    const bool acknowledges =
        reply.code == SegmentCode::kOk || reply.code == SegmentCode::kNanGradient;
    if (acknowledges) CheckAcknowledged(shard, Self(s), replica->core->epoch(), reply.lsn);
  }
  if (trace_ != nullptr) {
    Trace(absl::StrCat("REPLY s", server + 1, " shard ", shard, " k", request.client, " push ",
                       request.push, " seq ", request.seq, " code ", static_cast<int>(reply.code),
                       " lsn ", reply.lsn, " last ", reply.last_seq));
  }
  const int client = request.client < 0 ? kClients : request.client;
  Datagram(ServerNode(server), ClientNode(client),
           [this, request, reply, record = s.process->known[shard]] {
             OnReply(request, reply, record);
           });
}

}  // namespace hotbed::sim
