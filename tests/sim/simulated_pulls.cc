// Pulls in the simulated cluster: bounded ones from any replica, strict ones from the primary while
// its lease holds by its own clock (I9).
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tests/sim/cluster_simulation.h"
#include "tests/sim/sim_mutant.h"

namespace hotbed::sim {

void ClusterSimulation::StartPull(int client, int shard) {
  Client& c = clients_[client];
  Pipe& pipe = c.pipes[shard];
  const Watched& watched = shards_[shard];
  Pull pull;
  pull.client = client;
  pull.incarnation = c.incarnation;
  pull.shard = shard;
  pull.row = Pick(kRows);
  pull.strict = Chance(weather_.strict);
  RecordPtr record = pipe.record;
  if (pull.strict && stormy() && Chance(weather_.stale_maps)) {  // a map of long ago
    record = watched.past[watched.past.size() - 1 - Pick(std::min<size_t>(watched.past.size(), 5))];
  }
  pull.epoch = record->epoch;
  pull.lsn_min = pipe.lsn_min;
  pull.at_least = std::max(pipe.seen[pull.row], pipe.acknowledged[pull.row]);
  if (pull.strict) pull.at_least = std::max(pull.at_least, watched.acknowledged_sum[pull.row]);
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

bool ClusterSimulation::LeaseHolds(const Server& server) const {
  return LocalTime(server) < server.process->lease_until || Planted(SimMutant::kStrictWithoutLease);
}

bool ClusterSimulation::Serves(const Server& server, const Replica& replica,
                               const Pull& pull) const {
  const ShardCore& core = *replica.core;
  if (core.epoch() != pull.epoch || replica.spoilt) return false;
  if (!pull.strict) return (core.primary() && core.active()) || core.serves_reads();
  if (!core.primary() || !core.active()) return false;
  // Alone, nobody can become primary without it. A learner in the acknowledging set can: as a
  // member of an epoch that this server never heard of.
  const bool alone = Planted(SimMutant::kJoinersNeedNoLease) ? core.record().members.size() == 1
                                                             : core.backup_count() == 0;
  return alone || LeaseHolds(server);
}

void ClusterSimulation::PullArrives(int server, uint64_t id) {
  Server& s = servers_[server];
  const Pull& pull = pulls_[id];
  Replica* replica = s.process->replicas[pull.shard].get();
  if (replica == nullptr || replica->core == nullptr || !Serves(s, *replica, pull)) return;
  const bool guarded =
      replica->core->applied_lsn() < replica->guard && !Planted(SimMutant::kRowsReadWhileGuarded);
  const bool waits =
      replica->core->applied_lsn() < pull.lsn_min && !Planted(SimMutant::kMinLsnIgnored);
  // Entries that an earlier epoch acknowledged are in the new primary's log, and perhaps not in its
  // rows.
  const bool behind = pull.strict && replica->core->applied_lsn() < replica->core->commit_lsn() &&
                      !Planted(SimMutant::kStrictBeforeApplied);
  if (guarded || waits || behind) {
    if (replica->parked.size() < 64) replica->parked.push_back({time_ + 500 * kMs, id});
    return;
  }
  AnswerPull(server, id);
}

// Checked, read, checked again: the process may have been stopped in between.
void ClusterSimulation::AnswerPull(int server, uint64_t id) {
  const Server& s = servers_[server];
  const Replica& replica = *s.process->replicas[pulls_[id].shard];
  const uint32_t value = replica.rows[pulls_[id].row].sum;
  const Lsn lsn = replica.core->applied_lsn();
  if (!replica.core->primary()) ++stats_.backup_pulls;
  if (trace_ != nullptr) {
    Trace(absl::StrCat("PULL ", id, " s", server + 1, " shard ", pulls_[id].shard, " row ",
                       pulls_[id].row, pulls_[id].strict ? " strict" : "", ": ", value, " at LSN ",
                       lsn, " epoch ", replica.core->epoch()));
  }
  const auto answer = [this, server, id, value, lsn] {
    const Server& again = servers_[server];
    const Pull& pull = pulls_[id];
    const Replica* replica = again.process->replicas[pull.shard].get();
    if (pull.strict &&
        (replica == nullptr || replica->core == nullptr || !Serves(again, *replica, pull))) {
      return;
    }
    Datagram(ServerNode(server), ClientNode(pull.client),
             [this, id, value, lsn] { OnPulled(id, value, lsn); });
  };
  if (Chance(0.7)) return answer();
  At(Delay(2 * kMs), ForLife(server, answer));
}

void ClusterSimulation::RunParked(int server, int shard) {
  Replica* replica = servers_[server].process->replicas[shard].get();
  if (replica == nullptr || replica->parked.empty()) return;
  for (const ParkedPull& parked : std::exchange(replica->parked, {})) {
    if (time_ <= parked.deadline) PullArrives(server, parked.id);
  }
}

void ClusterSimulation::OnPulled(uint64_t id, uint32_t value, Lsn lsn) {
  Pull& pull = pulls_[id];
  Client& c = clients_[pull.client];
  if (std::exchange(pull.done, true) || c.incarnation != pull.incarnation) return;
  ++stats_.pulls;
  if (pull.strict) ++stats_.strict_pulls;
  const Watched& watched = shards_[pull.shard];
  if (watched.lossy) return;  // acknowledged pushes may be gone
  Pipe& pipe = c.pipes[pull.shard];
  if (value < pull.at_least || value > watched.started_sum[pull.row]) {
    return Violation(absl::StrCat(pull.strict ? "strict" : "bounded", " pull of row ", pull.row,
                                  " of shard ", pull.shard, " by client ", pull.client, ": ", value,
                                  " at LSN ", lsn, ", must be ", pull.at_least, " to ",
                                  watched.started_sum[pull.row]));
  }
  pipe.seen[pull.row] = std::max(pipe.seen[pull.row], value);
  pipe.lsn_min = std::max(pipe.lsn_min, lsn);
}

}  // namespace hotbed::sim
