// The servers of the simulation: processes that die, disks that fill, and between them what the
// shard's shell does.
#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tests/sim/shard_simulation.h"

namespace hotbed {

ShardSimulation::Task ShardSimulation::ForLife(int server, Task task) {
  return [this, server, incarnation = servers_[server].last_incarnation, task = std::move(task)] {
    const Server& s = servers_[server];
    if (s.process != nullptr && s.process->incarnation == incarnation) task();
  };
}

void ShardSimulation::Boot(int server) {
  Server& s = servers_[server];
  if (s.process != nullptr) return;
  s.process = std::make_unique<Process>();
  s.process->incarnation = ++s.last_incarnation;
  At(Delay(10), ForLife(server, [this, server] { TickServer(server); }));
}

void ShardSimulation::Crash(int server) {
  Server& s = servers_[server];
  if (s.process == nullptr || healed()) return;
  ++stats_.crashes;
  // Any prefix of the appends that had not completed may have reached the disk; none of the rest.
  Process& p = *s.process;
  size_t reached = Chance(0.5) ? 0 : random_.Uniform(p.appending.size() + 1);
  if (time_ < s.disk_full_until) reached = 0;
  for (size_t i = 0; i < reached; ++i) {
    const CoreEntry& entry = p.appending[i];
    s.disk.log.emplace_back(entry, p.waiting[entry.payload].push);
  }
  s.process.reset();
  At(Delay(150), [this, server] { Boot(server); });
}

// Recovery, as the shell does it: the state written back last, then the log behind it.
void ShardSimulation::LoadDisk(Server* server) {
  Process& p = *server->process;
  const Disk& disk = server->disk;
  p.core = std::make_unique<ShardCore>(ShardCoreOptions());
  p.appending.clear();
  p.applying.clear();
  p.staged.clear();
  p.waiting.clear();
  p.core->SetSelf({static_cast<ServerId>(server->index) + 1, p.incarnation});
  absl::StatusOr<ShardMeta> meta = ShardMeta::Parse(disk.stored.meta);
  if (!meta.ok()) return Violation(meta.status().ToString());
  for (const StagedPush& push : meta->staged) p.staged[push.lsn] = std::stoull(push.payload);
  p.core->Recover(disk.promised, *std::move(meta));
  p.rows = disk.stored.rows;
  for (const auto& [entry, push] : disk.log) {
    if (entry.lsn > p.core->last_lsn()) ApplyEntry(&p, entry, push);
    const absl::StatusOr<bool> applies = p.core->Replay(entry);
    if (!applies.ok()) return Violation(applies.status().ToString());
  }
  p.holds_data = true;
}

void ShardSimulation::ApplyEntry(Process* process, const CoreEntry& entry, PushId push) {
  if (entry.kind == RecordKind::kPush && entry.staged) {
    process->staged[entry.lsn] = push;
  } else if (entry.kind == RecordKind::kPush) {
    if (staged_.contains(push))
      Violation(absl::StrCat("push ", push, " applied before its commit"));
    process->rows.push_back(push);
  } else if (entry.kind == RecordKind::kStepCommit) {
    const uint64_t step = entry.seq >> kStepShift;
    for (const Lsn lsn : process->core->StagedOf(step, commits_.at(step))) {
      process->rows.push_back(process->staged.at(lsn));
    }
  }
}

// Makes this server's disk the newest. False: the holder still serves.
bool ShardSimulation::TakeOver(int server) {
  if (data_holder_ != server) {
    Server& holder = servers_[data_holder_];
    if (holder.process != nullptr && holder.process->core != nullptr) {
      if (holder.process->core->primary()) return false;
      holder.process->holds_data = false;
    }
    const Epoch promised = servers_[server].disk.promised;
    servers_[server].disk = holder.disk;
    servers_[server].disk.promised = promised;
    data_holder_ = server;
    LoadDisk(&servers_[server]);
  } else if (!servers_[server].process->holds_data) {
    LoadDisk(&servers_[server]);
  }
  return violation_.empty();
}

void ShardSimulation::Learn(int server, const ShardRecord& record) {
  Server& s = servers_[server];
  if (s.process == nullptr) return;
  Process& p = *s.process;
  const Member self{static_cast<ServerId>(server) + 1, p.incarnation};
  const bool newest = p.core == nullptr || record.epoch > p.core->epoch();
  if (record.primary == self && newest && record.epoch >= record_.epoch && !TakeOver(server)) {
    return;
  }
  if (p.core == nullptr) return;
  p.core->LearnRecord(record);
  Drain(server);
}

void ShardSimulation::TickServer(int server) {
  At(Delay(40), ForLife(server, [this, server] { TickServer(server); }));
  Process& p = *servers_[server].process;
  if (p.core == nullptr) return;
  p.core->Tick();
  p.wants_activation = false;  // asks again
  if (p.core->read_only() && p.appending.empty() && time_ >= servers_[server].disk_full_until) {
    p.core->Resume();
  }
  Drain(server);
  if (Chance(0.3)) WriteBack(server);
}

void ShardSimulation::WriteBack(int server) {
  Server& s = servers_[server];
  Process& p = *s.process;
  if (!p.holds_data) return;
  ShardMeta meta = p.core->AppliedMeta();
  // The dumb twin: the table is a function of the log.
  SessionTable twin;
  std::map<SessionId, Session> folded;
  std::vector<StagedPush> staged;
  uint64_t committed = 0;
  for (const auto& [entry, push] : s.disk.log) {
    if (entry.lsn > meta.applied_lsn) break;
    if (entry.staged) staged.push_back({entry.lsn, entry.session, entry.seq, ""});
    if (entry.kind == RecordKind::kStepCommit) {
      committed = entry.seq >> kStepShift;
      std::erase_if(staged, [&](const StagedPush& s) { return s.seq >> kStepShift <= committed; });
      continue;
    }
    Session& session = folded[entry.session];
    session = {entry.incarnation, std::max(session.last_seq, entry.seq)};
  }
  for (const auto& [id, session] : folded) twin.Set(id, session);
  if (!(twin == meta.sessions)) Violation("sessions differ from the fold over the log");
  if (!(staged == meta.staged) || committed != meta.committed_step) {
    Violation("what is staged differs from the fold over the log");
  }
  for (StagedPush& push : meta.staged) push.payload = std::to_string(p.staged.at(push.lsn));
  s.disk.stored = {meta.Serialize(), p.rows};
}

void ShardSimulation::Receive(int server, Message message) {
  Server& s = servers_[server];
  if (s.process == nullptr || s.process->core == nullptr) return;
  if (message.commit_step != 0) {
    const PushToken token = ++next_token_;
    s.process->waiting[token] = message;
    s.process->core->Commit({message.epoch, message.commit_step, token});
    return Drain(server);
  }
  CorePush push;
  push.epoch = message.epoch;
  push.staged = clients_[message.client].trains;
  push.session = SessionOf(message.client);
  push.incarnation = message.incarnation;
  push.seq = message.seq;
  push.prev_seq = message.prev_seq;
  push.open = message.open;
  push.refusal = message.nan ? SegmentCode::kNanGradient : SegmentCode::kOk;
  push.token = ++next_token_;
  s.process->waiting[push.token] = message;
  s.process->core->Push(push);
  Drain(server);
}

void ShardSimulation::CheckServing(const Server& server) {
  const ShardCore& core = *server.process->core;
  if (!core.active()) return;
  if (server.disk.promised < core.epoch()) {
    Violation(absl::StrCat("epoch ", core.epoch(), " served, promised on disk is ",
                           server.disk.promised));
  }
  if (core.epoch() > active_epoch_max_) {
    active_epoch_max_ = core.epoch();
    const ShardMeta meta = core.AppliedMeta();
    for (const auto& [session, seq] : acknowledged_seq_) {
      const Session* found = meta.sessions.Find(session);
      if (found == nullptr || found->last_seq < seq) {
        Violation(absl::StrCat("session ", session, ": last_seq fell below ", seq));
      }
    }
  }
}

void ShardSimulation::Drain(int server) {
  Server& s = servers_[server];
  Process& p = *s.process;
  if (const std::string broken = p.core->BrokenInvariant(); !broken.empty()) {
    Violation(absl::StrCat("invariant: ", broken));
  }
  CoreReady ready;
  std::swap(ready, *p.core->ready());
  if (ready.promise != 0) {
    At(Delay(20), ForLife(server, [this, server, epoch = ready.promise] {
         Server& again = servers_[server];
         again.disk.promised = std::max(again.disk.promised, epoch);
         if (again.process->core == nullptr) return;
         again.process->core->PromiseDurable(epoch);
         Drain(server);
       }));
  }
  const bool wants = p.core->wants_activation();
  if (!std::exchange(p.wants_activation, wants) && wants) {
    Network([this, server, incarnation = p.incarnation, epoch = p.core->epoch()] {
      TryActivate(server, incarnation, epoch);
    });
  }
  p.appending.insert(p.appending.end(), ready.appends.begin(), ready.appends.end());
  p.applying.insert(p.applying.end(), ready.applies.begin(), ready.applies.end());
  for (const CoreReply& reply : ready.replies) Reply(server, reply);
  CheckServing(s);
  ScheduleAppend(server);
  ScheduleApply(server);
}

void ShardSimulation::ScheduleAppend(int server) {
  Process& p = *servers_[server].process;
  if (p.append_scheduled || p.appending.empty()) return;
  p.append_scheduled = true;
  At(Delay(6), ForLife(server, [this, server] {
       servers_[server].process->append_scheduled = false;
       FinishAppend(server);
     }));
}

void ShardSimulation::FinishAppend(int server) {
  Server& s = servers_[server];
  Process& p = *s.process;
  if (p.appending.empty()) return;
  if (!p.holds_data) {  // the disk was handed over: writes to this one do not count
    const CoreEntry entry = p.appending.front();
    p.appending.pop_front();
    p.core->Appended(entry.lsn, entry.ticket);
  } else if (time_ < s.disk_full_until || (!healed() && Chance(0.01))) {
    ++stats_.append_failures;
    const std::deque<CoreEntry> failed = std::exchange(p.appending, {});
    for (const CoreEntry& entry : failed) p.core->AppendFailed(entry.lsn, entry.ticket);
  } else {
    const CoreEntry entry = p.appending.front();
    p.appending.pop_front();
    s.disk.log.emplace_back(entry, p.waiting[entry.payload].push);
    p.core->Appended(entry.lsn, entry.ticket);
  }
  Drain(server);
}

void ShardSimulation::ScheduleApply(int server) {
  Process& p = *servers_[server].process;
  if (p.apply_scheduled || p.applying.empty()) return;
  p.apply_scheduled = true;
  At(Chance(0.7) ? 0 : Delay(20), ForLife(server, [this, server] {
       servers_[server].process->apply_scheduled = false;
       FinishApply(server);
     }));
}

void ShardSimulation::FinishApply(int server) {
  Process& p = *servers_[server].process;
  if (p.applying.empty()) return;
  const CoreEntry entry = p.applying.front();
  p.applying.pop_front();
  ApplyEntry(&p, entry, p.waiting[entry.payload].push);
  p.core->Applied(entry.lsn);
  Drain(server);
}

void ShardSimulation::Reply(int server, const CoreReply& reply) {
  Process& p = *servers_[server].process;
  const auto it = p.waiting.find(reply.token);
  if (it == p.waiting.end()) return Violation("a push was answered twice");
  const Message message = it->second;
  if (reply.code == SegmentCode::kOk && reply.epoch < active_epoch_max_) {
    Violation(absl::StrCat("acknowledged in epoch ", reply.epoch, " after epoch ",
                           active_epoch_max_, " was active"));
  }
  Network([this, message, reply] { OnReply(message.client, message.incarnation, message, reply); });
}

}  // namespace hotbed
