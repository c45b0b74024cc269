// Between the servers of the simulated cluster: connections that keep order until they break, and
// copies of whole shards.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tests/sim/cluster_simulation.h"
#include "tests/sim/sim_mutant.h"

namespace hotbed::sim {
namespace {

constexpr int kChunks = 3;                      // of the first pass; each further pass has one
constexpr Time kTransferPatience = 1500 * kMs;  // without an answer, or the next message

}  // namespace

// --- connections

void ClusterSimulation::SendReplica(int server, ReplicaMessage message) {
  message.from = Self(servers_[server]);
  const int to = static_cast<int>(message.to.server) - 1;
  Link& link = links_[server][to];
  if (link.broken) return;
  auto shared = std::make_shared<const ReplicaMessage>(std::move(message));
  if (Cut(ServerNode(server), ServerNode(to)) || (stormy() && Chance(weather_.links_break))) {
    return Break(server, to, shared->to);
  }
  const Time delay = healed() || Chance(0.97) ? Delay(3 * kMs) : Delay(80 * kMs);
  link.last_arrival = std::max(link.last_arrival, time_ + delay);
  const uint32_t generation = link.generation;
  At(link.last_arrival - time_,
     [this, shared, generation] { DeliverReplica(shared, generation, false); });
  if (stormy() && Chance(0.01)) {
    At(Delay(400 * kMs), [this, shared, generation] { DeliverReplica(shared, generation, true); });
  }
}

void ClusterSimulation::Break(int from, int to, const Member& peer) {
  Link& link = links_[from][to];
  if (link.broken || servers_[from].process == nullptr) return;
  link.broken = true;
  ++link.generation;
  const Incarnation life = servers_[from].process->incarnation;
  At(Delay(100 * kMs), [this, from, to, peer, life] {
    links_[from][to].broken = false;
    Process* p = servers_[from].process.get();
    if (p == nullptr || p->incarnation != life) return;
    ForLife(from, [this, from, peer] {
      for (int shard = 0; shard < static_cast<int>(shards_.size()); ++shard) {
        DropTransferOut(from, shard, peer);
        Replica* replica = servers_[from].process->replicas[shard].get();
        if (replica == nullptr || replica->core == nullptr) continue;
        replica->core->OnPeerLost(peer);
        Drain(from, shard);
      }
    })();
  });
}

// Messages in flight when the connection broke are lost, or come late and in any order.
void ClusterSimulation::DeliverReplica(const ReplicaMessagePtr& message, uint32_t generation,
                                       bool late) {
  const int from = static_cast<int>(message->from.server) - 1;
  const int to = static_cast<int>(message->to.server) - 1;
  if (!late && generation != links_[from][to].generation) {
    if (Chance(0.4)) {
      At(Delay(300 * kMs), [=, this] { DeliverReplica(message, generation, true); });
    }
    return;
  }
  Process* p = ProcessOf(message->to);
  if (p == nullptr || Cut(ServerNode(from), ServerNode(to))) {
    if (!late) Break(from, to, message->to);
    return;
  }
  ForLife(to, [this, to, message] { OnReplicaMessage(to, *message); })();
}

void ClusterSimulation::OnReplicaMessage(int server, const ReplicaMessage& message) {
  Server& s = servers_[server];
  using Kind = ReplicaMessage::Kind;
  if (message.kind == Kind::kSnapshotReply) return OnSnapshotReply(server, message);
  if (message.kind != Kind::kAppend && message.kind != Kind::kAppendReply) {
    return OnSnapshot(server, message);
  }
  Replica* replica = s.process->replicas[message.shard].get();
  if (replica == nullptr || replica->core == nullptr) return;
  if (replica->spoilt) return AskForSnapshot(server, message);
  if (message.kind == Kind::kAppendReply) {
    replica->core->OnAppendReply(message.from, message.send.reply);
  } else {
    CoreAppend append;
    append.epoch = message.send.epoch;
    append.prev_epoch = message.send.prev_epoch;
    append.prev_lsn = message.send.prev_lsn;
    append.commit = message.send.commit;
    append.entries = message.entries;
    replica->core->OnAppend(message.from, append);
  }
  Drain(server, message.shard);
}

// For a refused replica: as ServingState::ReplicaLost and ServingState::MayBeReplaced.
bool ClusterSimulation::ReplicaLost(const Replica& replica, const ShardRecord& record,
                                    const Member& self) {
  const bool counted = record.epoch <= replica.spoilt_promise;
  return Contains(record.members, self) || (counted && Contains(record.learners, self));
}

bool ClusterSimulation::MayBeReplaced(const Replica& replica, Epoch epoch, const Member& self) {
  const ShardRecord& record = replica.core->record();
  return epoch == record.epoch && Contains(record.learners, self) &&
         !ReplicaLost(replica, record, self);
}

// The replica is refused. If nothing depends on it, a snapshot may replace all its rows.
void ClusterSimulation::AskForSnapshot(int server, const ReplicaMessage& message) {
  const Replica& replica = *servers_[server].process->replicas[message.shard];
  const bool asked = message.kind == ReplicaMessage::Kind::kAppend &&
                     message.from == replica.core->record().primary;
  if (!asked || !MayBeReplaced(replica, message.send.epoch, Self(servers_[server]))) return;
  CoreSend send;
  send.kind = CoreSend::Kind::kAppendReply;
  send.to = message.from;
  send.epoch = message.send.epoch;
  send.reply = {message.send.epoch, false, true, 0, message.send.prev_lsn};
  CarryOut(server, message.shard, send);
}

// --- outgoing transfers

void ClusterSimulation::StartTransfer(int server, int shard, const CoreSend& send) {
  Replica& replica = *servers_[server].process->replicas[shard];
  for (const TransferOut& copy : replica.outgoing) {
    if (copy.to == send.to) return;
  }
  TransferOut copy;
  copy.to = send.to;
  copy.transfer = ++next_transfer_;
  copy.wanted = send.last_lsn;
  copy.epoch = send.epoch;
  copy.deadline = time_ + 4 * kTransferPatience;
  replica.outgoing.push_back(copy);
  At(Delay(10 * kMs), ForLife(server, [=, this] { AdvanceTransfers(server, shard); }));
}

void ClusterSimulation::AdvanceTransfers(int server, int shard) {
  Server& s = servers_[server];
  Replica* replica = s.process->replicas[shard].get();
  if (replica == nullptr || replica->outgoing.empty()) {
    if (replica != nullptr && replica->incoming != nullptr && time_ > replica->incoming->deadline) {
      AbandonTransferIn(&s, shard);
    }
    return;
  }
  std::vector<Member> late;
  for (size_t i = 0; i < replica->outgoing.size(); ++i) {
    TransferOut& copy = replica->outgoing[i];
    if (time_ > copy.deadline || !replica->core->primary() || replica->spoilt) {
      late.push_back(copy.to);
    } else if (copy.lsn == 0 && replica->core->applied_lsn() >= copy.wanted &&
               replica->core->applied_lsn() > 0) {
      copy.meta = WriteBackAll(&s, shard);
      copy.lsn = replica->core->applied_lsn();
      replica->core->SnapshotTaken(copy.to, copy.lsn);
      ReplicaMessage message;
      message.kind = ReplicaMessage::Kind::kSnapshotBegin;
      message.shard = shard;
      message.to = copy.to;
      message.epoch = copy.epoch;
      message.transfer = copy.transfer;
      message.lsn = copy.lsn;
      copy.deadline = time_ + kTransferPatience;
      SendReplica(server, std::move(message));
    }
  }
  for (const Member& to : late) DropTransferOut(server, shard, to);
  Drain(server, shard);
}

void ClusterSimulation::DropTransferOut(int server, int shard, const Member& to) {
  Replica* replica = servers_[server].process->replicas[shard].get();
  if (replica == nullptr) return;
  for (size_t i = 0; i < replica->outgoing.size(); ++i) {
    if (!(replica->outgoing[i].to == to)) continue;
    const Lsn lsn = replica->outgoing[i].lsn;
    replica->outgoing.erase(replica->outgoing.begin() + static_cast<ptrdiff_t>(i));
    ++stats_.transfers_broken;
    if (replica->core != nullptr) replica->core->SnapshotDone(to, lsn, false);
    return;
  }
}

// As SnapshotSource in a further pass: entries logged since the last pass need not be kept. The
// number of the transfer decides, so that no random number is drawn.
bool ClusterSimulation::BeginFurtherPass(int server, int shard, TransferOut* copy) {
  Replica& replica = *servers_[server].process->replicas[shard];
  const int passes = 1 + copy->pass_end - kChunks;
  if (copy->transfer % 4 <= static_cast<uint64_t>(passes)) return false;
  if (!replica.core->primary() || replica.spoilt || replica.core->epoch() != copy->epoch) {
    return false;
  }
  copy->above = copy->lsn;
  copy->meta = WriteBackAll(&servers_[server], shard);
  copy->lsn = replica.core->applied_lsn();
  replica.core->SnapshotTaken(copy->to, copy->lsn);
  ++copy->pass_end;
  ++stats_.further_passes;
  return true;
}

void ClusterSimulation::SendChunk(int server, int shard, TransferOut* copy) {
  Server& s = servers_[server];
  ReplicaMessage message;
  message.shard = shard;
  message.to = copy->to;
  message.epoch = copy->epoch;
  message.transfer = copy->transfer;
  message.chunk = copy->next_chunk;
  if (copy->next_chunk == 0) copy->pass_end = kChunks;
  const bool further = copy->next_chunk == copy->pass_end && BeginFurtherPass(server, shard, copy);
  message.lsn = copy->lsn;
  // Rows as they lie in the spill tier when the pass begins: of its LSN or later.
  if (copy->next_chunk == 0 || further) {
    for (int i = 0; i < kRows; ++i) WriteBack(&s, shard);
    copy->rows = s.disk.shards[shard].rows;
  }
  if (copy->next_chunk < copy->pass_end) {
    message.kind = ReplicaMessage::Kind::kSnapshotRows;
    const int step = further ? 1 : kChunks;
    for (int row = further ? 0 : copy->next_chunk; row < kRows; row += step) {
      if (copy->rows[row].lsn > copy->above || !further) {
        message.rows.emplace_back(row, copy->rows[row]);
      }
    }
  } else {
    message.kind = ReplicaMessage::Kind::kSnapshotEnd;
    message.meta = copy->meta;
  }
  ++copy->next_chunk;
  copy->deadline = time_ + kTransferPatience;
  SendReplica(server, std::move(message));
}

void ClusterSimulation::OnSnapshotReply(int server, const ReplicaMessage& message) {
  Replica* replica = servers_[server].process->replicas[message.shard].get();
  if (replica == nullptr || replica->core == nullptr) return;
  const auto copy =
      std::find_if(replica->outgoing.begin(), replica->outgoing.end(), [&](const TransferOut& out) {
        return out.transfer == message.transfer && out.to == message.from;
      });
  if (copy == replica->outgoing.end()) return;
  if (!message.ok) {
    DropTransferOut(server, message.shard, message.from);
  } else if (message.chunk > copy->pass_end) {
    ++stats_.snapshots;
    const Lsn lsn = copy->lsn;
    replica->outgoing.erase(copy);
    replica->core->SnapshotDone(message.from, lsn, true);
  } else if (message.chunk == copy->next_chunk) {
    const int shard = message.shard;
    const uint64_t transfer = message.transfer;
    At(Delay(weather_.transfer_time), ForLife(server, [=, this] {
         Replica* again = servers_[server].process->replicas[shard].get();
         if (again == nullptr || again->core == nullptr) return;
         for (TransferOut& out : again->outgoing) {
           if (out.transfer == transfer) return SendChunk(server, shard, &out);
         }
       }));
  }
  Drain(server, message.shard);
}

// --- incoming transfers

void ClusterSimulation::OnSnapshot(int server, const ReplicaMessage& message) {
  Server& s = servers_[server];
  Replica* replica = s.process->replicas[message.shard].get();
  if (replica == nullptr) return;
  using Kind = ReplicaMessage::Kind;
  ReplicaMessage answer;
  answer.kind = Kind::kSnapshotReply;
  answer.shard = message.shard;
  answer.to = message.from;
  answer.epoch = message.epoch;
  answer.transfer = message.transfer;
  answer.lsn = message.lsn;
  if (message.kind == Kind::kSnapshotBegin) {
    answer.ok = BeginTransferIn(&s, message);
    answer.chunk = 0;
    return SendReplica(server, std::move(answer));
  }
  TransferIn* copy = replica->incoming.get();
  if (copy == nullptr || copy->transfer != message.transfer || copy->epoch != message.epoch ||
      copy->chunks != message.chunk) {
    return;
  }
  copy->deadline = time_ + kTransferPatience;
  ++copy->chunks;
  for (const auto& [row, value] : message.rows) s.disk.shards[message.shard].rows[row] = value;
  answer.ok = true;
  answer.chunk = copy->chunks;
  if (message.kind == Kind::kSnapshotEnd) EndTransferIn(&s, message);
  SendReplica(server, std::move(answer));
}

bool ClusterSimulation::BeginTransferIn(Server* server, const ReplicaMessage& message) {
  const int shard = message.shard;
  if (trace_ != nullptr) {
    Trace(absl::StrCat("COPY of shard ", shard, " to s", server->index + 1, " from s",
                       message.from.server, " epoch ", message.epoch, " lsn ", message.lsn));
  }
  Replica& replica = *server->process->replicas[shard];
  if (replica.core != nullptr) {
    const bool may = replica.spoilt ? MayBeReplaced(replica, message.epoch, Self(*server))
                                    : replica.core->MayInstall(message.epoch, message.lsn);
    if (!may) return false;
  }
  const TransferIn* before = replica.incoming.get();
  if (before != nullptr &&
      (before->epoch > message.epoch ||
       (before->epoch == message.epoch && before->transfer >= message.transfer))) {
    return false;
  }
  if (message.epoch < server->disk.promised[shard]) return false;
  if (replica.core != nullptr) {
    replica.core->Abandon(SegmentCode::kWrongEpoch);
    Drain(server->index, shard);
  }
  server->process->replicas[shard] = std::make_unique<Replica>();
  Replica& fresh = *server->process->replicas[shard];
  fresh.incoming = std::make_unique<TransferIn>();
  fresh.incoming->from = message.from;
  fresh.incoming->epoch = message.epoch;
  fresh.incoming->transfer = message.transfer;
  fresh.incoming->lsn = message.lsn;
  fresh.incoming->deadline = time_ + kTransferPatience;
  SpilledShard& spilled = server->disk.shards[shard];
  spilled = SpilledShard();
  spilled.held = true;
  spilled.installing = true;
  BeginLog(server, shard);
  return true;
}

// Opens the installed rows, as recovery does.
void ClusterSimulation::EndTransferIn(Server* server, const ReplicaMessage& message) {
  const int shard = message.shard;
  if (trace_ != nullptr) Trace(absl::StrCat("COPIED shard ", shard, " to s", server->index + 1));
  SpilledShard& spilled = server->disk.shards[shard];
  spilled.meta = *message.meta;
  spilled.installing = false;
  Replica& replica = *FreshReplica(server, shard);
  replica.core->Recover(server->disk.promised[shard], spilled.meta, /*installed=*/true);
  replica.rows = spilled.rows;
  for (const Row& row : spilled.rows) replica.guard = std::max(replica.guard, row.lsn);
  spilled.guard = replica.guard;
  for (const StagedPush& push : spilled.meta.staged) {
    replica.staged[push.lsn] = static_cast<PushId>(std::stoul(push.payload));
  }
  const RecordPtr known = server->process->known[shard];
  if (known != nullptr) Learn(server->index, known);
}

void ClusterSimulation::AbandonTransferIn(Server* server, int shard) {
  server->disk.shards[shard] = SpilledShard();
  FreshReplica(server, shard)->core->Recover(server->disk.promised[shard], ShardMeta());
  const RecordPtr known = server->process->known[shard];
  if (known != nullptr) Learn(server->index, known);
}

}  // namespace hotbed::sim
