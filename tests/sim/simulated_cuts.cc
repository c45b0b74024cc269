// Shards of the simulated cluster that are cut in two while they are used: what the coordinator and
// the shard host do for it, what clients do, and what the observer has to know.
//
// The shards that a table begins with are families: a shard that is cut shares the numbers of its
// rows, and the group of its trainers, with those that come of it. Each has all kRows rows, and
// those that are not its own stay empty.
#include <algorithm>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/tables/shard_lanes.h"
#include "tests/sim/cluster_simulation.h"
#include "tests/sim/sim_mutant.h"

namespace hotbed::sim {
namespace {

constexpr int kPauseAttempts = 30;  // a millisecond each

bool Inside(RowSet inner, RowSet outer) { return (inner & ~outer) == 0; }

void Keep(RowSet rows, Rows* of) {
  for (int row = 0; row < kRows; ++row) {
    if ((rows >> row & 1) == 0) (*of)[row] = Row();
  }
}

}  // namespace

bool ClusterSimulation::MayCount(const ShardRecord& record, ServerId server) {
  return ContainsServer(record.members, server) || ContainsServer(record.base, server) ||
         record.FindPassedOver(server) != nullptr;
}

RowSet ClusterSimulation::RowsOf(int shard, const ShardRange& range) const {
  const uint64_t first = static_cast<uint64_t>(shards_[shard].family) * kRows;
  RowSet rows = 0;
  for (uint64_t row = 0; row < kRows; ++row) {
    if (first + row >= range.first && first + row < range.limit) rows |= 1u << row;
  }
  return rows;
}

// --- the coordinator, and the primary that asks it

void ClusterSimulation::AskForCuts() {
  if (healed()) return;
  At(Delay(weather_.cuts_every), [this] { AskForCuts(); });
  const int shard = Pick(shards_.size());
  if (Gone(shard)) return;
  const ShardRecord& record = *records_[shard];
  const uint64_t rows = record.range.limit - record.range.first;
  const bool may = shards_.size() < kShardsMax && rows > 1;
  const Process* const process = ProcessOf(record.primary);
  if (!may || process == nullptr) return;
  CutAsk ask;
  ask.shard = shard;
  ask.at = record.range.first + 1 + random_.Uniform(rows - 1);
  ask.number = ++cuts_asked_;
  open_cuts_[shard] = {leader_term_, ask.number};
  const int server = static_cast<int>(record.primary.server) - 1;
  ForLife(server, [=, this] { PrepareCut(server, ask, kPauseAttempts); })();
}

// As ShardCuts::Prepare.
void ClusterSimulation::PrepareCut(int server, CutAsk ask, int attempts) {
  Server& s = servers_[server];
  const int shard = ask.shard;
  const Replica* const replica = Open(s, shard);
  if (replica == nullptr || replica->shard->refused() || IsAsked(s, shard)) return;
  const bool leads = replica->shard->primary() && replica->shard->active();
  if (!leads || attempts == 0) {
    replica->shard->Pause(false, PauseFor::kCut);
    return AfterEvent(server, shard);
  }
  if (attempts == kPauseAttempts && replica->shard->logged()) WriteBackAll(&s, shard);
  const ShardRecord record = replica->shard->core().record();
  if (record.members.size() > 1 && !Planted(SimMutant::kCutWithoutStandstill) &&
      !replica->shard->Pause(true, PauseFor::kCut)) {
    AfterEvent(server, shard);
    return At(kMs, ForLife(server, [=, this] { PrepareCut(server, ask, attempts - 1); }));
  }
  ask.asks = Self(s);
  ask.epoch = record.epoch;
  s.process->asks[shard] = ask;
  AskCommit(server, shard);
}

// As CutLink: until it gets a yes or a no.
void ClusterSimulation::AskCommit(int server, int shard) {
  const std::optional<CutAsk>& ask = servers_[server].process->asks[shard];
  if (!ask.has_value()) return;
  for (int coordinator = 0; coordinator < kCoordinators; ++coordinator) {
    Datagram(ServerNode(server), CoordinatorNode(coordinator),
             ForCoordinator(coordinator,
                            [=, this, ask = *ask] { CutArrives(coordinator, server, ask); }));
  }
  At(20 * kMs, ForLife(server, [=, this] { AskCommit(server, shard); }));
}

void ClusterSimulation::CutArrives(int coordinator, int server, const CutAsk& ask) {
  const uint64_t term = coordinators_[coordinator].term;
  if (term == 0) return;
  auto answer = std::make_shared<std::optional<bool>>();
  AtStore(
      coordinator,
      [=, this] {
        if (leader_ != coordinator || leader_term_ != term) return;
        *answer = ask.with < 0 ? CommitCut(ask) : CommitMerge(ask);
      },
      [=, this] {
        if (!answer->has_value()) return;
        Datagram(CoordinatorNode(coordinator), ServerNode(server), [=, this] {
          if (ProcessOf(ask.asks) == nullptr) return;
          ForLife(server, [=, this] { OnCutAnswer(server, ask, **answer); })();
        });
      });
}

// False: it is not cut, and no earlier request of the same kind will cut it.
bool ClusterSimulation::CommitCut(const CutAsk& ask) {
  const ShardRecord& whole = *records_[ask.shard];
  if (Gone(ask.shard)) return false;
  if (whole.range.limit == ask.at && whole.epoch > ask.epoch) return true;  // an earlier request
  const bool given_up = stormy() && Chance(0.1);                            // it came too late
  const bool open = open_cuts_[ask.shard] == std::pair(leader_term_, ask.number) ||
                    Planted(SimMutant::kCutAfterRefusal);
  if (given_up || !open || whole.epoch != ask.epoch || !(whole.primary == ask.asks) ||
      !whole.active || !whole.passed_over.empty() || shards_.size() == kShardsMax ||
      ask.at <= whole.range.first || ask.at >= whole.range.limit) {
    ++stats_.cuts_refused;
    if (open) open_cuts_[ask.shard] = {};
    return false;
  }
  ++stats_.cuts;
  ShardRecord lower = whole;
  ++lower.epoch;
  lower.active = whole.members.size() == 1;
  lower.base = whole.members;
  lower.learners.clear();
  lower.readers.clear();
  lower.merge = {};
  lower.range.limit = ask.at;
  ShardRecord upper = lower;
  upper.shard.index = static_cast<uint32_t>(shards_.size());
  upper.range = whole.range;
  upper.range.first = ask.at;
  std::tie(lower.lanes, upper.lanes) = DivideLanes(whole, ask.at, upper.shard.index);
  Put(ask.shard, lower, /*cut=*/true);
  AddShard(ask, upper);
  CheckTiling();
  return true;
}

// What was known of the whole is known of the new shard.
void ClusterSimulation::AddShard(const CutAsk& ask, const ShardRecord& upper) {
  const int child = static_cast<int>(shards_.size());
  Watched watched = shards_[ask.shard];
  watched.parent = ask.shard;
  watched.born = upper.epoch;
  watched.children.clear();
  watched.lane_children.clear();
  watched.lane_parent = -1;
  watched.merged_into = -1;
  watched.acknowledged_seq.clear();
  watched.past.clear();
  watched.steps_left = 0;
  watched.commit_open.clear();
  watched.commits.clear();
  shards_.push_back(std::move(watched));
  shards_[ask.shard].children.push_back(child);
  for (const ShardLane& lane : records_[ask.shard]->Lanes()) {  // of the lower part by now
    const std::vector<ShardLane> lanes = upper.Lanes();
    const bool is_cut = lane.limit == ask.at && lanes.front().index == upper.shard.index;
    if (!is_cut) continue;
    shards_[child].lane_parent = static_cast<int>(lane.index);
    shards_[lane.index].lane_children.push_back(child);
  }
  records_.push_back(nullptr);
  wishes_.push_back(wishes_[ask.shard]);
  Put(child, upper);
  shards_[child].born_rows = RowsOfLane(upper, child);
  shards_[child].wish_open = !AsWished(child);
  std::set<int>& open = Family(child).commit_open;
  if (!open.empty()) open.insert(child);
}

// At every revision of the store (CheckRecord: only cuts change ranges).
void ClusterSimulation::CheckTiling() {
  std::vector<ShardRange> ranges;
  for (const RecordPtr& record : records_) {
    if (!Gone(static_cast<int>(record->shard.index))) ranges.push_back(record->range);
  }
  std::sort(ranges.begin(), ranges.end(),
            [](const ShardRange& a, const ShardRange& b) { return a.first < b.first; });
  uint64_t next = 0;
  for (const ShardRange& range : ranges) {
    if (range.first != next) return Violation("the shards do not tile the table after a cut");
    next = range.limit;
  }
}

void ClusterSimulation::OnCutAnswer(int server, const CutAsk& ask, bool cut) {
  std::optional<CutAsk>& open = servers_[server].process->asks[ask.shard];
  if (!open.has_value() || open->number != ask.number) return;
  open.reset();
  if (trace_ != nullptr) {
    Trace(absl::StrCat(ask.with < 0 ? "CUT" : "MERGE", " of shard ", ask.shard, " at ", ask.at,
                       cut ? "" : " is refused"));
  }
  if (!cut) return ReleaseParts(server, ask);
  for (size_t shard = 0; shard < records_.size(); ++shard) {
    const bool gone = Gone(static_cast<int>(shard));
    if (!gone && shards_[shard].family == shards_[ask.shard].family) Learn(server, records_[shard]);
  }
}

// --- servers, as Assignments (assignments_cuts.cc)

bool ClusterSimulation::HoldsUnderAnother(const Server& server, int shard) const {
  const RowSet rows = RowsOf(shard);
  for (size_t other = 0; other < shards_.size(); ++other) {
    const SpilledShard& spilled = server.disk.shards[other];
    const bool is_other = static_cast<int>(other) != shard &&
                          shards_[other].family == shards_[shard].family && spilled.held;
    if (is_other && (RowsOf(shard, spilled.range) & rows) != 0) return true;
  }
  return false;
}

bool ClusterSimulation::IsCutFrom(const Disk& disk, int shard) {
  return std::any_of(disk.shards.begin(), disk.shards.end(), [shard](const SpilledShard& spilled) {
    return spilled.cut.has_value() && spilled.cut->parent == shard;
  });
}

bool ClusterSimulation::IsPast(const Server& server, const ShardRecord& record) {
  const RecordPtr& known = server.process->known[record.shard.index];
  return server.disk.promised[record.shard.index] > record.epoch ||
         (known != nullptr && known->revision > record.revision);
}

// A later record of another shard has rows of this one, and others.
bool ClusterSimulation::WasMergedElsewhere(const Server& server, int shard) const {
  const RowSet held = RowsOf(shard, server.disk.shards[shard].range);
  for (int other = 0; other < static_cast<int>(shards_.size()); ++other) {
    const RecordPtr& known = server.process->known[other];
    if (other == shard || known == nullptr || shards_[other].family != shards_[shard].family) {
      continue;
    }
    const RowSet rows = RowsOf(other, known->range);
    const bool later = known->epoch > server.disk.promised[shard];
    if (later && (rows & held) != 0 && !Inside(rows, held)) return true;
  }
  return false;
}

// Cuts the replica here if the record shows that its shard was cut. False: it must not be learnt
// yet.
bool ClusterSimulation::CutFirst(Server* server, const RecordPtr& record) {
  Process& p = *server->process;
  const int shard = static_cast<int>(record->shard.index);
  if (IsPast(*server, *record)) return true;
  const SpilledShard& spilled = server->disk.shards[shard];
  const RowSet rows = RowsOf(shard, record->range);
  const RowSet held = RowsOf(shard, spilled.range);
  if (!spilled.held || rows == held || !Inside(rows, held)) {
    if (shards_[shard].parent >= 0) LearnAgain(server->index);
    return true;
  }
  if (Open(*server, shard) == nullptr) return true;  // its rows are on their way
  const auto id = static_cast<ServerId>(server->index) + 1;
  std::vector<RecordPtr> parts;
  RowSet found = rows;
  bool tile = true;
  bool counts = MayCount(*record, id);
  const RecordPtr& told = Open(*server, shard)->told;
  const Epoch whole_epoch = told == nullptr ? 0 : told->epoch;
  const auto inside = [&](int other) {
    const RecordPtr& known = p.known[other];
    // Shards that were merged into the whole, here or elsewhere, may still be known.
    if (known == nullptr || known->epoch < server->disk.promised[other]) return false;
    if (known->epoch <= whole_epoch) return false;
    return other != shard && !server->disk.shards[other].held &&
           shards_[other].family == shards_[shard].family &&
           Inside(RowsOf(other, known->range), held);
  };
  // Shards that were merged into the whole, or into another one, may still be known from before.
  const auto replaced = [&](int part) {
    const RowSet of_part = RowsOf(part, p.known[part]->range);
    if (record->epoch > p.known[part]->epoch && (rows & of_part) != 0) return true;
    for (int other = 0; other < static_cast<int>(shards_.size()); ++other) {
      if (!inside(other) || p.known[other]->epoch <= p.known[part]->epoch) continue;
      if ((RowsOf(other, p.known[other]->range) & of_part) != 0) return true;
    }
    return false;
  };
  for (int other = 0; other < static_cast<int>(shards_.size()); ++other) {
    if (!inside(other) || replaced(other)) continue;
    const RecordPtr& known = p.known[other];
    const RowSet part = RowsOf(other, known->range);
    tile = tile && (found & part) == 0;
    found |= part;
    counts = counts || MayCount(*known, id);
    parts.push_back(known);
  }
  if (WasMergedElsewhere(*server, shard)) {  // and cut since: nothing here counts
    counts = false;
    tile = true;
    found = held;
  }
  tile = (tile && found == held) || Planted(SimMutant::kCutOfOnePart);
  if (counts && (!tile || !CutReplica(server, record, parts))) {
    p.unlearnt[shard] = record;
    LearnAgain(server->index);
    return false;
  }
  if (counts) return true;
  if (IsCutFrom(server->disk, shard)) return false;
  CheckGivenUp(*server, shard);  // nothing here counts
  Retire(server, shard);
  Wipe(server, shard);
  return true;
}

void ClusterSimulation::LearnAgain(int server) {
  if (std::exchange(servers_[server].process->learns_again, true)) return;
  At(kMs, ForLife(server, [this, server] {
       Process& p = *servers_[server].process;
       p.learns_again = false;
       for (RecordPtr& unlearnt : p.unlearnt) {
         if (unlearnt != nullptr) Learn(server, std::exchange(unlearnt, nullptr));
       }
     }));
}

// False: it has entries that are on their way.
bool ClusterSimulation::CutReplica(Server* server, const RecordPtr& record,
                                   const std::vector<RecordPtr>& parts) {
  const int shard = static_cast<int>(record->shard.index);
  Shard& whole = *Open(*server, shard)->shard;
  const SpilledShard before = server->disk.shards[shard];
  const bool refused = whole.refused();
  const bool settled = refused || whole.SettleForCut();
  AfterEvent(server->index, shard);
  if (!settled || (!refused && !whole.WriteBack().ok())) return false;
  const ShardOptions::Continued state = whole.ContinuedState();
  const Lsn lsn = whole.applied_lsn();
  const bool installed = whole.installed();
  const std::vector<EntryName> entries = Open(*server, shard)->entries;
  Retire(server, shard);
  DivideDisk(server, record, parts, before);
  std::vector<RecordPtr> all = parts;
  all.push_back(record);
  const Watched& parent = shards_[shard];
  for (const RecordPtr& part : all) {
    const int of = static_cast<int>(part->shard.index);
    Watched& watched = shards_[of];
    watched.cut_lsn = std::max(watched.cut_lsn, lsn);
    watched.commit = std::max(watched.commit, std::min(lsn, parent.commit));
    for (size_t i = watched.committed.size(); i < std::min(lsn, parent.committed.size()); ++i) {
      watched.committed.push_back(parent.committed[i]);
    }
    if (!record->lanes.empty() && part->Holds(Self(*server))) {
      server->disk.promised[of] = std::max(server->disk.promised[of], part->epoch);
    }
    Replica* const replica = OpenReplica(server, of, installed, state);
    replica->entries = entries;
    FinishOpening(*server, replica);
    if (refused) replica->shard->Refuse(absl::DataLossError("its rows are damaged"));
  }
  if (trace_ != nullptr) {
    Trace(absl::StrCat("DIVIDED s", server->index + 1, " shard ", shard, " at LSN ", lsn));
  }
  for (const RecordPtr& part : parts) LearnKnown(server, static_cast<int>(part->shard.index));
  return true;
}

// The rows and the state of the whole, as they were just written back, in both parts. They may not
// have been flushed: then a kill goes back to what was on the disk `before`, and the log. Those of
// class checkpoint are in no checkpoint yet.
void ClusterSimulation::DivideDisk(Server* server, const RecordPtr& record,
                                   const std::vector<RecordPtr>& parts,
                                   const SpilledShard& before) {
  Disk& disk = server->disk;
  const int shard = static_cast<int>(record->shard.index);
  SyncLog(server);
  const bool logged = shards_[shard].setting.durability != Durability::kCheckpoint;
  const bool flushed = logged && Chance(0.5);
  const SpilledShard whole = disk.shards[shard];
  const auto divide = [&](const ShardRecord& part, const SpilledShard& from) {
    SpilledShard divided = from;
    divided.range = part.range;
    Keep(RowsOf(shard, part.range), &divided.rows);
    if (static_cast<int>(part.shard.index) == shard) return divided;
    divided.cut = SpilledShard::Inherited{shard, from.log_from};
    divided.log_from = disk.log.size();
    if (Planted(SimMutant::kCutLosesRow)) divided.rows[part.range.first % kRows] = Row();
    if (Planted(SimMutant::kCutForgetsSessions)) {
      ShardMeta meta = ShardMeta::Parse(divided.meta).value();
      meta.sessions = SessionTable();
      divided.meta = meta.Serialize();
    }
    return divided;
  };
  std::vector<RecordPtr> all = parts;
  all.push_back(record);
  for (const RecordPtr& part : all) {
    SpilledShard& spilled = disk.shards[part->shard.index];
    spilled = divide(*part, whole);
    SpilledShard killed = logged ? before : AfterKill(before);
    const bool is_new = static_cast<int>(part->shard.index) != shard;
    if (Planted(SimMutant::kCutNotInCheckpoint) && is_new && !logged) killed.rows = Rows();
    if (!flushed) spilled.unflushed = std::make_shared<const SpilledShard>(divide(*part, killed));
  }
}

// Whatever is written is durable no sooner than what was written before it.
void ClusterSimulation::Flushed(Disk* disk) const {
  for (size_t shard = 0; shard < shards_.size(); ++shard) {
    const bool logged = shards_[shard].setting.durability != Durability::kCheckpoint;
    if (logged) disk->shards[shard].unflushed = nullptr;
  }
}

SpilledShard ClusterSimulation::AfterKill(const SpilledShard& spilled) {
  SpilledShard after = spilled.unflushed == nullptr ? spilled : *spilled.unflushed;
  after.unflushed = nullptr;
  return after;
}

// Nothing of the shard is on the disk any more, and in no checkpoint.
void ClusterSimulation::Wipe(Server* server, int shard) {
  SpilledShard& spilled = server->disk.shards[shard];
  const RowSet rows = RowsOf(shard, spilled.range);
  for (int row = 0; row < kRows; ++row) {
    if ((rows >> row & 1) != 0) Family(shard).checkpointed[server->index][row] = 0;
  }
  spilled = SpilledShard();
}

// In class checkpoint: once a checkpoint has the shard under its own name.
void ClusterSimulation::FinishCut(Server* server, int shard) {
  WriteBackAll(server, shard);
  SpilledShard& spilled = server->disk.shards[shard];
  const bool logged = shards_[shard].setting.durability != Durability::kCheckpoint;
  if (logged || spilled.unflushed == nullptr) spilled.cut.reset();
}

// --- clients, as PushEngine (client/push/push_cut.cc)

void ClusterSimulation::FollowCuts(int client, int lane, RowSet rows) {
  std::array<Pipe, kShardsMax>& pipes = clients_[client].pipes;
  Pipe& pipe = pipes[lane];
  if (rows == pipe.rows) return;
  for (const int child : shards_[lane].lane_children) {
    const RowSet of_child = shards_[child].born_rows;
    if ((pipe.rows & of_child) == 0 || (rows & of_child) != 0) continue;
    pipe.rows &= ~of_child;
    pipe.divided = true;
    pipes[child] = pipe;
    pipes[child].rows = of_child;
    pipes[child].lsn_min = pipe.lsn_known;  // both parts give out LSNs since the cut
    pipes[child].record = shards_[child].past.front();
    KeepOwnPushes(&pipes[child]);
  }
  KeepOwnPushes(&pipe);
}

void ClusterSimulation::NoteLsn(Lsn lsn, Epoch epoch, Pipe* pipe) {
  pipe->lsn_min = std::max(pipe->lsn_min, lsn);
  const bool known = pipe->record != nullptr && epoch <= pipe->record->epoch;
  if (known) pipe->lsn_known = std::max(pipe->lsn_known, lsn);
}

// Those with rows of the shard; the first one finds where the shard's session is.
void ClusterSimulation::KeepOwnPushes(Pipe* pipe) const {
  std::erase_if(pipe->pending,
                [&](const Pending& push) { return (pushes_[push.push].rows & pipe->rows) == 0; });
  for (size_t i = 0; i < pipe->pending.size(); ++i) {
    Pending& push = pipe->pending[i];
    push.open = i == 0;
    push.prev_seq = i == 0 ? 0 : pipe->pending[i - 1].seq;
  }
  pipe->open_next = pipe->pending.empty();
  pipe->chain = pipe->pending.empty() ? 0 : pipe->pending.back().seq;
  pipe->waits_for_open = pipe->waits_for_open && !pipe->pending.empty();
}

}  // namespace hotbed::sim
