// The checks on the simulated cluster, at every step and at the end (docs/protocol.md, "What the
// simulation checks").
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/tables/session_of_lane.h"
#include "planner/coordinator/state/record_text.h"
#include "tests/sim/cluster_simulation.h"

namespace hotbed::sim {

// At every revision of the store the shards tile the table, epochs never fall, and the members of
// an epoch stay.
void ClusterSimulation::CheckRecord(int shard, const ShardRecord& before, const ShardRecord& after,
                                    bool cut) {
  const auto fail = [&](const char* what) {
    Violation(absl::StrCat("shard ", shard, ": ", what, ": ", RecordText(before), " became ",
                           RecordText(after)));
  };
  if (!(after.shard == before.shard) || after.range.first != before.range.first ||
      (after.range.limit != before.range.limit && !cut) || after.range.column_first != 0 ||
      after.range.column_limit != before.range.column_limit) {
    fail("the shards do not tile the table any more");
  }
  if (after.epoch < before.epoch) fail("the epoch fell");
  if (after.epoch == before.epoch) {
    const bool same = after.primary == before.primary && after.members == before.members &&
                      after.active >= before.active;
    if (!same) fail("members changed within an epoch");
  }
  if (!Contains(after.members, after.primary)) fail("the primary is no member");
}

// One owner: one server acknowledges in an epoch, and nothing that a later epoch did not begin
// with. (In time an acknowledgement may come after a later epoch's activation: of an entry that all
// held before they promised that epoch.)
void ClusterSimulation::CheckAcknowledged(int shard, const Member& by, Epoch epoch, Lsn lsn) {
  Watched& watched = shards_[shard];
  const auto [it, fresh] = watched.acknowledgers.emplace(epoch, by);
  if (!fresh && !(it->second == by)) {
    Violation(absl::StrCat("shard ", shard, ": two servers acknowledge in epoch ", epoch));
  }
  if (epoch < watched.lost_below) return;  // by a server that does not know of the loss yet
  Lsn& highest = watched.acknowledged_lsn[epoch];
  highest = std::max(highest, lsn);
  for (const Activation& activation : watched.activations) {
    if (activation.epoch > epoch && activation.tail < lsn) {
      Violation(absl::StrCat("shard ", shard, ": LSN ", lsn, " acknowledged in epoch ", epoch,
                             ", and epoch ", activation.epoch, " began behind ", activation.tail));
    }
  }
  for (const int child : watched.children) {
    if (epoch < shards_[child].born) CheckAcknowledged(child, by, epoch, lsn);
  }
}

void ClusterSimulation::CheckActivated(int shard, Epoch epoch, Lsn tail) {
  Watched& watched = shards_[shard];
  for (const auto& [earlier, lsn] : watched.acknowledged_lsn) {
    if (earlier < epoch && lsn > tail) {
      Violation(absl::StrCat("shard ", shard, ": epoch ", epoch, " begins behind LSN ", tail,
                             ", and ", lsn, " was acknowledged in epoch ", earlier));
    }
  }
  watched.activations.push_back({epoch, tail});
}

// The core's own invariants, after every event.
void ClusterSimulation::CheckCore(const Server& server, int shard) {
  const std::string broken = server.process->replicas[shard]->shard->core().BrokenInvariant();
  if (broken.empty()) return;
  Violation(absl::StrCat("s", server.index + 1, " shard ", shard, ": invariant: ", broken));
}

// What an active primary commits is in the log of every member, on the disk. A replica that takes
// part has nothing in its rows that is not committed.
void ClusterSimulation::CheckCommitted(const Server& server, int shard) {
  Replica& replica = *server.process->replicas[shard];
  const ShardCore& core = replica.shard->core();
  Watched& watched = shards_[shard];
  if (!core.primary() && !core.unproven() && core.applied_lsn() > watched.commit &&
      !watched.lossy) {
    Violation(absl::StrCat("s", server.index + 1, " shard ", shard, ": has applied LSN ",
                           core.applied_lsn(), ", and committed is ", watched.commit));
  }
  if (!core.active()) return;
  watched.commit = std::max(watched.commit, core.commit_lsn());
  if (watched.setting.durability == Durability::kCheckpoint) return;
  for (Lsn& lsn = replica.checked_commit; lsn < core.commit_lsn();) {
    ++lsn;
    const Epoch epoch = lsn < replica.entries.size() ? replica.entries[lsn].epoch : 0;
    if (epoch == 0) continue;  // of an earlier life
    for (const Member& member : core.record().members) {
      if (ProcessOf(member) == nullptr) continue;  // nobody knows any more
      const Replica* const other = Open(servers_[member.server - 1], shard);
      if (other == nullptr || lsn <= other->found_lsn) continue;
      if (other->shard->core().epoch() != core.epoch()) continue;
      if (lsn < other->logged.size() && other->logged[lsn] == epoch) continue;
      Violation(absl::StrCat("shard ", shard, ": s", server.index + 1, " commits LSN ", lsn,
                             " of epoch ", epoch, ", which the log of s", member.server,
                             " does not hold"));
    }
  }
}

// Simulated rows are read at once: the answer has the row as of the LSN that it names, and
// everything up to there is committed.
void ClusterSimulation::CheckPulled(int server, const Pull& pull, uint32_t value, Lsn lsn) {
  const Watched& watched = shards_[pull.shard];
  if (watched.lossy || watched.torn) return;
  const auto fail = [&](const std::string& what) {
    Violation(absl::StrCat("s", server + 1, " answers a pull of row ", pull.row, " of shard ",
                           pull.shard, " as of LSN ", lsn, ", ", what));
  };
  if (lsn > watched.commit) return fail(absl::StrCat("and committed is ", watched.commit));
  if (lsn == 0 || lsn > watched.committed.size()) return;
  const Committed& there = watched.committed[lsn - 1];
  if (!there.rows_known || there.sums[pull.row] == value) return;
  fail(absl::StrCat("with ", value, " instead of ", there.sums[pull.row]));
}

// A server that serves has promised its epoch, and no session fell back since earlier epochs. (A
// server that was hung may serve an epoch for the first time when a later one acknowledges.)
void ClusterSimulation::CheckServing(const Server& server, int shard) {
  const ShardCore& core = server.process->replicas[shard]->shard->core();
  if (!core.active()) return;
  if (server.disk.promised[shard] < core.epoch()) {
    Violation(absl::StrCat("s", server.index + 1, " serves shard ", shard, " in epoch ",
                           core.epoch(), ", promised on disk is ", server.disk.promised[shard]));
  }
  Watched& watched = shards_[shard];
  if (core.epoch() <= watched.served_epoch) return;
  // Entries that earlier epochs acknowledged are applied here a little later.
  for (const Activation& activation : watched.activations) {
    if (activation.epoch == core.epoch() && activation.tail > core.applied_lsn()) return;
  }
  watched.served_epoch = core.epoch();
  const ShardMeta meta = core.AppliedMeta();
  for (const ShardLane& lane : core.record().Lanes()) CheckSessions(shard, core, lane, meta);
}

// The sequences of a lane are those that were acknowledged in it and in those it was cut from.
void ClusterSimulation::CheckSessions(int shard, const ShardCore& core, const ShardLane& lane,
                                      const ShardMeta& meta) {
  Epoch below = core.epoch();
  for (int of = static_cast<int>(lane.index); of >= 0; of = shards_[of].lane_parent) {
    for (const auto& [epoch, acknowledged] : shards_[of].acknowledged_seq) {
      if (epoch >= below) break;
      if (epoch < std::max(shards_[shard].lost_below, shards_[of].lost_below)) continue;
      for (int client = 0; client < kClients; ++client) {
        const Session* found = meta.sessions.Find(SessionOfLane(SessionOf(client), lane.tag));
        if (acknowledged[client] > (found == nullptr ? 0 : found->last_seq)) {
          Violation(absl::StrCat("shard ", shard, " lane ", lane.index, ": session ",
                                 SessionOf(client), ": last_seq fell below ", acknowledged[client],
                                 " in epoch ", core.epoch()));
        }
      }
    }
    below = std::min(below, shards_[of].born);
  }
}

// The entry applied at an LSN is the same everywhere, and makes the same rows.
void ClusterSimulation::CheckApplied(int server, int shard, const Replica& replica, Lsn lsn) {
  Watched& watched = shards_[shard];
  std::vector<Committed>& committed = watched.committed;
  if (lsn >= replica.entries.size() || replica.entries[lsn].epoch == 0) {
    // Without a log, nobody but the core knows which entry it was.
    const bool counts = replica.shard->core().epoch() >= watched.lost_below;
    if (counts && committed.size() < lsn) committed.resize(lsn);
    return;
  }
  const EntryName& entry = replica.entries[lsn];
  const uint64_t state = replica.state_lsn == lsn ? replica.state : 0;
  if (trace_ != nullptr) {
    Trace(absl::StrCat("APPLY s", server + 1, " shard ", shard, " lsn ", lsn, "@", entry.epoch,
                       " entry ", entry.hash, " state ", state));
  }
  // A replica that does not know yet that the end of the log was lost (and its class allows it).
  const bool other = committed.size() < lsn || committed[lsn - 1].entry.epoch != entry.epoch;
  if (entry.epoch < watched.lost_below && other) return;
  if (committed.size() < lsn) committed.resize(lsn);
  Committed& there = committed[lsn - 1];
  const auto fail = [&](const char* what) {
    Violation(absl::StrCat("s", server + 1, " shard ", shard, " applies LSN ", lsn, " of epoch ",
                           entry.epoch, ", ", what, " elsewhere (epoch ", there.entry.epoch, ")"));
  };
  const bool exact = lsn > replica.guard;  // else rows may be ahead of it
  if (exact && !there.rows_known) {
    there.rows_known = true;
    for (int row = 0; row < kRows; ++row) there.sums[row] = replica.rows[row].sum;
  }
  if (there.entry.epoch == 0) {
    there.entry = entry;
    there.state = exact ? state : 0;
    return;
  }
  if (there.entry.epoch != entry.epoch || there.entry.hash != entry.hash) {
    return fail("which is another entry");
  }
  if (!exact || lsn <= watched.cut_lsn) return;
  if (there.state == 0) there.state = state;
  if (there.state != state) fail("and its rows are others");
}

// A server deletes its replica only once a later epoch without it is active.
void ClusterSimulation::CheckDeleted(const Server& server, const ShardRecord& reason) {
  const int shard = static_cast<int>(reason.shard.index);
  const auto id = static_cast<ServerId>(server.index) + 1;
  const ShardRecord& now = *records_[shard];
  const auto fail = [&](const char* what) {
    Violation(absl::StrCat("s", id, " deletes its replica of shard ", shard, ", ", what, ": ",
                           RecordText(now)));
  };
  if (!reason.active) fail("no later epoch is active");
  if (ContainsServer(now.members, id)) fail("it is a member");
  if (!now.active && ContainsServer(now.base, id)) fail("it is of the base");
}

// A replica that was merged from parts of which one had lost the end of its log (BaseHere).
// (Of other shards, an end without an epoch is that of an incomplete log that was adopted.)
bool ClusterSimulation::IsMergedShort(int shard, const LogEnd& end) const {
  return !records_[shard]->lanes.empty() && end.epoch == 0 && end.lsn > 0;
}

// Whether the server's disk, with what its process has in memory, has all that was committed.
bool ClusterSimulation::HoldsAll(ServerId server, int of) const {
  const Server& s = servers_[server - 1];
  const Watched& watched = shards_[of];
  const RowSet there = RowsOf(of, s.disk.shards[of].range);
  if (!records_[of]->lanes.empty() && s.disk.shards[of].held && there != RowsOf(of) &&
      (there & ~RowsOf(of)) == 0) {
    return HoldsParts(s, *records_[of]);  // which it has not merged yet
  }
  int shard = of;  // or the one that it was cut from, elsewhere
  while (!s.disk.shards[shard].held && shards_[shard].parent >= 0) shard = shards_[shard].parent;
  const RowSet here = RowsOf(shard, s.disk.shards[shard].range);
  if (shard != of && (RowsOf(of) & ~here) != 0) return false;  // that one was cut here, too
  Lsn all = watched.committed.size();
  for (const auto& [epoch, lsn] : watched.acknowledged_lsn) all = std::max(all, lsn);
  if (s.process != nullptr) {
    const Replica* const replica = Open(s, shard);
    if (replica == nullptr || replica->shard->refused()) return false;
    const LogEnd end = replica->shard->core().log_end();
    return end.lsn >= all && !IsMergedShort(shard, end);
  }
  const std::optional<Lsn> end = EndOnDisk(s, shard);
  return end.has_value() && *end >= all;
}

// Where a start finds the end of the shard; nothing: it has none, or lacks rows.
std::optional<Lsn> ClusterSimulation::EndOnDisk(const Server& server, int shard) const {
  const SpilledShard& spilled = server.disk.shards[shard];
  // A start goes back to the last checkpoint, or to nothing (Boot).
  const bool logged = shards_[shard].setting.durability != Durability::kCheckpoint;
  if (!spilled.held || spilled.installing || !(logged || spilled.kept)) return std::nullopt;
  Lsn guard = 0;
  for (const Row& row : spilled.rows) guard = std::max(guard, row.lsn);
  const absl::StatusOr<ShardMeta> meta = ShardMeta::Parse(spilled.meta);
  Lsn end = meta.ok() ? meta->applied_lsn : 0;
  if (meta.ok() && IsMergedShort(shard, {meta->applied_epoch, end})) return std::nullopt;
  if (logged) {
    for (const LogRecord* const record : LastWord(server.disk, shard)) {
      if (record->header.lsn == end + 1) ++end;
    }
  }
  return end >= guard ? std::make_optional(end) : std::nullopt;
}

// The members of the last active epoch are waited for, and one that holds all is taken. If none is
// back in time, it stays as it is until a person gives it up.
void ClusterSimulation::CheckTakenBack(int shard, const ShardRecord& before,
                                       const Member& primary) {
  const ShardRecord& after = *records_[shard];
  const Process* const process = ProcessOf(primary);
  if (process == nullptr || HoldsAll(primary.server, shard)) return;
  std::vector<Member> asked = before.members;
  if (!before.active) asked.insert(asked.end(), before.base.begin(), before.base.end());
  Time first = process->booted;  // since then somebody waits
  for (const Member& member : asked) {
    const Process* const other = servers_[member.server - 1].process.get();
    if (other != nullptr && !HoldsAll(member.server, shard)) first = std::min(first, other->booted);
  }
  for (const Member& member : asked) {
    if (member.server == primary.server || !HoldsAll(member.server, shard)) continue;
    const auto fail = [&](const char* what) {
      Violation(absl::StrCat("shard ", shard, ": s", primary.server, " is taken, ", what, " s",
                             member.server, ", which holds all: ", RecordText(before), " became ",
                             RecordText(after)));
    };
    if (time_ < first + kAwaited) fail("without waiting for");
    if (after.FindPassedOver(member.server) == nullptr) fail("and nothing is known of");
    shards_[shard].kept.insert(member.server);
  }
}

void ClusterSimulation::CheckGivenUp(const Server& server, int shard) {
  const auto id = static_cast<ServerId>(server.index) + 1;
  if (shards_[shard].kept.count(id) == 0) return;
  Violation(absl::StrCat("s", id, " gives up the only whole replica of shard ", shard, ": ",
                         RecordText(*records_[shard])));
}

bool ClusterSimulation::IsCommitted(int shard, const PushInfo& push) const {
  const Watched& group = Family(shard);
  const auto commit = group.commits.find(push.step);
  return commit != group.commits.end() && std::find(commit->second.begin(), commit->second.end(),
                                                    SessionOf(push.client)) != commit->second.end();
}

// --- at the end

// After healing every shard is active, and nothing waits for ever.
std::string ClusterSimulation::CheckStuck() const {
  for (size_t shard = 0; shard < shards_.size(); ++shard) {
    const bool gone = Gone(static_cast<int>(shard));
    if (!gone && (!records_[shard]->active || shards_[shard].wish_open)) {
      std::string wanted;
      for (const ServerId server : wishes_[shard]->servers) absl::StrAppend(&wanted, " s", server);
      return absl::StrCat("stuck: shard ", shard, ": ", RecordText(*records_[shard]), ", wanted",
                          wanted);
    }
    const Watched& watched = shards_[shard];
    if (!watched.commit_open.empty() || watched.steps_left > 0) {
      return absl::StrCat("stuck: shard ", shard, ": step ", watched.group_step,
                          " is not committed");
    }
    for (const Client& client : clients_) {
      const Pipe& pipe = client.pipes[shard];
      if (pipe.left == 0 && pipe.pending.empty()) continue;
      return absl::StrCat("stuck: client ", client.index, " has ", pipe.pending.size(),
                          " pushes to shard ", shard, " unanswered and ", pipe.left, " to come; ",
                          RecordText(*records_[shard]));
    }
  }
  return "";
}

void ClusterSimulation::TraceReplicas() {
  if (trace_ == nullptr) return;
  for (const Server& server : servers_) {
    for (int shard = 0; shard < static_cast<int>(shards_.size()); ++shard) {
      const SpilledShard& spilled = server.disk.shards[shard];
      if (!spilled.held || server.process == nullptr) continue;
      const Process& p = *server.process;
      const Replica* const replica = Open(server, shard);
      const std::string state = replica == nullptr
                                    ? "not open"
                                    : absl::StrCat("epoch ", replica->shard->core().epoch(),
                                                   ", log end ", replica->shard->End().log.lsn);
      const std::string known = p.known[shard] == nullptr ? "-" : RecordText(*p.known[shard]);
      Trace(absl::StrCat("REPLICA s", server.index + 1, " shard ", shard, " [", spilled.range.first,
                         ", ", spilled.range.limit, ") ", state, ", promised ",
                         server.disk.promised[shard], p.unlearnt[shard] == nullptr ? "" : ", waits",
                         p.asks[shard].has_value() ? ", asks" : "",
                         spilled.cut.has_value() ? ", inherits" : "", "; knows ", known));
    }
  }
}

const Replica* ClusterSimulation::PrimaryRows(int shard) const {
  const Process* const process = ProcessOf(records_[shard]->primary);
  if (process == nullptr) return nullptr;
  const Replica* const replica = process->replicas[shard].get();
  return replica == nullptr || replica->shard == nullptr ? nullptr : replica;
}

std::string ClusterSimulation::FinalCheck() {
  const std::string stuck = CheckStuck();
  if (!stuck.empty()) {
    TraceReplicas();
    return stuck;
  }
  for (int shard = 0; shard < static_cast<int>(shards_.size()); ++shard) {
    if (Gone(shard)) continue;
    const Replica* const replica = PrimaryRows(shard);
    if (replica == nullptr) return absl::StrCat("shard ", shard, " has no rows at its primary");
    std::string wrong = CheckRows(shard, *replica);
    if (!wrong.empty()) return wrong;
  }
  return "";
}

// Nothing lost, exactly once: each row holds each push at most once, whole pushes, and all that was
// acknowledged.
std::string ClusterSimulation::CheckRows(int shard, const Replica& replica) {
  if (shards_[shard].torn) return "";  // pushes may be in some of their rows
  const RowSet mine = RowsOf(shard);
  std::vector<RowSet> applied(pushes_.size(), 0);
  for (int row = 0; row < kRows; ++row) {
    for (uint32_t node = replica.rows[row].node; node != 0; node = nodes_[node].before) {
      const PushId push = nodes_[node].push;
      const auto bit = static_cast<RowSet>(1u << row);
      if ((applied[push] & bit) != 0) return absl::StrCat("push ", push, " was applied twice");
      applied[push] |= bit;
    }
  }
  for (PushId push = 1; push < pushes_.size(); ++push) {
    const PushInfo& info = pushes_[push];
    const auto text = [&](const char* what) {
      return absl::StrCat("shard ", shard, ": push ", push, " of client ", info.client, " ", what);
    };
    const auto rows = static_cast<RowSet>(info.rows & mine);
    if (info.family != shards_[shard].family || rows == 0) {
      if (applied[push] != 0) return text("is in the rows of another shard");
      continue;
    }
    for (const ShardLane& lane : records_[shard]->Lanes()) {
      const RowSet whole = info.rows & RowsOfLane(*records_[shard], static_cast<int>(lane.index));
      const RowSet there = applied[push] & whole;
      if (there != 0 && there != whole) return text("is applied in part");
    }
    if (applied[push] != 0 && info.nan) return text("has NaN and was applied");
    if (applied[push] != 0 && info.staged && !IsCommitted(shard, info)) {
      return text("was applied, and no commit names it");
    }
    const bool must = !info.staged || IsCommitted(shard, info);
    const RowSet kept = rows & info.acknowledged & ~info.may_be_lost;
    if (must && (kept & ~applied[push]) != 0) return text("was acknowledged and is lost");
  }
  return "";
}

}  // namespace hotbed::sim
