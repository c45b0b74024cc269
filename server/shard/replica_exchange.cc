#include "server/shard/replica_exchange.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/log.h"
#include "server/shard/commit_pipeline.h"
#include "server/shard/request/segment_check.h"

namespace hotbed {
namespace {

constexpr uint64_t kAppendBytesMax = 1ull << 20;  // records of one message, or one record
// A record that was damaged on its way arrives whole the next time. A record that is damaged in the
// primary's memory, or above a limit of this server, never does, and pushes wait for it meanwhile.
constexpr int kRecordTriesMax = 10;

void GiveStates(const std::vector<CoreEntry>& entries) {
  for (const CoreEntry& entry : entries) reinterpret_cast<PushState*>(entry.payload)->Give();
}

}  // namespace

// A message from another replica on its way to the strand, with its records checked.
struct ReplicaExchange::Incoming {
  InFlight::Token running;
  Member from;
  ReplicaMessage message;
  std::vector<CoreEntry> entries;
  std::string error;  // of the record after the last of `entries`; empty: all are good
};

// --- out

void ReplicaExchange::Send(const CoreSend& send) {
  ReplicaOutlet* const outlet = shard_.options.outlet;
  if (outlet == nullptr) return;
  if (send.kind == CoreSend::Kind::kSnapshot)
    return outlet->StartSnapshot(shard_.options.id, send.to);
  if (send.kind == CoreSend::Kind::kAppend) return SendAppends(send);
  ReplicaMessage message;
  message.kind = ReplicaMessage::Kind::kAppendReply;
  message.shard = shard_.options.id;
  message.epoch = send.reply.epoch;
  message.to = send.to;
  message.lsn = send.reply.lsn;
  message.prev_lsn = send.reply.prev_lsn;
  message.ok = send.reply.ok;
  message.needs_snapshot = send.reply.needs_snapshot;
  message.applied = send.reply.applied;
  message.last = send.reply.last;
  outlet->Send(std::move(message));
}

// In messages of a bounded size, each following the one before.
void ReplicaExchange::SendAppends(const CoreSend& send) {
  Lsn prev_lsn = send.prev_lsn;
  Epoch prev_epoch = send.prev_epoch;
  do {
    ReplicaMessage message;
    message.kind = ReplicaMessage::Kind::kAppend;
    message.shard = shard_.options.id;
    message.epoch = send.epoch;
    message.to = send.to;
    message.prev_epoch = prev_epoch;
    message.prev_lsn = prev_lsn;
    message.commit = send.commit;
    uint64_t bytes = 0;
    while (prev_lsn < send.last_lsn) {
      if (!tail_.Has(prev_lsn + 1)) {
        HOTBED_LOG_EVERY_S(Warning, 10)
            << shard_.Name() << ": record " << prev_lsn + 1 << " for server " << send.to.server
            << " is not in memory any more: it gets all rows";
        shard_.core.DropRetained(std::min(prev_lsn + 1, shard_.core.commit_lsn()));
        return;
      }
      const SharedBytes& record = tail_.record(prev_lsn + 1);
      if (bytes > 0 && bytes + record.bytes.size() > kAppendBytesMax) break;
      bytes += record.bytes.size();
      prev_epoch = tail_.epoch(++prev_lsn);
      message.records.push_back(record);
    }
    comparison_.FillIn(&message);
    shard_.options.replica_budget->records_sent.fetch_add(message.records.size(),
                                                          std::memory_order_relaxed);
    shard_.options.outlet->Send(std::move(message));
  } while (prev_lsn < send.last_lsn);
}

// --- in

std::string ReplicaExchange::CheckRecord(const RecordHeader& header, const PushState& state) const {
  const ShardOptions& options = shard_.options;
  if (!(header.shard == options.id)) return absl::StrCat("it is of ", header.shard.ToString());
  if (!ChangesRows(header.kind)) return "";
  if (header.id_count > options.ids_max) {
    return absl::StrCat(header.id_count, " ids, the limit here is ", options.ids_max,
                        "; give this server the --pull-ids-max of the others");
  }
  const uint32_t dim = header.kind == RecordKind::kDelete ? 0 : shard_.dim;
  if (header.id_count > 0 && header.dim != dim) {
    return absl::StrCat("rows of dim ", header.dim, ", the shard has ", shard_.dim);
  }
  const uint32_t bad =
      FirstIdOutside(state.ids, header.id_count, options.range, options.table->hashed);
  return bad == header.id_count
             ? ""
             : absl::StrCat("id ", state.ids[bad], " is outside of the shard's range");
}

void ReplicaExchange::OnMessage(const Member& from, ReplicaMessage message) {
  auto incoming = std::make_unique<Incoming>();
  incoming->from = from;
  for (SharedBytes& record : message.records) {
    PushState* const state = PushState::Take();
    std::string error = state->TakeRecord(record) ? "" : "it fails its checksum";
    if (error.empty()) error = CheckRecord(state->append.header, *state);
    const RecordHeader& header = state->append.header;
    const Lsn lsn = message.prev_lsn + incoming->entries.size() + 1;
    if (error.empty() && header.lsn != lsn) error = absl::StrCat("it has LSN ", header.lsn);
    if (!error.empty()) {
      state->Give();
      incoming->error = absl::StrCat(shard_.Name(), ": record ", lsn, " from server ", from.server,
                                     " is not taken: ", error);
      break;
    }
    incoming->entries.push_back({header, reinterpret_cast<PushToken>(state)});
  }
  incoming->message = std::move(message);
  incoming->running = shard_.in_flight.Begin();
  shard_.strand.Run([this, incoming = std::move(incoming)] { Take(incoming.get()); });
}

void ReplicaExchange::Take(Incoming* incoming) {
  const ReplicaMessage& message = incoming->message;
  const bool takes = shard_.serving.serves();
  if (takes && message.kind == ReplicaMessage::Kind::kAppend) return TakeAppend(incoming);
  GiveStates(incoming->entries);
  if (!takes) {
    if (!shard_.serving.closed()) AskForSnapshot(incoming->from, message);
    return;
  }
  if (message.kind != ReplicaMessage::Kind::kAppendReply) return;
  CoreAppendReply reply;
  reply.epoch = message.epoch;
  reply.ok = message.ok;
  reply.needs_snapshot = message.needs_snapshot;
  reply.lsn = message.lsn;
  reply.prev_lsn = message.prev_lsn;
  reply.applied = message.applied;
  reply.last = message.last;
  shard_.core.OnAppendReply(incoming->from, reply);
  pipeline_.Drain();
}

void ReplicaExchange::TakeAppend(Incoming* incoming) {
  const ReplicaMessage& message = incoming->message;
  // The rows stand still for a moment; the primary asks again.
  if (shard_.serving.paused()) return GiveStates(incoming->entries);
  if (!tail_.keeps()) pipeline_.BeginKeepingRecords();
  ShardCore& core = shard_.core;
  if (incoming->from == core.record().primary && message.epoch == core.epoch()) {
    primary_heard_ns_ = shard_.options.clock->NowNs();
    if (GaveUpRows(incoming->entries)) return;
  }
  CoreAppend append;
  append.epoch = message.epoch;
  append.prev_epoch = message.prev_epoch;
  append.prev_lsn = message.prev_lsn;
  append.commit = message.commit;
  append.entries = incoming->entries;
  core.OnAppend(incoming->from, append);
  // Entries that the core holds already, or cannot take, are not in its answer.
  const std::vector<CoreEntry>& taken = core.ready()->appends;
  const Lsn first = taken.empty() ? ~Lsn{0} : taken.front().lsn;
  const Lsn last = taken.empty() ? 0 : taken.back().lsn;
  for (const CoreEntry& entry : incoming->entries) {
    if (entry.lsn < first || entry.lsn > last) {
      reinterpret_cast<PushState*>(entry.payload)->Give();
    }
  }
  shard_.options.replica_budget->records_taken.fetch_add(taken.size(), std::memory_order_relaxed);
  pipeline_.Drain();
  comparison_.Compare(message);
  // A message of an epoch that is over has its answer. If the shard was cut since, its records may
  // have rows that are not the shard's any more.
  if (incoming->error.empty() || message.epoch < core.epoch()) return;
  RefuseRecord(incoming->from, message, incoming->entries.size(), incoming->error);
}

// The rows of a replica may be ahead of its log, for example when a snapshot transfer was cut
// short. If all who had that part of the log have lost it since, the LSNs belong to other entries
// now.
bool ReplicaExchange::GaveUpRows(const std::vector<CoreEntry>& entries) {
  const auto another = std::find_if(entries.begin(), entries.end(), [this](const CoreEntry& entry) {
    return replay_.RowsHoldAnother(entry);
  });
  if (another == entries.end()) return false;
  shard_.serving.GiveUpReplica(absl::DataLossError(absl::StrCat(
      "its rows hold an entry that was lost, in place of the primary's at LSN ", another->lsn,
      " of epoch ", another->epoch, "; a new replica with all rows takes its place")));
  GiveStates(entries);
  pipeline_.Drain();
  return true;
}

// Asks for the record again at once, a single time. After that the primary asks by itself, some
// ticks after it heard nothing: a record that is refused repeatedly is not sent without end.
void ReplicaExchange::RefuseRecord(const Member& from, const ReplicaMessage& append, size_t taken,
                                   const std::string& error) {
  HOTBED_LOG_EVERY_S(Error, 1) << error;
  shard_.options.replica_budget->messages_refused.fetch_add(1, std::memory_order_relaxed);
  const Lsn lsn = append.prev_lsn + taken + 1;
  const bool next = from == shard_.core.record().primary && append.epoch == shard_.core.epoch() &&
                    lsn == shard_.core.last_lsn() + 1;
  if (next && shard_.serving.error().ok()) {
    untaken_times_ = lsn == untaken_lsn_ ? untaken_times_ + 1 : 1;
    untaken_lsn_ = lsn;
    if (untaken_times_ >= kRecordTriesMax) {
      shard_.serving.GiveUpReplica(absl::DataLossError(absl::StrCat(
          error, " (", untaken_times_, " times); a new replica with all rows takes its place")));
      return pipeline_.Drain();
    }
    if (untaken_times_ > 1) return;
  }
  CoreSend again;
  again.kind = CoreSend::Kind::kAppendReply;
  again.to = from;
  again.reply.epoch = append.epoch;
  again.reply.lsn = lsn - 1;
  again.reply.prev_lsn = CoreAppendReply::kUnasked;
  Send(again);
}

void ReplicaExchange::AskForSnapshot(const Member& from, const ReplicaMessage& message) {
  const bool asked =
      message.kind == ReplicaMessage::Kind::kAppend && from == shard_.core.record().primary;
  if (!asked || !shard_.serving.MayBeReplaced(message.epoch)) return;
  CoreSend send;
  send.kind = CoreSend::Kind::kAppendReply;
  send.to = from;
  send.reply.epoch = message.epoch;
  send.reply.needs_snapshot = true;
  send.reply.prev_lsn = message.prev_lsn;
  Send(send);
}

void ReplicaExchange::OnPeerLost(const Member& peer) {
  shard_.Post([this, peer] {
    if (!shard_.serving.serves()) return;
    shard_.core.OnPeerLost(peer);
    pipeline_.Drain();
  });
}

// --- what others may know

void ReplicaExchange::BeginEpoch(Epoch epoch) {
  if (epoch > shard_.core.epoch()) primary_heard_ns_ = 0;
}

void ReplicaExchange::SetRecord(const SharedValue<ShardRecord>& record) {
  absl::MutexLock lock(&mu_);
  record_ = record;
}

bool ReplicaExchange::Wants(const Member& to) const {
  absl::MutexLock lock(&mu_);
  return record_->Holds(to);
}

ReplicasHeard ReplicaExchange::Heard() const {
  absl::MutexLock lock(&mu_);
  return heard_ == nullptr ? ReplicasHeard() : *heard_;
}

void ReplicaExchange::Publish(bool served, bool news) {
  const ShardCore& core = shard_.core;
  if (core.has_followers() || heard_any_ || shard_.gauges.backups() != 0) {
    shard_.gauges.SetBackups(core.backup_count());
    ReplicasHeard heard;
    heard.epoch = core.epoch();
    if (served && !core.record().learners.empty()) heard.joined = core.JoinReady();
    heard.silent = core.SilentMembers();
    heard_any_ = !heard.joined.empty() || !heard.silent.empty();
    absl::MutexLock lock(&mu_);
    const bool known =
        heard_ != nullptr && heard.epoch == heard_->epoch && heard.joined == heard_->joined;
    news = news || (!heard.joined.empty() && !known);
    heard_ = std::make_unique<const ReplicasHeard>(std::move(heard));
  }
  if (news) shard_.options.outlet->HasNews();
}

}  // namespace hotbed
