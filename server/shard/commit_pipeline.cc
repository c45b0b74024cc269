// What a shard does for its core: log, rows, replies.
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/shard/push_state.h"
#include "server/shard/segment_result.h"
#include "server/shard/shard.h"
#include "server/shard_log/planted_bugs.h"

namespace hotbed {

// Does what the core wants done, until it wants nothing. Completions that arrive meanwhile queue on
// the strand.
void Shard::Drain() {
  CoreReady& ready = *core_.ready();
  bool trimmed = !keeps_records_;
  for (;;) {
    if (ready.promise != 0) {
      promise_wanted_ = std::exchange(ready.promise, 0);
      if (options_.outlet != nullptr) options_.outlet->PromiseWanted(options_.id, promise_wanted_);
    }
    if (std::exchange(ready.stepped_down, false)) EncodeUnapplied();
    if (ready.cut_from != 0) CutFrom(std::exchange(ready.cut_from, 0));
    if (!ready.appends.empty()) {
      append_scratch_.swap(ready.appends);
      for (const CoreEntry& entry : append_scratch_) StartAppend(entry);
      append_scratch_.clear();
    } else if (!ready.sends.empty()) {
      send_scratch_.swap(ready.sends);
      for (const CoreSend& send : send_scratch_) SendNow(send);
      send_scratch_.clear();
    } else if (!ready.applies.empty()) {
      apply_queue_.insert(apply_queue_.end(), ready.applies.begin(), ready.applies.end());
      ready.applies.clear();
    } else if (!applying_ && !apply_blocked_ && !apply_queue_.empty()) {
      ApplyNext();
    } else if (!ready.replies.empty()) {
      reply_scratch_.swap(ready.replies);
      for (const CoreReply& reply : reply_scratch_) DeliverReply(reply);
      reply_scratch_.clear();
    } else if (!std::exchange(trimmed, true)) {
      TrimTail();  // whom it leaves without entries is asked anew, at once
    } else {
      break;
    }
  }
  PublishState();
}

void Shard::StartAppend(const CoreEntry& entry) {
  in_flight_.fetch_add(1, std::memory_order_relaxed);  // until applied or cut, and out of the log
  PushState* state = reinterpret_cast<PushState*>(entry.payload);
  if (state == nullptr && (logged() || keeps_records_)) {
    state = PushState::Take();
    state->shard = this;
    state->work = nullptr;
    state->segment = nullptr;
  }
  if (state != nullptr) {
    state->in_core = true;
    state->ticket = entry.ticket;
    if (state->record.owner == nullptr) FillRecord(entry, state);
    if (keeps_records_) KeepRecord(entry, state);
  }
  unapplied_.push_back({entry.lsn, state});
  if (entry.staged) staged_.Add(state->append.header, state->ids, state->gradients);
  if (!logged()) return core_.Appended(entry.lsn, entry.ticket);
  ++appends_in_flight_;
  state->in_log = true;
  state->append.ids = state->ids;
  state->append.gradients = state->gradients;
  state->append.encoded = state->record.bytes;
  state->append.done = [state](absl::Status status) {
    state->append_status = std::move(status);
    state->shard->strand_.Run([state] { state->shard->AfterAppend(state); });
  };
  options_.log->Append(&state->append);
}

void Shard::FillRecord(const CoreEntry& entry, PushState* state) {
  const bool commits = entry.kind == RecordKind::kStepCommit;
  if (entry.kind != RecordKind::kPush && !commits) state->count = 0;
  RecordHeader& header = state->append.header;
  header = RecordHeader();
  header.kind = entry.kind;
  header.open = entry.open;
  header.staged = entry.staged;
  header.shard = options_.id;
  header.epoch = entry.epoch;
  header.lsn = entry.lsn;
  header.session = entry.session;
  header.incarnation = entry.incarnation;
  header.seq = entry.seq;
  header.prev_seq = entry.prev_seq;
  header.id_count = state->count;
  header.dim = commits ? 0 : dim_;
  if (state->work == nullptr) return;
  header.scalars = state->scalars;
  if (commits) return;
  header.last_part = state->segment->last_part;
  header.gradient_type = state->work->gradient_type;
  header.assign = state->segment->assign;
}

void Shard::AfterAppend(PushState* state) {
  --appends_in_flight_;
  state->in_log = false;
  if (!state->in_core) in_flight_.fetch_sub(1, std::memory_order_release);
  const absl::Status status = std::move(state->append_status);
  if (state->cut) {
    // Another entry may have its LSN by now.
    DeliverIfFree(state);
  } else if (status.ok()) {
    core_.Appended(state->append.header.lsn, state->ticket);
    DeliverIfFree(state);
  } else {
    // A poisoned log does not know whether a restart will find the record: then the answer is
    // "unknown", not "failed".
    const bool unknown = status.code() == absl::StatusCode::kDataLoss;
    const Lsn lsn = state->append.header.lsn;
    const uint64_t ticket = state->ticket;
    CutFrom(lsn);  // this state with the others
    core_.AppendFailed(lsn, ticket, unknown ? SegmentCode::kUnavailable : SegmentCode::kReadOnly);
  }
  if (!status.ok()) MaybeResume();
  Drain();
}

void Shard::CutFrom(Lsn lsn) {
  staged_.CutFrom(lsn);
  tail_.CutFrom(lsn);
  while (!unapplied_.empty() && unapplied_.back().lsn >= lsn) {
    PushState* const state = unapplied_.back().state;
    unapplied_.pop_back();
    if (state != nullptr) state->cut = true;
    LeaveCore(state);
  }
}

void Shard::LeaveCore(PushState* state) {
  if (state == nullptr || !state->in_log) in_flight_.fetch_sub(1, std::memory_order_release);
  if (state == nullptr) return;
  state->in_core = false;
  DeliverIfFree(state);
}

void Shard::ApplyNext() {
  const CoreEntry& entry = apply_queue_.front();
  PushState* const state = unapplied_.front().state;
  if (!error_state_.ok()) return AfterApply(error_state_);
  auto after = [this](absl::Status status) {
    AfterApply(status);
    Drain();
  };
  if (entry.kind == RecordKind::kStepCommit) {
    const uint64_t step = entry.seq >> kStepShift;
    const absl::Span<const SessionId> sessions(state->ids, state->count);
    applying_ = true;
    RecordHeader header;
    header.lsn = entry.lsn;
    header.scalars = state->scalars;
    if (ApplyCommit(header, core_.StagedOf(step, sessions), after)) AfterApply(absl::OkStatus());
    return;
  }
  if (entry.kind != RecordKind::kPush || entry.staged || state->count == 0) {
    return AfterApply(absl::OkStatus());
  }
  const RecordHeader& header = state->append.header;
  RowUpdates updates;
  updates.ids = state->ids;
  updates.count = state->count;
  updates.gradient_type = header.gradient_type;
  updates.gradients = state->gradients;
  updates.scalars = state->scalars;
  updates.assign = header.assign;
  updates.lsn = entry.lsn;
  applying_ = true;
  if (store_->Apply(updates, after)) AfterApply(absl::OkStatus());
}

void Shard::AfterApply(const absl::Status& status) {
  applying_ = false;
  if (!status.ok() && error_state_.ok()) {
    if (!absl::IsDataLoss(status) && !IsDeviceLost(status)) {
      // In the log, and not in the rows: it will be, when the disk takes rows again. Until then
      // nobody is answered.
      apply_blocked_ = true;
      absl::MutexLock lock(&mu_);
      error_ = absl::StrCat(Name(), ": waits to apply a push: ", status.message());
      return;
    }
    FailEverything(status);
  }
  const CoreEntry entry = apply_queue_.front();
  apply_queue_.pop_front();
  PushState* const state = unapplied_.front().state;
  unapplied_.pop_front();
  if (error_state_.ok()) {
    core_.Applied(entry.lsn);
    store_->SetAppliedLsn(PlantedBug("spill_ahead_of_log") ? entry.lsn + 1000 : entry.lsn);
    if (keeps_records_) HashApplied(entry, state);
    if (entry.kind == RecordKind::kStepCommit) {
      staged_.DropThrough(entry.seq >> kStepShift, entry.lsn);
      commit_rows_ = SummedRows();
    } else if (state != nullptr) {
      rows_pushed_.store(rows_pushed_.load(std::memory_order_relaxed) + state->count,
                         std::memory_order_relaxed);
    }
    if (guard_lsn_ != 0 && entry.lsn >= guard_lsn_) EndGuard();
    RunParkedPulls();
  }
  LeaveCore(state);
}

void Shard::DeliverReply(const CoreReply& reply) {
  PushState* state = reinterpret_cast<PushState*>(reply.token);
  state->reply = reply;
  state->replied = true;
  DeliverIfFree(state);
}

void Shard::DeliverIfFree(PushState* state) {
  const bool busy = state->in_log || state->in_core;
  if (state->work == nullptr) {
    if (!busy) state->Give();
    return;
  }
  // Log and rows read the sender's message, unless there is a record of its own: then the sender
  // need not wait until it is known what becomes of its push. What is being applied reads what it
  // began with, which was the message if the record was made meanwhile.
  const bool being_applied = applying_ && !unapplied_.empty() && unapplied_.front().state == state;
  const bool reads_message = state->record.owner == nullptr || being_applied ||
                             (state->in_log && state->append.encoded.empty());
  if (!state->replied || (busy && reads_message)) return;
  PushWork* work = state->work;
  PushSegment* segment = state->segment;
  const CoreReply& reply = state->reply;
  segment->result.epoch = reply.epoch;
  segment->result.lsn = reply.lsn;
  segment->result.last_seq = reply.last_seq;
  if (reply.code != SegmentCode::kOk) {
    std::string detail = std::move(state->detail);
    if (detail.empty() || (reply.code != state->refusal && state->refusal != SegmentCode::kOk)) {
      detail = Explain(reply.code, segment->epoch, segment->seq, segment->prev_seq, reply.last_seq);
    }
    RefuseSegment(segment, reply.code, std::move(detail));
  }
  if (busy) {
    state->PointIntoRecord();
    state->work = nullptr;
    state->segment = nullptr;
  } else {
    state->Give();
  }
  FinishSegment(work);
}

}  // namespace hotbed
