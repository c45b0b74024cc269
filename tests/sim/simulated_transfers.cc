// Between the servers of the simulated cluster: connections that keep order until they break, and
// snapshots of whole shards.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tests/sim/cluster_simulation.h"
#include "tests/sim/sim_mutant.h"

namespace hotbed::sim {
namespace {

// A first pass has up to three blocks of rows, a further one has one.
constexpr uint64_t kFirstBlockBytes = 2 * (sizeof(uint64_t) + sizeof(Row));
constexpr uint64_t kFurtherBlockBytes = kRows * (sizeof(uint64_t) + sizeof(Row));
constexpr int kPassesMax = 4;
constexpr Time kTransferPatience = 1500 * kMs;  // without an answer, or the next message

SharedBytes Share(std::string bytes) {
  auto owner = std::make_shared<const std::string>(std::move(bytes));
  const auto* const data = reinterpret_cast<const uint8_t*>(owner->data());
  const size_t size = owner->size();
  return {std::move(owner), {data, size}};
}

}  // namespace

// --- connections

void ClusterSimulation::SendReplica(int server, ReplicaMessage message) {
  if (trace_ != nullptr) TraceMessage(server, message);
  const int to = static_cast<int>(message.to.server) - 1;
  Link& link = links_[server][to];
  if (link.broken) return;
  if (Cut(ServerNode(server), ServerNode(to)) || (stormy() && Chance(weather_.links_break))) {
    return Break(server, to, message.to);
  }
  const auto shared =
      std::make_shared<const Letter>(Letter{Self(servers_[server]), std::move(message)});
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
        const Replica* const replica = Open(servers_[from], shard);
        if (replica == nullptr) continue;
        replica->shard->OnPeerLost(peer);
        AfterEvent(from, shard);
      }
    })();
  });
}

// Messages in flight when the connection broke are lost, or come late and in any order.
void ClusterSimulation::DeliverReplica(const LetterPtr& letter, uint32_t generation, bool late) {
  const int from = static_cast<int>(letter->from.server) - 1;
  const int to = static_cast<int>(letter->message.to.server) - 1;
  if (!late && generation != links_[from][to].generation) {
    if (Chance(0.4)) {
      At(Delay(300 * kMs), [=, this] { DeliverReplica(letter, generation, true); });
    }
    return;
  }
  Process* p = ProcessOf(letter->message.to);
  if (p == nullptr || Cut(ServerNode(from), ServerNode(to))) {
    if (!late) Break(from, to, letter->message.to);
    return;
  }
  ForLife(to, [this, to, letter] { OnReplicaMessage(to, *letter); })();
}

void ClusterSimulation::OnReplicaMessage(int server, const Letter& letter) {
  using Kind = ReplicaMessage::Kind;
  const Kind kind = letter.message.kind;
  if (kind == Kind::kSnapshotReply) return OnSnapshotReply(server, letter);
  if (kind != Kind::kAppend && kind != Kind::kAppendReply) return OnSnapshot(server, letter);
  const int shard = static_cast<int>(letter.message.shard.index);
  const Replica* const replica = Open(servers_[server], shard);
  if (replica == nullptr) return;
  replica->shard->OnReplicaMessage(letter.from, letter.message);
  AfterEvent(server, shard);
}

void ClusterSimulation::TraceMessage(int server, const ReplicaMessage& message) {
  using Kind = ReplicaMessage::Kind;
  Trace(absl::StrCat(
      "SEND s", server + 1, " to s", message.to.server, "/", message.to.incarnation, " shard ",
      message.shard.index, " epoch ", message.epoch,
      message.kind == Kind::kAppend
          ? absl::StrCat(" append ", message.prev_lsn, "@", message.prev_epoch, " and ",
                         message.records.size(), " more, commit ", message.commit)
      : message.kind == Kind::kAppendReply
          ? absl::StrCat(" reply ok ", message.ok, " snapshot ", message.needs_snapshot, " lsn ",
                         message.lsn)
          : absl::StrCat(" transfer ", message.transfer, " kind ", static_cast<int>(message.kind),
                         " chunk ", message.chunk, " lsn ", message.lsn)));
}

// --- outgoing transfers, as SnapshotSender

void ClusterSimulation::StartTransfer(int server, int shard, const Member& to) {
  Replica& replica = *servers_[server].process->replicas[shard];
  for (const TransferOut& transfer : replica.outgoing) {
    if (transfer.to == to) return;
  }
  TransferOut& transfer = replica.outgoing.emplace_back();
  transfer.to = to;
  transfer.transfer = ++next_transfer_;
  transfer.deadline = time_ + 4 * kTransferPatience;
  At(Delay(10 * kMs), ForLife(server, [this, server, shard, number = transfer.transfer] {
       SendNext(server, shard, number);
     }));
}

// Ends transfers whose other side says nothing.
void ClusterSimulation::CheckTransfers(int server, int shard) {
  Replica* const replica = servers_[server].process->replicas[shard].get();
  if (replica == nullptr) return;
  if (replica->incoming != nullptr && time_ > replica->incoming->deadline) {
    return AbandonTransferIn(&servers_[server], shard);
  }
  std::vector<Member> late;
  for (const TransferOut& transfer : replica->outgoing) {
    if (time_ > transfer.deadline) late.push_back(transfer.to);
  }
  for (const Member& to : late) DropTransferOut(server, shard, to);
}

void ClusterSimulation::DropTransferOut(int server, int shard, const Member& to) {
  Replica* const replica = servers_[server].process->replicas[shard].get();
  if (replica == nullptr) return;
  const auto transfer =
      std::find_if(replica->outgoing.begin(), replica->outgoing.end(),
                   [&](const TransferOut& transfer) { return transfer.to == to; });
  if (transfer == replica->outgoing.end()) return;
  const Lsn lsn = transfer->snapshot.base.lsn;
  replica->outgoing.erase(transfer);
  ++stats_.transfers_broken;
  replica->shard->EndSnapshot(to, lsn, /*installed=*/false);
  AfterEvent(server, shard);
}

// False: there is no snapshot for it now.
bool ClusterSimulation::BeginPass(int server, int shard, TransferOut* transfer) {
  const SnapshotBase before = transfer->snapshot.base;
  Shard& from = *servers_[server].process->replicas[shard]->shard;
  transfer->holds = ++transfer->passes == kPassesMax;
  absl::StatusOr<Snapshot> begun = from.BeginSnapshot(transfer->to, transfer->holds, before.lsn);
  AfterEvent(server, shard);
  if (!begun.ok()) return false;
  transfer->snapshot = *std::move(begun);
  const SnapshotBase& base = transfer->snapshot.base;
  if (before.epoch != 0) {
    ++stats_.further_passes;
    return base.epoch == before.epoch;
  }
  ReplicaMessage message;
  message.kind = ReplicaMessage::Kind::kSnapshotBegin;
  message.shard = from.id();
  message.to = transfer->to;
  message.epoch = base.epoch;
  message.transfer = transfer->transfer;
  message.lsn = base.lsn;
  SendReplica(server, std::move(message));
  return true;
}

// The next message of the transfer, once the one before was answered.
void ClusterSimulation::SendNext(int server, int shard, uint64_t number) {
  Replica* const replica = Open(servers_[server], shard);
  if (replica == nullptr) return;
  const auto transfer =
      std::find_if(replica->outgoing.begin(), replica->outgoing.end(),
                   [&](const TransferOut& transfer) { return transfer.transfer == number; });
  if (transfer == replica->outgoing.end()) return;
  Shard& from = *replica->shard;
  const Epoch epoch = transfer->snapshot.base.epoch;
  const bool wanted =
      from.primary() && from.WantsSnapshot(transfer->to) && (epoch == 0 || epoch == from.epoch());
  if (!wanted) return DropTransferOut(server, shard, transfer->to);
  transfer->deadline = time_ + kTransferPatience;
  if (epoch == 0) {
    if (!BeginPass(server, shard, &*transfer)) DropTransferOut(server, shard, transfer->to);
    return;
  }
  ReplicaMessage message;
  message.shard = from.id();
  message.to = transfer->to;
  message.epoch = epoch;
  message.transfer = number;
  for (;;) {
    absl::StatusOr<std::string> block =
        transfer->snapshot.rows->Next(transfer->passes > 1 ? kFurtherBlockBytes : kFirstBlockBytes);
    if (!block.ok()) return DropTransferOut(server, shard, transfer->to);
    if (!block->empty()) {
      message.kind = ReplicaMessage::Kind::kSnapshotRows;
      message.chunk = transfer->chunks++;
      message.body = Share(*std::move(block));
      return SendReplica(server, std::move(message));
    }
    // Some transfers find the tail too long, however short it is here.
    const bool may_hold = transfer->passes > static_cast<int>(transfer->transfer % 3);
    const Lsn lsn = transfer->snapshot.base.lsn;
    if (transfer->holds || (may_hold && from.HoldFor(transfer->to, lsn))) break;
    if (!BeginPass(server, shard, &*transfer)) {
      return DropTransferOut(server, shard, transfer->to);
    }
  }
  from.KeepSnapshot().IgnoreError();
  message.kind = ReplicaMessage::Kind::kSnapshotEnd;
  message.chunk = transfer->chunks;
  message.lsn = transfer->snapshot.base.lsn;
  message.body = Share(transfer->snapshot.base.meta);
  transfer->ended = true;
  SendReplica(server, std::move(message));
}

void ClusterSimulation::OnSnapshotReply(int server, const Letter& letter) {
  const ReplicaMessage& message = letter.message;
  const int shard = static_cast<int>(message.shard.index);
  Replica* const replica = Open(servers_[server], shard);
  if (replica == nullptr) return;
  const auto transfer =
      std::find_if(replica->outgoing.begin(), replica->outgoing.end(), [&](const TransferOut& out) {
        return out.transfer == message.transfer && out.to == letter.from;
      });
  if (transfer == replica->outgoing.end()) return;
  if (!message.ok) return DropTransferOut(server, shard, letter.from);
  if (transfer->ended && message.chunk == transfer->chunks + 1) {
    ++stats_.snapshots;
    const Lsn lsn = transfer->snapshot.base.lsn;
    replica->outgoing.erase(transfer);
    replica->shard->EndSnapshot(letter.from, lsn, /*installed=*/true);
    return AfterEvent(server, shard);
  }
  if (transfer->ended || message.chunk != transfer->chunks) return;
  At(Delay(weather_.transfer_time),
     ForLife(server, [=, this, chunks = transfer->chunks, number = transfer->transfer] {
       const Replica* const again = Open(servers_[server], shard);
       if (again == nullptr) return;
       for (const TransferOut& out : again->outgoing) {
         if (out.transfer == number && out.chunks == chunks && !out.ended) {
           return SendNext(server, shard, number);
         }
       }
     }));
}

// --- incoming transfers, as SnapshotReceiver and SnapshotInstaller

void ClusterSimulation::OnSnapshot(int server, const Letter& letter) {
  using Kind = ReplicaMessage::Kind;
  const ReplicaMessage& message = letter.message;
  const int shard = static_cast<int>(message.shard.index);
  Server& s = servers_[server];
  const Replica* const replica = s.process->replicas[shard].get();
  if (replica == nullptr) return;
  ReplicaMessage answer;
  answer.kind = Kind::kSnapshotReply;
  answer.shard = message.shard;
  answer.to = letter.from;
  answer.epoch = message.epoch;
  answer.transfer = message.transfer;
  answer.lsn = message.lsn;
  if (message.kind == Kind::kSnapshotBegin) {
    answer.ok = BeginTransferIn(&s, letter);
    return SendReplica(server, std::move(answer));
  }
  TransferIn* const transfer = replica->incoming.get();
  if (transfer == nullptr || transfer->transfer != message.transfer ||
      transfer->epoch != message.epoch || transfer->chunks != message.chunk) {
    return;
  }
  transfer->deadline = time_ + kTransferPatience;
  answer.ok = true;
  answer.chunk = ++transfer->chunks;
  if (message.kind == Kind::kSnapshotEnd) {
    EndTransferIn(&s, letter);
  } else {
    TakeBlock(&s, shard, message.body.bytes);
  }
  SendReplica(server, std::move(answer));
}

bool ClusterSimulation::BeginTransferIn(Server* server, const Letter& letter) {
  const ReplicaMessage& message = letter.message;
  const int shard = static_cast<int>(message.shard.index);
  const Replica& replica = *server->process->replicas[shard];
  if (replica.shard != nullptr &&
      !replica.shard->MayInstall(letter.from, message.epoch, message.lsn)) {
    return false;
  }
  const TransferIn* before = replica.incoming.get();
  if (before != nullptr &&
      (before->epoch > message.epoch ||
       (before->epoch == message.epoch && before->transfer >= message.transfer))) {
    return false;
  }
  if (message.epoch < server->disk.promised[shard] || IsCutFrom(server->disk, shard)) return false;
  if (replica.shard != nullptr) CheckGivenUp(*server, shard);
  Retire(server, shard);
  Replica& fresh = *(server->process->replicas[shard] = std::make_unique<Replica>());
  fresh.incoming = std::make_unique<TransferIn>(
      TransferIn{letter.from, message.epoch, message.transfer, 0, time_ + kTransferPatience});
  SpilledShard& spilled = server->disk.shards[shard];
  spilled = SpilledShard();
  spilled.held = true;
  spilled.range = server->process->known[shard]->range;
  spilled.installing = true;
  return true;
}

// Opens the installed rows, as recovery does.
void ClusterSimulation::EndTransferIn(Server* server, const Letter& letter) {
  const int shard = static_cast<int>(letter.message.shard.index);
  const absl::Span<const uint8_t> meta = letter.message.body.bytes;
  SpilledShard& spilled = server->disk.shards[shard];
  const ShardRange& wanted = server->process->known[shard]->range;
  if (RowsOf(shard, spilled.range) != RowsOf(shard, wanted)) {  // it was cut meanwhile
    return AbandonTransferIn(server, shard);
  }
  spilled.meta.assign(reinterpret_cast<const char*>(meta.data()), meta.size());
  spilled.installing = false;
  for (const Row& row : spilled.rows) spilled.installed = std::max(spilled.installed, row.lsn);
  BeginLog(server, shard);
  FinishOpening(*server, OpenReplica(server, shard, /*installed=*/true));
  LearnKnown(server, shard);
}

void ClusterSimulation::AbandonTransferIn(Server* server, int shard) {
  FreshReplica(server, shard);
  LearnKnown(server, shard);
}

void ClusterSimulation::LearnKnown(Server* server, int shard) {
  const RecordPtr known = server->process->known[shard];
  if (known != nullptr) Learn(server->index, known);
}

}  // namespace hotbed::sim
