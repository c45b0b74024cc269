// Pulls in the simulated cluster: bounded ones from any replica, strict ones from the primary while
// its lease holds by its own clock (I9). The shard that ships answers them.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tests/sim/cluster_simulation.h"
#include "tests/sim/sim_mutant.h"

namespace hotbed::sim {

void ClusterSimulation::StartPull(int client, int lane) {
  Client& c = clients_[client];
  Pipe& pipe = c.pipes[lane];
  const auto shard = static_cast<int>(pipe.record->shard.index);
  const Watched& watched = shards_[shard];
  Pull pull;
  pull.client = client;
  pull.incarnation = c.incarnation;
  pull.shard = shard;
  pull.lane = lane;
  do {
    pull.row = Pick(kRows);
  } while ((pipe.rows >> pull.row & 1) == 0);
  pull.strict = Chance(weather_.strict);
  RecordPtr record = pipe.record;
  if (pull.strict && stormy() && Chance(weather_.stale_maps)) {  // a map of long ago
    record = watched.past[watched.past.size() - 1 - Pick(std::min<size_t>(watched.past.size(), 5))];
  }
  pull.epoch = record->epoch;
  pull.lsn_min = pipe.lsn_min;
  pull.at_least = std::max(pipe.seen[pull.row], pipe.acknowledged[pull.row]);
  if (pull.strict) {
    pull.at_least = std::max(pull.at_least, Family(shard).acknowledged_sum[pull.row]);
  }
  std::vector<Member> from = {record->primary};
  if (!pull.strict) {
    from = record->members;
    from.insert(from.end(), record->learners.begin(), record->learners.end());
    if (weather_.primaries < 1 && from.size() > 1 && !Chance(weather_.primaries)) {
      std::erase(from, record->primary);
    }
  }
  const int server = static_cast<int>(from[Pick(from.size())].server) - 1;
  pulls_.push_back(pull);
  Datagram(ClientNode(client), ServerNode(server), [this, server, id = pulls_.size() - 1] {
    if (servers_[server].process == nullptr) return;
    ForLife(server, [this, server, id] { PullArrives(server, id); })();
  });
}

// A pull as a stream passes it to the shard, with the memory that it points to.
struct ClusterSimulation::PullCall final : public PullWork {
  PullCall(ClusterSimulation* simulation, int to, uint64_t number)
      : world(*simulation), server(to), id(number) {
    pending = 1;
  }
  void Done() override {
    const SegmentResult& result = segments[0].result;
    const Process& p = *world.servers_[server].process;
    if (result.code == SegmentCode::kOk && !p.dead) {
      const Pull& pull = world.pulls_[id];
      if (!segments[0].shard->primary()) ++world.stats_.backup_pulls;
      world.CheckPulled(server, pull, static_cast<uint32_t>(row[0]), result.lsn);
      if (world.trace_ != nullptr) {
        world.Trace(absl::StrCat("PULL ", id, " s", server + 1, " shard ", pull.shard, " row ",
                                 pull.row, strict ? " strict" : "", ": ", row[0], " at LSN ",
                                 result.lsn, " epoch ", result.epoch));
      }
      world.Datagram(
          ServerNode(server), ClientNode(pull.client),
          [world = &world, id = id, value = static_cast<uint32_t>(row[0]), lsn = result.lsn,
           epoch = result.epoch] { world->OnPulled(id, value, lsn, epoch); });
    }
    delete this;
  }

  ClusterSimulation& world;
  const int server;
  const uint64_t id;
  uint64_t row_id = 0;
  std::array<float, kColumns> row{};
};

void ClusterSimulation::PullArrives(int server, uint64_t id) {
  const Pull& pull = pulls_[id];
  const Replica* const replica = Open(servers_[server], pull.shard);
  if (replica == nullptr) return;
  auto* const call = new PullCall(this, server, id);
  call->strict = pull.strict;
  call->row_id = shards_[pull.shard].family * kRows + pull.row;
  PullSegment& segment = call->segments.emplace_back();
  call->shards = replica->shard;
  segment.shard = replica->shard.get();
  segment.epoch = pull.epoch;
  segment.lsn_min = pull.lsn_min;
  segment.ids = &call->row_id;
  segment.count = 1;
  segment.rows = reinterpret_cast<uint8_t*>(call->row.data());
  if (replica->shard->PullAtOnce(*call, &segment)) {  // as the shard host does
    FinishSegment(call);
  } else {
    replica->shard->Pull(call, &segment);
  }
  AfterEvent(server, pull.shard);
}

void ClusterSimulation::OnPulled(uint64_t id, uint32_t value, Lsn lsn, Epoch epoch) {
  Pull& pull = pulls_[id];
  Client& c = clients_[pull.client];
  if (std::exchange(pull.done, true) || c.incarnation != pull.incarnation) return;
  ++stats_.pulls;
  if (pull.strict) ++stats_.strict_pulls;
  const Watched& watched = Family(pull.shard);
  if (shards_[pull.shard].lossy) return;  // acknowledged pushes may be gone
  Pipe& pipe = c.pipes[pull.lane];
  if (value < pull.at_least || value > watched.started_sum[pull.row]) {
    return Violation(absl::StrCat(pull.strict ? "strict" : "bounded", " pull of row ", pull.row,
                                  " of shard ", pull.shard, " by client ", pull.client, ": ", value,
                                  " at LSN ", lsn, ", must be ", pull.at_least, " to ",
                                  watched.started_sum[pull.row]));
  }
  pipe.seen[pull.row] = std::max(pipe.seen[pull.row], value);
  NoteLsn(lsn, epoch, &pipe);
}

}  // namespace hotbed::sim
