// Shards of the simulated cluster that are merged from two neighbours while they are used: what the
// coordinator and the shard host do for it, and what the observer has to know. (Clients follow as
// they follow moves: what they push to stays a lane.)
//
// A shard that was merged into another one leaves a gap in the lists of shards (Gone). Its number
// goes on as that of a lane.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/tables/shard_lanes.h"
#include "server/protocol/merged_meta.h"
#include "tests/sim/cluster_simulation.h"
#include "tests/sim/sim_mutant.h"

namespace hotbed::sim {
namespace {

constexpr int kMergeAttempts = 30;  // a millisecond each

bool SamePlaces(const ShardRecord& a, const ShardRecord& b) {
  return a.primary == b.primary && a.members.size() == b.members.size() &&
         std::all_of(a.members.begin(), a.members.end(),
                     [&](const Member& member) { return Contains(b.members, member); });
}

}  // namespace

int ClusterSimulation::OwnerOf(int lane) const {
  for (int shard = 0; shard < static_cast<int>(shards_.size()); ++shard) {
    if (!Gone(shard) && RowsOfLane(*records_[shard], lane) != 0) return shard;
  }
  return -1;
}

RowSet ClusterSimulation::RowsOfLane(const ShardRecord& record, int lane) const {
  for (const ShardLane& one : record.Lanes()) {
    if (static_cast<int>(one.index) != lane) continue;
    ShardRange range = record.range;
    range.first = one.first;
    range.limit = one.limit;
    return RowsOf(lane, range);
  }
  return 0;
}

// Or is to be cut or merged here, because the coordinator has committed that.
bool ClusterSimulation::IsAsked(const Server& server, int shard) const {
  for (const RecordPtr& record : server.process->unlearnt) {
    if (record == nullptr) continue;
    if (static_cast<int>(record->shard.index) == shard) return true;
    if (!record->lanes.empty() && static_cast<int>(record->merge.with.index) == shard) return true;
  }
  return std::any_of(server.process->asks.begin(), server.process->asks.end(),
                     [shard](const std::optional<CutAsk>& ask) {
                       return ask.has_value() && (ask->shard == shard || ask->with == shard);
                     });
}

// --- the coordinator, and the primary that asks it

void ClusterSimulation::AskForMerges() {
  if (healed()) return;
  At(Delay(weather_.merges_every), [this] { AskForMerges(); });
  const int lower = Pick(shards_.size());
  if (Gone(lower) || shards_[lower].setting.synchronous) return;
  const ShardRecord& record = *records_[lower];
  for (int upper = 0; upper < static_cast<int>(shards_.size()); ++upper) {
    const bool neighbours = !Gone(upper) && shards_[upper].family == shards_[lower].family &&
                            records_[upper]->range.first == record.range.limit;
    if (!neighbours || !SamePlaces(record, *records_[upper])) continue;
    if (ProcessOf(record.primary) == nullptr) return;
    CutAsk ask;
    ask.shard = lower;
    ask.with = upper;
    ask.at = record.range.limit;
    ask.number = ++cuts_asked_;
    open_cuts_[lower] = {leader_term_, ask.number};
    const int server = static_cast<int>(record.primary.server) - 1;
    return ForLife(server, [=, this] { PrepareMerge(server, ask, kMergeAttempts); })();
  }
}

// As ShardCuts::PrepareMerge.
void ClusterSimulation::PrepareMerge(int server, CutAsk ask, int attempts) {
  Server& s = servers_[server];
  const Replica* const lower = Open(s, ask.shard);
  const Replica* const upper = Open(s, ask.with);
  if (IsAsked(s, ask.shard) || IsAsked(s, ask.with)) return ReleaseParts(server, ask);
  if (lower == nullptr || upper == nullptr || lower->shard->refused() || upper->shard->refused()) {
    return ReleaseParts(server, ask);
  }
  const bool leads = lower->shard->primary() && lower->shard->active() && upper->shard->primary() &&
                     upper->shard->active();
  const bool durable = IsDurable(s.disk, ask.shard) && IsDurable(s.disk, ask.with);
  if (!leads || !durable || attempts == 0) return ReleaseParts(server, ask);
  if (attempts == kMergeAttempts && lower->shard->logged()) {
    WriteBackAll(&s, ask.shard);
    WriteBackAll(&s, ask.with);
  }
  if (!Planted(SimMutant::kMergeWithoutStandstill)) {
    const bool lower_stands = lower->shard->Pause(true, PauseFor::kCut);
    AfterEvent(server, ask.shard);
    const bool upper_stands = upper->shard->Pause(true, PauseFor::kCut);
    AfterEvent(server, ask.with);
    if (!lower_stands || !upper_stands) {
      return At(kMs, ForLife(server, [=, this] { PrepareMerge(server, ask, attempts - 1); }));
    }
  }
  ask.asks = Self(s);
  ask.epoch = lower->shard->core().record().epoch;
  ask.epoch_with = upper->shard->core().record().epoch;
  ask.end = lower->shard->End().log;
  ask.end_with = upper->shard->End().log;
  s.process->asks[ask.shard] = ask;
  AskCommit(server, ask.shard);
}

// Those that no other request keeps still take pushes again.
void ClusterSimulation::ReleaseParts(int server, const CutAsk& ask) {
  for (const int part : {ask.shard, ask.with}) {
    Server& s = servers_[server];
    const Replica* const replica = part < 0 ? nullptr : Open(s, part);
    if (replica == nullptr) continue;
    if (IsAsked(s, part)) {  // one request at a time, as CutLink
      CutAsk later = ask;
      later.shard = part;
      later.with = -1;
      At(10 * kMs, ForLife(server, [this, server, later] { ReleaseParts(server, later); }));
      continue;
    }
    replica->shard->Pause(false, PauseFor::kCut);
    AfterEvent(server, part);
  }
}

// As CommitCut.
bool ClusterSimulation::CommitMerge(const CutAsk& ask) {
  const ShardRecord lower = *records_[ask.shard];
  const ShardRecord upper = *records_[ask.with];
  if (!Gone(ask.shard) && shards_[ask.with].merged_into == ask.shard && lower.epoch > ask.epoch) {
    return true;  // an earlier request
  }
  const bool given_up = stormy() && Chance(0.1);
  const bool open = open_cuts_[ask.shard] == std::pair(leader_term_, ask.number) ||
                    Planted(SimMutant::kMergeAfterRefusal);
  const auto ready = [&](int shard, const ShardRecord& record, Epoch epoch) {
    return !Gone(shard) && record.epoch == epoch && record.primary == ask.asks && record.active &&
           record.passed_over.empty() && shards_[shard].kept.empty();
  };
  if (given_up || !open || !ready(ask.shard, lower, ask.epoch) ||
      !ready(ask.with, upper, ask.epoch_with) || !SamePlaces(lower, upper) ||
      lower.range.limit != upper.range.first) {
    ++stats_.merges_refused;
    if (open) open_cuts_[ask.shard] = {};
    return false;
  }
  ++stats_.merges;
  ShardRecord merged = MergedRecord(lower, upper, ask.end, ask.end_with);
  if (Planted(SimMutant::kMergeMixesSessions)) {
    for (ShardLane& lane : merged.lanes) lane.tag = merged.lanes.front().tag;
  }
  NoteMerged(ask);
  Put(ask.shard, merged, /*cut=*/true);
  shards_[ask.shard].wish_open = !AsWished(ask.shard);
  CheckTiling();
  if (weather_.merges_end > 0 && stormy() && Chance(weather_.merges_end)) {
    At(0, [this, record = records_[ask.shard]] { KillMerging(*record); });
  }
  return true;
}

// What was acknowledged of either part is before the base of the merged shard.
void ClusterSimulation::NoteMerged(const CutAsk& ask) {
  const Lsn base = std::max(ask.end.lsn, ask.end_with.lsn) + 1;
  const auto check = [&](int part, Lsn end) {
    for (const auto& [epoch, lsn] : shards_[part].acknowledged_lsn) {
      if (epoch < shards_[part].lost_below || lsn <= end) continue;
      Violation(absl::StrCat("shard ", part, " is merged as of LSN ", end, ", and ", lsn,
                             " was acknowledged"));
    }
  };
  check(ask.shard, ask.end.lsn);
  check(ask.with, ask.end_with.lsn);
  Watched& lower = shards_[ask.shard];
  const Watched& upper = shards_[ask.with];
  lower.commit = std::max(lower.commit, base);
  lower.cut_lsn = std::max(lower.cut_lsn, base);
  if (lower.committed.size() < base) lower.committed.resize(base);
  lower.lossy = lower.lossy || upper.lossy;
  lower.torn = lower.torn || upper.torn;
  lower.lost_below = std::max(lower.lost_below, upper.lost_below);
  shards_[ask.with].merged_into = ask.shard;
}

// --- servers, as Assignments (assignments_merges.cc)

// Merges the replicas here of which the record's shard was made, or drops them. False: it must not
// be learnt yet.
bool ClusterSimulation::MergeFirst(Server* server, const RecordPtr& record) {
  if (record->lanes.empty()) return true;
  Process& p = *server->process;
  const int shard = static_cast<int>(record->shard.index);
  if (IsPast(*server, *record)) return true;
  const RowSet whole = RowsOf(shard, record->range);
  std::vector<int> parts;
  bool open = true;
  for (int other = 0; other < static_cast<int>(shards_.size()); ++other) {
    const SpilledShard& spilled = server->disk.shards[other];
    if (!spilled.held || shards_[other].family != shards_[shard].family) continue;
    const RowSet rows = RowsOf(other, spilled.range);
    const bool newer = server->disk.promised[other] > record->epoch ||
                       (p.known[other] != nullptr && p.known[other]->epoch > record->epoch);
    // A shard has the first row that it began with for as long as it is one.
    const bool ended = other != shard && (rows & -rows & whole) != 0;
    const bool narrower = other == shard && rows != whole && (rows & ~whole) == 0;
    if (newer || !(ended || narrower)) continue;
    parts.push_back(other);
    open = open && Open(*server, other) != nullptr;
  }
  if (parts.empty()) return true;
  const int with = static_cast<int>(record->merge.with.index);
  const bool both = parts.size() == 2 && Contains(parts, shard) && Contains(parts, with) && open &&
                    (RowsOf(shard, server->disk.shards[shard].range) |
                     RowsOf(with, server->disk.shards[with].range)) == whole;
  const bool counts = MayCount(*record, static_cast<ServerId>(server->index) + 1);
  const bool inherited = std::any_of(parts.begin(), parts.end(),
                                     [&](int part) { return IsCutFrom(server->disk, part); });
  if (both && counts ? !MergeReplicas(server, record) : inherited) {
    p.unlearnt[shard] = record;
    LearnAgain(server->index);
    return false;
  }
  if (both && counts) return true;
  for (const int part : parts) {  // nothing here counts
    CheckGivenUp(*server, part);
    Retire(server, part);
    Wipe(server, part);
    if (part == shard) continue;
    p.known[part] = nullptr;
    server->disk.promised[part] = std::max(server->disk.promised[part], record->epoch);
  }
  return true;
}

// Neither the shard nor one that was cut from it depends on the other's state, and the shard not on
// those that it was merged from.
bool ClusterSimulation::IsDurable(const Disk& disk, int shard) const {
  const SpilledShard& spilled = disk.shards[shard];
  const bool logged = shards_[shard].setting.durability != Durability::kCheckpoint;
  const bool kept = logged || spilled.unflushed == nullptr;
  return kept && !spilled.cut.has_value() && !IsCutFrom(disk, shard);
}

// False: later.
bool ClusterSimulation::MergeReplicas(Server* server, const RecordPtr& record) {
  const int lower = static_cast<int>(record->shard.index);
  const int upper = static_cast<int>(record->merge.with.index);
  const SpilledShard lower_before = server->disk.shards[lower];
  const SpilledShard upper_before = server->disk.shards[upper];
  for (const int part : {lower, upper}) {
    if (!IsDurable(server->disk, part)) return false;
    Shard& shard = *Open(*server, part)->shard;
    const bool settled = !shard.refused() && shard.SettleForCut();
    AfterEvent(server->index, part);
    if (!settled || !shard.WriteBack().ok()) return false;
  }
  Shard& lower_shard = *Open(*server, lower)->shard;
  Shard& upper_shard = *Open(*server, upper)->shard;
  LogEnd base = BaseHere(*record, lower_shard.End().log, upper_shard.End().log);
  if (Planted(SimMutant::kMergeOfAnyEnd)) base = record->merge.base;
  ShardOptions::Continued state;
  state.proven = base == record->merge.base && lower_shard.ContinuedState().proven &&
                 upper_shard.ContinuedState().proven;
  state.durable_lsn = base.lsn;
  Retire(server, lower);
  Retire(server, upper);
  MergeDisk(server, *record, base, lower_before, upper_before);
  Process& p = *server->process;
  p.known[upper] = nullptr;
  p.unlearnt[upper] = nullptr;
  Replica* const replica = OpenReplica(server, lower, /*installed=*/false, state);
  replica->entries.assign(base.lsn + 1, EntryName());
  FinishOpening(*server, replica);
  if (trace_ != nullptr) {
    Trace(absl::StrCat("MERGED s", server->index + 1, " shards ", lower, " and ", upper, " at LSN ",
                       base.lsn, "@", base.epoch));
  }
  return true;
}

SpilledShard ClusterSimulation::MergeSpilled(const ShardRecord& record, const LogEnd& base,
                                             const SpilledShard& lower,
                                             const SpilledShard& upper) const {
  SpilledShard merged = lower;
  ShardMeta of_upper = ShardMeta::Parse(upper.meta).value();
  if (Planted(SimMutant::kMergeForgetsSessions)) of_upper.sessions = SessionTable();
  merged.meta = MergeMetas(record.lanes, upper.range.first, base,
                           ShardMeta::Parse(lower.meta).value(), of_upper)
                    .Serialize();
  const RowSet rows = RowsOf(static_cast<int>(record.merge.with.index), upper.range);
  for (int row = 0; row < kRows; ++row) {
    if ((rows >> row & 1) != 0) merged.rows[row] = upper.rows[row];
  }
  if (Planted(SimMutant::kMergeLosesRow)) merged.rows[upper.range.first % kRows] = Row();
  merged.range = record.range;
  merged.installed = 0;
  return merged;
}

// The merged state is durable before the catalog names the merged shard. In a table of class
// checkpoint it is in no checkpoint yet: recovery merges the parts once more, as the last one has
// them (Recovery::TakeMergedMetas), or as shards without rows.
void ClusterSimulation::MergeDisk(Server* server, const ShardRecord& record, const LogEnd& base,
                                  const SpilledShard& lower, const SpilledShard& upper) {
  Disk& disk = server->disk;
  const int of = static_cast<int>(record.shard.index);
  const int with = static_cast<int>(record.merge.with.index);
  const SpilledShard other = std::exchange(disk.shards[with], SpilledShard());
  SpilledShard& merged = disk.shards[of];
  merged = MergeSpilled(record, base, merged, other);
  SyncLog(server);
  merged.log_from = disk.log.size();
  disk.promised[with] = std::max(disk.promised[with], record.epoch);
  Flushed(&disk);
  if (shards_[of].setting.durability != Durability::kCheckpoint) return;
  const auto kept = [](const SpilledShard& part) {
    SpilledShard spilled = AfterKill(part);
    if (!spilled.kept) spilled.rows = Rows();
    if (!spilled.kept) spilled.meta.clear();
    return spilled;
  };
  SpilledShard again = MergeSpilled(record, {0, base.lsn}, kept(lower), kept(upper));
  if (Planted(SimMutant::kMergeNotInCheckpoint)) again.rows = kept(lower).rows;
  again.kept = true;
  merged.kept = true;
  merged.unflushed = std::make_shared<const SpilledShard>(std::move(again));
}

// Whether the server has both parts of the record's shard, as they were when it was merged.
bool ClusterSimulation::HoldsParts(const Server& server, const ShardRecord& record) const {
  const auto holds = [&](int part, Lsn end) {
    if (server.process == nullptr) {
      const std::optional<Lsn> there = EndOnDisk(server, part);
      return there.has_value() && *there >= end;
    }
    const Replica* const replica = Open(server, part);
    return replica != nullptr && !replica->shard->refused() &&
           replica->shard->core().log_end().lsn >= end;
  };
  const Watched& watched = shards_[record.shard.index];
  return watched.committed.size() <= record.merge.base.lsn &&
         holds(static_cast<int>(record.shard.index), record.merge.end.lsn) &&
         holds(static_cast<int>(record.merge.with.index), record.merge.end_with.lsn);
}

}  // namespace hotbed::sim
