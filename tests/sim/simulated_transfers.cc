// Between the servers of the simulated cluster: connections that keep order until they break, and
// snapshots of whole shards.
#include <algorithm>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "tests/sim/cluster_simulation.h"
#include "tests/sim/sim_mutant.h"

namespace hotbed::sim {
namespace {

// A pass over all rows has three blocks.
constexpr uint64_t kBlockBytes = 2 * (sizeof(uint64_t) + sizeof(Row));
constexpr int kPassesMax = 4;
constexpr Time kTransferPatience = 1500 * kMs;  // without an answer, or the next message

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
      servers_[from].process->intake->OnPeerLost(peer);
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
  const int shard = static_cast<int>(letter.message.shard.index);
  const Replica* const replica = Open(servers_[server], shard);
  const bool append = kind == Kind::kAppend || kind == Kind::kAppendReply;
  if (!append || (replica == nullptr && kind == Kind::kAppend)) {
    return servers_[server].process->intake->OnMessage(letter.from, letter.message);
  }
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

// --- outgoing transfers: the courses of SnapshotSender

void ClusterSimulation::StartTransfer(int server, int shard, const Member& to) {
  Replica& replica = *servers_[server].process->replicas[shard];
  for (const TransferOut& transfer : replica.outgoing) {
    if (transfer.to == to) return;
  }
  TransferOut& transfer = replica.outgoing.emplace_back();
  transfer.to = to;
  transfer.transfer = ++next_transfer_;
  // Some transfers find the records since too long for memory, however short they are here.
  const int passes_min = 1 + static_cast<int>(transfer.transfer % 3);
  transfer.course = std::make_unique<SnapshotCourse>(
      replica.shard, to, transfer.transfer,
      SnapshotCourse::Options{passes_min, kPassesMax, kBlockBytes});
  transfer.deadline = time_ + 4 * kTransferPatience;
  At(Delay(10 * kMs), ForLife(server, [this, server, shard, number = transfer.transfer] {
       SendNext(server, shard, number);
     }));
}

// Ends transfers whose receiver says nothing.
void ClusterSimulation::CheckTransfers(int server, int shard) {
  Replica* const replica = servers_[server].process->replicas[shard].get();
  if (replica == nullptr) return;
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
  const Lsn lsn = transfer->course->lsn();
  replica->outgoing.erase(transfer);
  ++stats_.transfers_broken;
  replica->shard->EndSnapshot(to, lsn, /*installed=*/false);
  AfterEvent(server, shard);
}

// The next message of the transfer, once the one before was answered.
void ClusterSimulation::SendNext(int server, int shard, uint64_t number) {
  Replica* const replica = Open(servers_[server], shard);
  if (replica == nullptr) return;
  const auto transfer =
      std::find_if(replica->outgoing.begin(), replica->outgoing.end(),
                   [&](const TransferOut& transfer) { return transfer.transfer == number; });
  if (transfer == replica->outgoing.end()) return;
  transfer->deadline = time_ + kTransferPatience;
  const int passes = transfer->course->passes();
  absl::StatusOr<ReplicaMessage> message = transfer->course->Next();
  while (message.ok() && message->kind == ReplicaMessage::Kind::kNone) {
    message = transfer->course->Next();
  }
  if (passes > 0) stats_.further_passes += transfer->course->passes() - passes;
  if (!message.ok()) return DropTransferOut(server, shard, transfer->to);
  AfterEvent(server, shard);
  SendReplica(server, *std::move(message));
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
  transfer->answers.Take(message);
  const SnapshotCourse& course = *transfer->course;
  if (!transfer->answers.Cover(course.sent())) return;
  if (course.ended()) {
    ++stats_.snapshots;
    const Lsn lsn = course.lsn();
    replica->outgoing.erase(transfer);
    replica->shard->EndSnapshot(letter.from, lsn, /*installed=*/true);
    return AfterEvent(server, shard);
  }
  At(Delay(weather_.transfer_time),
     ForLife(server, [=, this, sent = course.sent(), number = transfer->transfer] {
       const Replica* const again = Open(servers_[server], shard);
       if (again == nullptr) return;
       for (const TransferOut& out : again->outgoing) {
         if (out.transfer == number && out.course->sent() == sent) {
           return SendNext(server, shard, number);
         }
       }
     }));
}

// --- incoming transfers: SnapshotIntake over what SnapshotInstaller does

class ClusterSimulation::IntakeSite final : public SnapshotIntake::Site {
 public:
  IntakeSite(ClusterSimulation* world, int server) : world_(*world), server_(server) {}

  bool Wants(ShardId id, const Member& from, Epoch epoch) const override {
    const RecordPtr& known = server().process->known[id.index];
    return known != nullptr && known->epoch == epoch && known->primary == from &&
           known->Holds(world_.Self(server()));
  }
  absl::Status Begin(ShardId id, const Member& from, Epoch epoch, Lsn lsn) override {
    const int shard = static_cast<int>(id.index);
    Process& p = *server().process;
    const Replica* const replica = Open(server(), shard);
    if (replica == nullptr || IsCutFrom(server().disk, shard) ||
        !replica->shard->MayInstall(from, epoch, lsn)) {
      return absl::FailedPreconditionError("the shard is not open here, or must not be replaced");
    }
    world_.CheckGivenUp(server(), shard);
    world_.Retire(&server(), shard);
    p.replicas[shard] = std::make_unique<Replica>();
    SpilledShard& spilled = server().disk.shards[shard];
    world_.Wipe(&server(), shard);
    spilled.held = true;
    spilled.range = p.known[shard]->range;
    spilled.installing = true;
    return absl::OkStatus();
  }
  absl::Status Write(ShardId id, absl::string_view block) override {
    if (!Installing(id)) return NoTransfer();
    world_.TakeBlock(&server(), static_cast<int>(id.index),
                     {reinterpret_cast<const uint8_t*>(block.data()), block.size()});
    return absl::OkStatus();
  }
  // Opens the installed rows, as recovery does.
  absl::Status Finish(ShardId id, absl::string_view meta) override {
    if (!Installing(id)) return NoTransfer();
    const int shard = static_cast<int>(id.index);
    SpilledShard& spilled = server().disk.shards[shard];
    const ShardRange& wanted = server().process->known[shard]->range;
    if (world_.RowsOf(shard, spilled.range) != world_.RowsOf(shard, wanted)) {
      return absl::FailedPreconditionError("the shard was cut meanwhile");
    }
    spilled.meta.assign(meta.data(), meta.size());
    spilled.installing = false;
    for (const Row& row : spilled.rows) spilled.installed = std::max(spilled.installed, row.lsn);
    world_.BeginLog(&server(), shard);
    world_.FinishOpening(server(), world_.OpenReplica(&server(), shard, /*installed=*/true));
    world_.LearnKnown(&server(), shard);
    return absl::OkStatus();
  }
  void Abandon(ShardId id) override {
    if (!Installing(id)) return;
    world_.FreshReplica(&server(), static_cast<int>(id.index));
    world_.LearnKnown(&server(), static_cast<int>(id.index));
  }
  void Reply(ReplicaMessage message) override { world_.SendReplica(server_, std::move(message)); }

 private:
  static absl::Status NoTransfer() {
    return absl::NotFoundError("no snapshot transfer of it is in flight");
  }
  Server& server() const { return world_.servers_[server_]; }
  bool Installing(ShardId id) const {
    return server().process->replicas[id.index] != nullptr &&
           server().disk.shards[id.index].installing;
  }

  ClusterSimulation& world_;
  const int server_;
};

void ClusterSimulation::MakeIntake(Server* server) {
  Process& p = *server->process;
  p.site = std::make_unique<IntakeSite>(this, server->index);
  p.intake = std::make_unique<SnapshotIntake>(p.site.get(), p.clock.get(),
                                              kTransferPatience * (kMillisecondNs / kMs));
}

void ClusterSimulation::LearnKnown(Server* server, int shard) {
  const RecordPtr known = server->process->known[shard];
  if (known != nullptr) Learn(server->index, known);
}

}  // namespace hotbed::sim
