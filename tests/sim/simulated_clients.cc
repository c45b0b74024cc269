// Clients of the simulated cluster: four pushes in flight to each shard, sent again until they are
// answered; trainers of synchronous groups; lives that end, and their zombies.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tests/sim/cluster_simulation.h"

namespace hotbed::sim {
namespace {

constexpr size_t kPipeline = 4;

}  // namespace

// All clients but the first are trainers of synchronous tables.
bool ClusterSimulation::Trains(int client, int shard) const {
  return shards_[shard].setting.synchronous && client > 0;
}

void ClusterSimulation::TickClient(int client) {
  At(Delay(40 * kMs), [this, client] { TickClient(client); });
  for (int shard = 0; shard < static_cast<int>(shards_.size()); ++shard) {
    if (clients_[client].pipes[shard].rows == 0) continue;
    if (Chance(weather_.watch) || clients_[client].pipes[shard].record == nullptr) {  // the watch
      const RecordPtr record = records_[shard];
      Datagram(kStoreNode, ClientNode(client), [=, this] { LearnMap(client, shard, record); });
    }
    if (clients_[client].pipes[shard].record == nullptr) continue;
    TickPipe(client, shard);
    if (Chance(pull_rate_)) StartPull(client, shard);
  }
}

void ClusterSimulation::TickPipe(int client, int shard) {
  Pipe& pipe = clients_[client].pipes[shard];
  const Watched& watched = Family(shard);
  const double eagerness = healed() || Trains(client, shard) ? 0.8 : weather_.eagerness;
  if (pipe.left > 0 && pipe.pending.size() < kPipeline && !pipe.waits_for_open &&
      Chance(eagerness)) {
    --pipe.left;
    if (Trains(client, shard)) {
      const bool first = pipe.next_seq >> kStepShift != watched.group_step;
      pipe.next_seq = first ? watched.group_step << kStepShift : pipe.next_seq + 1;
    } else {
      pipe.next_seq += 1 + random_.Uniform(3);
    }
    const Pending push{pipe.next_seq, pipe.chain, std::exchange(pipe.open_next, false),
                       NewPush(client, shard, pipe.next_seq)};
    pipe.chain = push.seq;
    pipe.pending.push_back(push);
    Send(client, shard, push);
  }
  for (size_t i = 0; i < (pipe.waits_for_open ? 1 : pipe.pending.size()); ++i) {
    if (Chance(0.12)) Send(client, shard, pipe.pending[i]);
  }
}

PushId ClusterSimulation::NewPush(int client, int shard, uint64_t seq) {
  PushInfo push;
  push.seq = seq;
  push.client = client;
  push.family = shards_[shard].family;
  do {
    push.rows = 1 + random_.Uniform(kAllRows);
    push.rows &= clients_[client].pipes[shard].rows;
  } while (push.rows == 0);
  push.weight = static_cast<uint8_t>(1 + random_.Uniform(9));
  push.staged = Trains(client, shard);
  push.step = seq >> kStepShift;
  push.nan = Chance(0.03);
  push.deletes = !push.staged && !push.nan && push.weight >= 8;
  pushes_.push_back(push);
  for (int row = 0; row < kRows; ++row) {
    const bool adds = (push.rows >> row & 1) != 0 && !push.nan;
    if (adds) Family(shard).started_sum[row] += push.weight;
  }
  return static_cast<PushId>(pushes_.size() - 1);
}

void ClusterSimulation::LearnMap(int client, int shard, const RecordPtr& record) {
  RecordPtr& known = clients_[client].pipes[shard].record;
  if (clients_[client].pipes[shard].rows == 0) return;  // it comes with the shard it was cut from
  if (record != nullptr && (known == nullptr || record->revision > known->revision)) {
    if (known != nullptr && record->epoch < known->epoch) {
      Violation(absl::StrCat("client ", client, " saw shard ", shard, " fall from epoch ",
                             known->epoch, " to ", record->epoch));
    }
    known = record;
    FollowCuts(client, shard, *record);
  }
}

void ClusterSimulation::Send(int client, int shard, const Pending& pending) {
  const Client& c = clients_[client];
  const RecordPtr& record = c.pipes[shard].record;
  if (record == nullptr) return;
  const int server = static_cast<int>(record->primary.server) - 1;
  Request request;
  request.client = client;
  request.shard = shard;
  request.incarnation = c.incarnation;
  request.epoch = record->epoch;
  request.seq = pending.seq;
  request.prev_seq = pending.prev_seq;
  request.open = pending.open;
  request.push = pending.push;
  request.rows = pushes_[pending.push].rows & c.pipes[shard].rows;
  if (request.rows == 0) return;
  Datagram(ClientNode(client), ServerNode(server), [this, server, request] {
    if (servers_[server].process == nullptr) return;
    ForLife(server, [this, server, request] { Receive(server, request); })();
  });
}

void ClusterSimulation::NoteAcknowledged(int client, int shard, PushId push, uint64_t seq,
                                         const CoreReply& reply) {
  Watched& watched = shards_[shard];
  Pipe& pipe = clients_[client].pipes[shard];
  PushInfo& info = pushes_[push];
  const RowSet rows = info.rows & pipe.rows;
  ++stats_.acknowledged;
  answered_time_ = time_;
  if (reply.epoch < watched.lost_below) {  // by a server that was gone when it came
    info.may_be_lost |= rows;
    return;
  }
  uint64_t& acknowledged = watched.acknowledged_seq[reply.epoch][client];
  acknowledged = std::max(acknowledged, seq);
  NoteLsn(reply.lsn, reply.epoch, &pipe);
  const RowSet news = rows & ~info.acknowledged;
  info.acknowledged |= rows;
  for (int row = 0; row < kRows && !info.staged; ++row) {
    if ((news >> row & 1) == 0) continue;
    Family(shard).acknowledged_sum[row] += info.weight;
    pipe.acknowledged[row] += info.weight;
  }
}

void ClusterSimulation::Settle(int client, int shard, PushId push, const CoreReply& reply) {
  Pipe& pipe = clients_[client].pipes[shard];
  const auto it = std::find_if(pipe.pending.begin(), pipe.pending.end(),
                               [push](const Pending& p) { return p.push == push; });
  if (it == pipe.pending.end()) {
    ++stats_.duplicates;
    return;
  }
  if (pipe.waits_for_open) {
    ++stats_.duplicates;
  } else if (reply.code == SegmentCode::kOk) {
    NoteAcknowledged(client, shard, push, it->seq, reply);
  } else {
    ++stats_.refused;
  }
  pipe.pending.erase(it);
  if (!std::exchange(pipe.waits_for_open, false)) return;
  // Pushes that the previous life had sent are done, by one of the two lives.
  while (!pipe.pending.empty() && pipe.pending.front().seq <= reply.last_seq) {
    pipe.pending.pop_front();
  }
}

void ClusterSimulation::OnReply(const Request& request, const CoreReply& reply,
                                const RecordPtr& record) {
  const int shard = request.shard;
  if (request.commit_step != 0) {
    Watched& group = Family(shard);
    if (reply.code != SegmentCode::kOk || request.commit_step != group.group_step) return;
    if (group.commit_open.erase(shard) == 0 || !group.commit_open.empty()) return;
    ++stats_.commits;
    // Pushes that were staged and acknowledged can be read now.
    for (const PushInfo& push : pushes_) {
      if (push.family != shards_[shard].family || push.step != request.commit_step) continue;
      if (!push.staged || !IsCommitted(shard, push)) continue;
      for (int row = 0; row < kRows; ++row) {
        if ((push.acknowledged >> row & 1) != 0) group.acknowledged_sum[row] += push.weight;
      }
    }
    return NextStep(shards_[shard].family);
  }
  if (clients_[request.client].incarnation != request.incarnation) {
    if (reply.code == SegmentCode::kFenced) ++stats_.fenced;
    return;
  }
  Pipe& pipe = clients_[request.client].pipes[shard];
  switch (reply.code) {
    case SegmentCode::kOk:
    case SegmentCode::kNanGradient:
    case SegmentCode::kStepOver:
      return Settle(request.client, shard, request.push, reply);
    case SegmentCode::kWrongEpoch:
      return LearnMap(request.client, shard, record);
    case SegmentCode::kGap: {
      // A new life says 0 and learns where its last one came to in the step.
      const bool opens = !pipe.pending.empty() && request.open && pipe.pending.front().open &&
                         pipe.pending.front().push == request.push;
      if (opens && reply.last_seq < request.seq) pipe.pending.front().prev_seq = reply.last_seq;
      // The shard lost acknowledged pushes, as its class allows: continue after them.
      const bool lost = shards_[shard].lossy || pipe.divided;
      if (lost && !pipe.pending.empty() && reply.last_seq < request.seq &&
          pipe.pending.front().push == request.push) {
        pipe.pending.front().prev_seq = reply.last_seq;
      }
      for (const Pending& push : pipe.pending) {
        if (push.prev_seq == reply.last_seq) Send(request.client, shard, push);
      }
      return;
    }
    case SegmentCode::kUnknownSession:
      if (!pipe.pending.empty()) pipe.pending.front().open = true;
      return;
    case SegmentCode::kFenced:
      return Violation("the newest incarnation of a client was fenced");
    default:
      return;  // sent again by the timer
  }
}

// The client's process dies and comes back as a new incarnation: from a journal of its pushes, or
// computing the same steps again. In the second case the gradients differ, so pushes of the life
// before that are still in the network, or that it sends as a zombie, must be fenced once the new
// one has opened.
void ClusterSimulation::RestartClient(int client) {
  Client& c = clients_[client];
  for (int shard = 0; shard < static_cast<int>(shards_.size()); ++shard) {
    Pipe& pipe = c.pipes[shard];
    for (const Pending& push : pipe.pending) {
      if (pipe.waits_for_open || !Chance(0.5)) continue;
      const Client zombie = {c.index, c.incarnation, {}};
      At(Delay(800 * kMs), [this, zombie, shard, push] {
        // It knows where the shard is now, and nothing of its successor.
        Client now = std::exchange(clients_[zombie.index], zombie);
        clients_[zombie.index].pipes[shard].record = records_[shard];
        clients_[zombie.index].pipes[shard].rows = RowsOf(shard);
        Send(zombie.index, shard, push);
        clients_[zombie.index] = std::move(now);
      });
    }
  }
  c.incarnation += 1;
  for (int shard = 0; shard < static_cast<int>(shards_.size()); ++shard) {
    Pipe& pipe = c.pipes[shard];
    if (pipe.rows == 0) continue;
    pipe.record = nullptr;
    pipe.lsn_min = pipe.lsn_known = 0;
    pipe.seen.fill(0);
    pipe.acknowledged.fill(0);
    pipe.open_next = pipe.pending.empty();
    const bool waited = std::exchange(pipe.waits_for_open, false);
    if (pipe.pending.empty()) {
      pipe.chain = 0;
      continue;
    }
    pipe.pending.front().open = true;
    pipe.pending.front().prev_seq = 0;
    if (!waited && Chance(0.5)) continue;
    pipe.waits_for_open = true;
    for (Pending& push : pipe.pending) push.push = NewPush(client, shard, push.seq);
  }
}

// --- the group of trainers

void ClusterSimulation::NextStep(int shard) {
  Watched& watched = shards_[shard];
  if (watched.steps_left == 0) return;
  --watched.steps_left;
  watched.group_step += 1 + random_.Uniform(2);
  for (Client& client : clients_) {
    for (size_t of = shard; of < shards_.size(); ++of) {
      const bool has_rows = shards_[of].family == shard && client.pipes[of].rows != 0;
      if (!has_rows || !Trains(client.index, shard)) continue;
      client.pipes[of].left = static_cast<int>(random_.Uniform(kPartsMax + 1));
    }
  }
}

void ClusterSimulation::TickGroup(int shard) {
  At(Delay(40 * kMs), [this, shard] { TickGroup(shard); });
  Watched& watched = shards_[shard];
  if (!watched.commit_open.empty()) {
    if (!Chance(0.4)) return;
    for (const int of : watched.commit_open) SendCommit(of, watched.group_step);
    return;
  }
  if (watched.commits.contains(watched.group_step)) return;  // the last one
  bool ended = true;
  bool all_but_last = true;
  for (const Client& client : clients_) {
    bool has_ended = true;
    for (size_t of = shard; of < shards_.size(); ++of) {
      const Pipe& pipe = client.pipes[of];
      if (shards_[of].family != shard || !Trains(client.index, shard)) continue;
      has_ended = has_ended && pipe.left == 0 && pipe.pending.empty();
    }
    ended = ended && has_ended;
    if (client.index + 1 < kClients) all_but_last = all_but_last && has_ended;
  }
  const bool gives_up = all_but_last && Chance(0.02);
  if (ended || gives_up) DecideCommit(shard, !ended);
}

void ClusterSimulation::DecideCommit(int shard, bool without_last) {
  Watched& watched = shards_[shard];
  std::vector<SessionId>& sessions = watched.commits[watched.group_step];
  for (const Client& client : clients_) {
    if (Trains(client.index, shard)) sessions.insert(sessions.begin(), SessionOf(client.index));
  }
  if (without_last) {
    sessions.erase(sessions.begin());
    for (size_t of = shard; of < shards_.size(); ++of) {
      if (shards_[of].family == shard) clients_.back().pipes[of].left = 0;
    }
    ++stats_.given_up;
  }
  for (size_t of = shard; of < shards_.size(); ++of) {
    if (shards_[of].family == shard) watched.commit_open.insert(static_cast<int>(of));
  }
  for (int copies = 0; copies < 2; ++copies) {
    for (const int of : watched.commit_open) SendCommit(of, watched.group_step);
  }
  // One that arrives late, after others.
  if (stormy() && Chance(0.3)) {
    At(Delay(400 * kMs), [this, shard, step = watched.group_step] { SendCommit(shard, step); });
  }
}

void ClusterSimulation::SendCommit(int shard, uint64_t step) {
  Request request;
  request.client = -1;
  request.shard = shard;
  request.epoch = records_[shard]->epoch;
  request.commit_step = step;
  const int server = static_cast<int>(records_[shard]->primary.server) - 1;
  Datagram(ClientNode(kClients), ServerNode(server), [this, server, request] {
    if (servers_[server].process == nullptr) return;
    ForLife(server, [this, server, request] { Receive(server, request); })();
  });
}

}  // namespace hotbed::sim
