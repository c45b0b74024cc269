// The life of a shard in its process, from recovery to the end, and the requests that come to it.
// The shard itself is the one that ships; what the shard host does for it is here.
#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tests/sim/cluster_simulation.h"
#include "tests/sim/sim_mutant.h"

namespace hotbed::sim {
namespace {

constexpr uint64_t kStagedBytesMax = 1 << 20;

}  // namespace

class ClusterSimulation::Outlet final : public ReplicaOutlet {
 public:
  Outlet(ClusterSimulation* world, int server) : world_(*world), server_(server) {}
  void Send(ReplicaMessage message) override {
    if (lives()) world_.SendReplica(server_, std::move(message));
  }
  void StartSnapshot(ShardId shard, const Member& to) override {
    if (lives()) world_.StartTransfer(server_, static_cast<int>(shard.index), to);
  }
  void PromiseWanted(ShardId shard, Epoch epoch) override {
    if (lives()) world_.Promise(server_, static_cast<int>(shard.index), epoch);
  }
  void HasNews() override {
    if (lives()) world_.HasNews(server_);
  }
  void WaitsUntil(int64_t ns) override {
    if (lives()) world_.WaitsUntil(server_, ns);
  }

 private:
  bool lives() const { return !world_.servers_[server_].process->dead; }

  ClusterSimulation& world_;
  const int server_;
};

void ClusterSimulation::MakeOutlet(Server* server) {
  server->process->outlet = std::make_unique<Outlet>(this, server->index);
}

Replica* ClusterSimulation::Open(const Server& server, int shard) {
  Replica* const replica = server.process->replicas[shard].get();
  return replica == nullptr || replica->shard == nullptr ? nullptr : replica;
}

void ClusterSimulation::AfterEvent(int server, int shard) {
  const Server& s = servers_[server];
  if (s.process->dead || Open(s, shard) == nullptr) return;
  CheckCore(s, shard);
  CheckCommitted(s, shard);
  CheckServing(s, shard);
}

// --- a shard's life

// As ShardFactory.
ShardOptions ClusterSimulation::OptionsOf(const Server& server, int shard) const {
  const ShardSetting& setting = shards_[shard].setting;
  Process& p = *server.process;
  ShardOptions options;
  options.id = records_[shard]->shard;
  TableSpec table;
  table.id = options.id.table;
  table.name = "simulated";
  table.rows = kShardsMax * kRows;
  table.dim = kColumns;
  table.durability = setting.durability;
  table.replicas = setting.replicas;
  if (setting.synchronous) table.consistency = Consistency::kSync;
  if (weather_.expires) {
    table.optimizer = OptimizerParams();
    table.optimizer.kind = OptimizerKind::kSgd;
    table.optimizer.touches = true;
    table.life.ttl_s = 1;
    table.life.ttl_steps = 1;
  }
  options.table = std::move(table);
  options.range = server.disk.shards[shard].range;
  options.tiers = p.tiers.get();
  options.log = setting.durability == Durability::kCheckpoint ? nullptr : p.log.get();
  options.clock = p.clock.get();
  options.core.keep_tail = setting.durability == Durability::kReplicated;
  options.staged_bytes = p.staged_bytes;
  options.staged_bytes_max = kStagedBytesMax;
  options.outlet = p.outlet.get();
  options.replica_budget = &p.budget;
  return options;
}

Replica* ClusterSimulation::OpenReplica(Server* server, int shard, bool installed,
                                        std::optional<ShardOptions::Continued> continued) {
  Process& p = *server->process;
  p.replicas[shard] = std::make_unique<Replica>();
  Replica& replica = *p.replicas[shard];
  ShardOptions options = OptionsOf(*server, shard);
  options.installed = installed;
  options.continued = continued;
  replica.shard = std::make_shared<Shard>(std::move(options), server->disk.promised[shard]);
  return &replica;
}

void ClusterSimulation::FinishOpening(const Server& server, Replica* replica) {
  replica->shard->FinishReplay();
  replica->shard->SetDurable(replica->shard->durable_lsn());
  replica->opening = false;
  replica->found_lsn = replica->shard->core().last_lsn();
  replica->checked_commit = replica->found_lsn;
  // A log that has lost its end may end with records that another primary had replaced.
  if (replica->shard->refused() && !server.disk.damaged) Violation(replica->shard->error());
}

// A replica without rows.
void ClusterSimulation::FreshReplica(Server* server, int shard) {
  Wipe(server, shard);
  server->disk.shards[shard].held = true;
  server->disk.shards[shard].range = server->process->known[shard]->range;
  BeginLog(server, shard);
  FinishOpening(*server, OpenReplica(server, shard, /*installed=*/false));
}

// As Recovery: the state written back last, then the log behind it.
void ClusterSimulation::LoadShard(Server* server, int shard) {
  Replica& replica = *OpenReplica(server, shard, /*installed=*/false);
  if (replica.shard->logged()) {
    for (const LogRecord* const record : LastWord(server->disk, shard)) {
      RecordView view;
      view.header = record->header;
      view.ids = record->payload.data();
      view.gradients =
          reinterpret_cast<const uint8_t*>(record->payload.data() + record->header.id_count);
      replica.shard->Replay(view, [] {});
    }
  }
  FinishOpening(*server, &replica);
  const Disk& disk = server->disk;
  const Lsn held = std::max(replica.shard->core().last_lsn(), disk.shards[shard].installed);
  if (replica.shard->logged() && replica.guard > held && !disk.damaged) {
    Violation(absl::StrCat("s", server->index + 1, " shard ", shard, ": rows of LSN ",
                           replica.guard, " are ahead of the log, which ends at ", held));
  }
}

// Ends what the shard has in flight, and releases it: as the shard host drops a shard. Of what is
// still on its way to the log nothing counts any more.
void ClusterSimulation::Retire(Server* server, int shard) {
  Process& p = *server->process;
  if (Replica* const replica = Open(*server, shard); replica != nullptr) {
    replica->shard->Close();
    std::vector<QueuedAppend> queued;
    std::erase_if(p.appending, [&](const QueuedAppend& append) {
      if (append.shard == shard) queued.push_back(append);
      return append.shard == shard;
    });
    for (const QueuedAppend& append : queued) {
      auto done = std::move(append.append->done);
      done(absl::OkStatus());
    }
    while (!replica->calls.empty()) {
      const std::shared_ptr<StoreCall> call = replica->calls.front();
      replica->calls.pop_front();
      std::exchange(call->end, nullptr)();
    }
    if (!replica->shard->idle()) {
      Violation(absl::StrCat("shard ", shard, " began an operation that never ended"));
    }
    replica->outgoing.clear();
    replica->shard->ReleaseStore();
  }
  p.replicas[shard] = nullptr;
}

void ClusterSimulation::Promise(int server, int shard, Epoch epoch) {
  At(Delay(8 * kMs), ForLife(server, [this, server, shard, epoch] {
       Server& s = servers_[server];
       s.disk.promised[shard] = std::max(s.disk.promised[shard], epoch);
       const Replica* const replica = Open(s, shard);
       if (replica == nullptr) return;
       replica->shard->PromiseDurable(epoch, [] {});
       AfterEvent(server, shard);
     }));
}

void ClusterSimulation::HasNews(int server) {
  if (std::exchange(servers_[server].process->has_news, true)) return;
  At(0, ForLife(server, [this, server] {
       const Server& s = servers_[server];
       s.process->has_news = false;
       for (int shard = 0; shard < static_cast<int>(shards_.size()); ++shard) {
         const Replica* const replica = Open(s, shard);
         if (replica != nullptr && replica->shard->wants_activation()) AskActivation(s, shard);
       }
     }));
}

void ClusterSimulation::AskActivation(const Server& server, int shard) {
  const ShardCore& core = Open(server, shard)->shard->core();
  for (int coordinator = 0; coordinator < kCoordinators; ++coordinator) {
    Datagram(ServerNode(server.index), CoordinatorNode(coordinator),
             ForCoordinator(coordinator, [=, this, self = Self(server), epoch = core.epoch(),
                                          tail = core.last_lsn()] {
               ActivationArrives(coordinator, shard, self, epoch, tail);
             }));
  }
}

// As ShardTicker: it looks every 10 ms while requests wait.
void ClusterSimulation::WaitsUntil(int server, int64_t ns) {
  Process& p = *servers_[server].process;
  const int64_t before = std::exchange(p.waits_until_ns, std::max(p.waits_until_ns, ns));
  if (before == 0) At(10 * kMs, ForLife(server, [this, server] { ExpireWaiting(server); }));
}

void ClusterSimulation::ExpireWaiting(int server) {
  const Server& s = servers_[server];
  const int64_t until_ns = std::exchange(s.process->waits_until_ns, 0);
  for (int shard = 0; shard < static_cast<int>(shards_.size()); ++shard) {
    const Replica* const replica = Open(s, shard);
    if (replica == nullptr || !replica->shard->has_waiting()) continue;
    replica->shard->ExpireWaiting();
    AfterEvent(server, shard);
  }
  if (s.process->clock->NowNs() <= until_ns) WaitsUntil(server, until_ns);
}

// --- requests

// A push or a commit as a stream passes it to the shard, with the memory that it points to.
struct ClusterSimulation::PushCall final : public PushWork {
  PushCall(ClusterSimulation* simulation, int to, const Request& sent)
      : world(*simulation), server(to), request(sent) {
    pending = 1;
    segments.emplace_back();
  }
  void Done() override {
    const SegmentResult& result = segments[0].result;
    CoreReply reply;
    reply.code = result.code;
    reply.epoch = result.epoch;
    reply.lsn = result.lsn;
    reply.last_seq = result.last_seq;
    world.Reply(server, request, reply);
    delete this;
  }

  ClusterSimulation& world;
  const int server;
  const Request request;
  std::vector<uint64_t> ids;  // of a commit: sessions
  std::array<float, kColumns> gradient{};
  std::array<const uint8_t*, kRows> gradients;
};

void ClusterSimulation::Receive(int server, const Request& request) {
  const Replica* const replica = Open(servers_[server], request.shard);
  if (replica == nullptr) {
    CoreReply reply;
    reply.code = SegmentCode::kWrongEpoch;
    return Reply(server, request, reply);
  }
  auto* const call = new PushCall(this, server, request);
  PushSegment& segment = call->segments[0];
  segment.epoch = request.epoch;
  if (request.commit_step != 0) {
    segment.commit_step = request.commit_step;
    call->ids = Family(request.shard).commits.at(request.commit_step);
  } else {
    const PushInfo& push = pushes_[request.push];
    call->session = SessionOf(request.client);
    call->incarnation = request.incarnation;
    segment.seq = request.seq;
    segment.prev_seq = request.prev_seq;
    segment.open = request.open;
    // The pushes of others than trainers take effect at once in a synchronous table too.
    segment.deletes = push.deletes;
    segment.assign = shards_[request.shard].setting.synchronous && !push.staged && !push.deletes;
    segment.has_learning_rate = push.deletes;
    segment.learning_rate = static_cast<float>(request.push);
    const uint64_t part = push.seq & ((uint64_t{1} << kStepShift) - 1);
    const uint64_t column = push.staged ? (request.client - 1) * kPartsMax + part : 0;
    call->gradient[column] =
        push.nan ? std::numeric_limits<float>::quiet_NaN() : static_cast<float>(request.push);
    for (uint64_t row = 0; row < kRows; ++row) {
      if ((request.rows >> row & 1) == 0) continue;
      call->gradients[call->ids.size()] = reinterpret_cast<const uint8_t*>(call->gradient.data());
      call->ids.push_back(push.family * kRows + row);
    }
    segment.gradients = call->gradients.data();
  }
  segment.ids = call->ids.data();
  segment.count = static_cast<uint32_t>(call->ids.size());
  replica->shard->Push(call, &segment);
  AfterEvent(server, request.shard);
}

void ClusterSimulation::Reply(int server, const Request& request, const CoreReply& reply) {
  const Server& s = servers_[server];
  if (s.process->dead) return;
  if (const Replica* const replica = Open(s, request.shard); replica != nullptr) {
    const bool acknowledges =
        reply.code == SegmentCode::kOk || reply.code == SegmentCode::kNanGradient;
    const Epoch epoch = replica->shard->core().epoch();
    if (acknowledges) CheckAcknowledged(request.shard, Self(s), epoch, reply.lsn);
  }
  if (trace_ != nullptr) {
    Trace(absl::StrCat("REPLY s", server + 1, " shard ", request.shard, " k", request.client,
                       " push ", request.push, " seq ", request.seq, " code ",
                       static_cast<int>(reply.code), " lsn ", reply.lsn, " last ", reply.last_seq));
  }
  const int client = request.client < 0 ? kClients : request.client;
  Datagram(ServerNode(server), ClientNode(client),
           [this, request, reply, record = s.process->known[request.shard]] {
             OnReply(request, reply, record);
           });
}

}  // namespace hotbed::sim
