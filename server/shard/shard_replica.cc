// A shard and its other copies: records out, records in, who is read.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/log.h"
#include "server/shard/push_state.h"
#include "server/shard/segment_check.h"
#include "server/shard/shard.h"

namespace hotbed {
namespace {

constexpr uint64_t kAppendBytesMax = 1ull << 20;  // records of one message, or one record

}  // namespace

// A message of another copy on its way to the strand, its records checked.
struct Shard::Incoming {
  Member from;
  ReplicaMessage message;
  std::vector<CoreEntry> entries;
  std::string error;  // of the record behind the last of `entries`; empty: all are good
};

// --- out

void Shard::KeepRecord(const CoreEntry& entry, PushState* state) {
  if (state->record.owner == nullptr) state->EncodeRecord();
  if (tail_.empty()) tail_.BeginAbove(entry.lsn - 1);
  tail_.Add(entry.epoch, state->record);
}

// What is on its way already was not encoded while nobody else wanted it.
void Shard::EncodeUnapplied() {
  for (const Unapplied& entry : unapplied_) {
    if (entry.state != nullptr && entry.state->record.owner == nullptr) entry.state->EncodeRecord();
  }
}

void Shard::BeginKeeping() {
  keeps_records_ = true;
  hash_.Start(core_.applied_lsn());
  EncodeUnapplied();
  const bool whole = std::all_of(unapplied_.begin(), unapplied_.end(),
                                 [](const Unapplied& entry) { return entry.state != nullptr; });
  tail_.BeginAbove(whole || unapplied_.empty() ? core_.applied_lsn() : unapplied_.back().lsn);
  if (!whole) return;  // the others get all rows
  for (const Unapplied& entry : unapplied_) {
    tail_.Add(entry.state->append.header.epoch, entry.state->record);
  }
}

void Shard::SendNow(const CoreSend& send) {
  if (options_.outlet == nullptr) return;
  if (send.kind == CoreSend::Kind::kSnapshot) {
    return options_.outlet->StartCopy(options_.id, send.to);
  }
  if (send.kind == CoreSend::Kind::kAppend) return SendAppends(send);
  ReplicaMessage message;
  message.kind = ReplicaMessage::Kind::kAppendReply;
  message.shard = options_.id;
  message.epoch = send.reply.epoch;
  message.to = send.to;
  message.lsn = send.reply.lsn;
  message.prev_lsn = send.reply.prev_lsn;
  message.ok = send.reply.ok;
  message.needs_snapshot = send.reply.needs_snapshot;
  message.applied = send.reply.applied;
  options_.outlet->Send(std::move(message));
}

// In messages of a bounded size, each following the one before.
void Shard::SendAppends(const CoreSend& send) {
  Lsn prev_lsn = send.prev_lsn;
  Epoch prev_epoch = send.prev_epoch;
  do {
    ReplicaMessage message;
    message.kind = ReplicaMessage::Kind::kAppend;
    message.shard = options_.id;
    message.epoch = send.epoch;
    message.to = send.to;
    message.prev_epoch = prev_epoch;
    message.prev_lsn = prev_lsn;
    message.commit = send.commit;
    uint64_t bytes = 0;
    while (prev_lsn < send.last_lsn) {
      if (!tail_.Has(prev_lsn + 1)) {
        HOTBED_LOG_EVERY_S(Warning, 10)
            << Name() << ": record " << prev_lsn + 1 << " for server " << send.to.server
            << " is not in memory any more: it gets all rows";
        core_.DropRetained(std::min(prev_lsn + 1, core_.commit_lsn()));
        return;
      }
      const SharedBytes& record = tail_.record(prev_lsn + 1);
      if (bytes > 0 && bytes + record.bytes.size() > kAppendBytesMax) break;
      bytes += record.bytes.size();
      prev_epoch = tail_.epoch(++prev_lsn);
      message.records.push_back(record);
    }
    message.rolling_hash = hash_unseen_in_ == core_.epoch() ? 0 : hash_.value();
    message.hash_lsn = hash_.lsn();
    options_.replica_budget->records_sent.fetch_add(message.records.size(),
                                                    std::memory_order_relaxed);
    options_.outlet->Send(std::move(message));
  } while (prev_lsn < send.last_lsn);
}

// --- in

std::string Shard::CheckRecord(const RecordHeader& header, const PushState& state) const {
  if (!(header.shard == options_.id)) {
    return absl::StrCat("it is of ", header.shard.ToString());
  }
  if (header.kind != RecordKind::kPush) return "";
  if (header.id_count > options_.ids_max) {
    return absl::StrCat(header.id_count, " ids, the limit here is ", options_.ids_max,
                        "; give this server the --pull-ids-max of the others");
  }
  if (header.id_count > 0 && header.dim != dim_) {
    return absl::StrCat("rows of dim ", header.dim, ", the shard has ", dim_);
  }
  const uint32_t bad =
      FirstIdOutside(state.ids, header.id_count, options_.range, options_.table.hashed);
  return bad == header.id_count
             ? ""
             : absl::StrCat("id ", state.ids[bad], " is outside of the shard's range");
}

// Checksums and contents are looked at here, off the strand.
void Shard::OnReplicaMessage(const Member& from, ReplicaMessage message) {
  auto incoming = std::make_unique<Incoming>();
  incoming->from = from;
  for (SharedBytes& record : message.records) {
    PushState* const state = PushState::Take();
    state->shard = this;
    state->work = nullptr;
    state->segment = nullptr;
    std::string error = state->TakeRecord(record) ? "" : "it fails its checksum";
    if (error.empty()) error = CheckRecord(state->append.header, *state);
    const RecordHeader& header = state->append.header;
    const Lsn lsn = message.prev_lsn + incoming->entries.size() + 1;
    if (error.empty() && header.lsn != lsn) error = absl::StrCat("it has LSN ", header.lsn);
    if (!error.empty()) {
      state->Give();
      incoming->error = absl::StrCat(Name(), ": record ", lsn, " from server ", from.server,
                                     " is not taken: ", error);
      break;
    }
    CoreEntry& entry = incoming->entries.emplace_back();
    entry.kind = header.kind;
    entry.open = header.open;
    entry.staged = header.staged;
    entry.epoch = header.epoch;
    entry.lsn = header.lsn;
    entry.session = header.session;
    entry.incarnation = header.incarnation;
    entry.seq = header.seq;
    entry.prev_seq = header.prev_seq;
    entry.payload = reinterpret_cast<PushToken>(state);
  }
  incoming->message = std::move(message);
  in_flight_.fetch_add(1, std::memory_order_relaxed);
  strand_.Run([this, incoming = std::move(incoming)] {
    TakeIncoming(incoming.get());
    in_flight_.fetch_sub(1, std::memory_order_release);
  });
}

void Shard::TakeIncoming(Incoming* incoming) {
  const ReplicaMessage& message = incoming->message;
  const bool takes = !closed_ && error_state_.ok();
  if (takes && message.kind == ReplicaMessage::Kind::kAppend) return TakeAppend(incoming);
  for (const CoreEntry& entry : incoming->entries) {
    reinterpret_cast<PushState*>(entry.payload)->Give();
  }
  if (!closed_ && !error_state_.ok()) return AskForCopy(incoming->from, message);
  if (!takes || message.kind != ReplicaMessage::Kind::kAppendReply) return;
  CoreAppendReply reply;
  reply.epoch = message.epoch;
  reply.ok = message.ok;
  reply.needs_snapshot = message.needs_snapshot;
  reply.lsn = message.lsn;
  reply.prev_lsn = message.prev_lsn;
  reply.applied = message.applied;
  core_.OnAppendReply(incoming->from, reply);
  Drain();
}

void Shard::TakeAppend(Incoming* incoming) {
  const ReplicaMessage& message = incoming->message;
  if (paused_) {  // its rows stand still for a moment; the primary asks again
    for (const CoreEntry& entry : incoming->entries) {
      reinterpret_cast<PushState*>(entry.payload)->Give();
    }
    return;
  }
  if (!keeps_records_) BeginKeeping();
  if (incoming->from == core_.record().primary && message.epoch == core_.epoch()) {
    heard_ns_ = options_.clock->NowNs();
  }
  CoreAppend append;
  append.epoch = message.epoch;
  append.prev_epoch = message.prev_epoch;
  append.prev_lsn = message.prev_lsn;
  append.commit = message.commit;
  append.entries = incoming->entries;
  core_.OnAppend(incoming->from, append);
  // What it holds already, or cannot take, does not come back.
  const std::vector<CoreEntry>& taken = core_.ready()->appends;
  const Lsn first = taken.empty() ? ~Lsn{0} : taken.front().lsn;
  const Lsn last = taken.empty() ? 0 : taken.back().lsn;
  for (const CoreEntry& entry : incoming->entries) {
    if (entry.lsn < first || entry.lsn > last) {
      reinterpret_cast<PushState*>(entry.payload)->Give();
    }
  }
  options_.replica_budget->records_taken.fetch_add(taken.size(), std::memory_order_relaxed);
  Drain();
  CompareHash(message);
  if (incoming->error.empty()) return;
  RefuseRecord(incoming->from, message, incoming->entries.size(), incoming->error);
}

// --- are the copies equal?

void Shard::HashApplied(const CoreEntry& entry, const PushState* state) {
  if (state == nullptr || state->record.owner == nullptr || entry.lsn != hash_.lsn() + 1) {
    hash_unseen_in_ = core_.epoch();
    return hash_.Start(entry.lsn);
  }
  const bool commits = entry.kind == RecordKind::kStepCommit;
  const uint64_t* ids = nullptr;
  uint32_t rows = 0;
  if (commits) {
    ids = commit_rows_.ids.data();
    rows = static_cast<uint32_t>(commit_rows_.ids.size());
  } else if (entry.kind == RecordKind::kPush && !entry.staged) {
    ids = state->ids;
    rows = state->count;
  }
  hash_row_.clear();
  if (rows > 0) {
    const uint64_t id = ids[RollingHash::SampledRow(entry.lsn, rows)];
    // Rows that came with a snapshot may be ahead of their log.
    if (guard_lsn_ != 0 || !store_->PeekRow(id, &hash_row_)) {
      hash_unseen_in_ = core_.epoch();
      return hash_.Skip();
    }
  }
  OnVerdict(hash_.Add(state->record.bytes, hash_row_), entry.lsn);
}

void Shard::CompareHash(const ReplicaMessage& message) {
  if (message.rolling_hash == 0 || message.epoch != core_.promised() || !error_state_.ok()) return;
  if (message.epoch != hash_epoch_) {
    hash_epoch_ = message.epoch;
    hash_.ForgetPrimary();
  }
  OnVerdict(hash_.Compare(message.hash_lsn, message.rolling_hash), message.hash_lsn);
}

// Not to be repaired here: which of the two is right nobody can tell, but one of them acknowledges.
void Shard::OnVerdict(RollingHash::Verdict verdict, Lsn lsn) {
  if (verdict != RollingHash::Verdict::kDiffers || !error_state_.ok()) return;
  options_.replica_budget->replicas_diverged.fetch_add(1, std::memory_order_relaxed);
  FailEverything(
      absl::DataLossError(absl::StrCat("this copy differs from its primary's at LSN ", lsn,
                                       " (rolling hash); a new copy of all rows takes its place")));
  HOTBED_LOG(Error) << error();
  options_.outlet->HasNews();
}

// What is here is refused. Where nothing depends on it, all rows may come anew.
void Shard::AskForCopy(const Member& from, const ReplicaMessage& message) {
  const bool asked =
      message.kind == ReplicaMessage::Kind::kAppend && from == core_.record().primary;
  if (!asked || !MayBeReplaced(message.epoch)) return;
  CoreSend send;
  send.kind = CoreSend::Kind::kAppendReply;
  send.to = from;
  send.reply.epoch = message.epoch;
  send.reply.needs_snapshot = true;
  send.reply.prev_lsn = message.prev_lsn;
  SendNow(send);
}

void Shard::OnPeerLost(const Member& peer) {
  in_flight_.fetch_add(1, std::memory_order_relaxed);
  strand_.Run([this, peer] {
    if (!closed_ && error_state_.ok()) {
      core_.OnPeerLost(peer);
      Drain();
    }
    in_flight_.fetch_sub(1, std::memory_order_release);
  });
}

bool Shard::WantsCopy(const Member& to) const {
  absl::MutexLock lock(&mu_);
  return std::find(others_.begin(), others_.end(), to) != others_.end();
}

Shard::OthersHeard Shard::Heard() const {
  absl::MutexLock lock(&mu_);
  return heard_;
}

void Shard::PublishReplicaState(bool served, bool wants_activation_now) {
  constexpr auto kRelaxed = std::memory_order_relaxed;
  commit_lsn_.store(core_.commit_lsn(), kRelaxed);
  tail_bytes_.store(tail_.bytes(), kRelaxed);
  const bool followed = core_.has_followers();
  ticks_often_.store(followed || (core_.primary() && !core_.active()), kRelaxed);
  bool news = wants_activation_now;
  if (followed || heard_told_ || backups_.load(kRelaxed) != 0) {
    backups_.store(core_.backup_count(), kRelaxed);
    OthersHeard heard;
    heard.epoch = core_.epoch();
    if (served && !core_.record().learners.empty()) heard.joined = core_.JoinReady();
    heard.silent = core_.SilentMembers();
    heard_told_ = !heard.joined.empty() || !heard.silent.empty();
    absl::MutexLock lock(&mu_);
    const bool known = heard.epoch == heard_.epoch && heard.joined == heard_.joined;
    news = news || (!heard.joined.empty() && !known);
    heard_ = std::move(heard);
  }
  if (news) options_.outlet->HasNews();
}

}  // namespace hotbed
