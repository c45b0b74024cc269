#include "server/shard/commit_pipeline.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "server/protocol/core_mutant.h"
#include "server/shard/record_mapping.h"
#include "server/shard/replica_exchange.h"
#include "server/shard/request/segment_result.h"
#include "server/shard/request_checks.h"
#include "server/shard_log/planted_bugs.h"

namespace hotbed {

void CommitPipeline::Drain() {
  CoreReady& ready = *shard_.core.ready();
  bool trimmed = !parts_.tail->keeps();
  for (;;) {
    if (ready.promise != 0) {
      promise_wanted_ = std::exchange(ready.promise, 0);
      ReplicaOutlet* const outlet = shard_.options.outlet;
      if (outlet != nullptr) outlet->PromiseWanted(shard_.options.id, promise_wanted_);
    }
    if (std::exchange(ready.stepped_down, false)) EncodeUnapplied();
    if (ready.cut_from != 0) CutFrom(std::exchange(ready.cut_from, 0));
    if (!ready.appends.empty()) {
      append_scratch_.swap(ready.appends);
      for (const CoreEntry& entry : append_scratch_) StartAppend(entry);
      append_scratch_.clear();
    } else if (!ready.sends.empty()) {
      send_scratch_.swap(ready.sends);
      for (const CoreSend& send : send_scratch_) parts_.exchange->Send(send);
      send_scratch_.clear();
    } else if (!ready.applies.empty()) {
      if (parts_.tail->keeps()) NoteCommitted(ready.applies.front().lsn, ready.applies.back().lsn);
      for (const CoreEntry& entry : ready.applies) apply_queue_.push_back(entry);
      ready.applies.clear();
    } else if (!applying_ && !shard_.serving.stalled() && !apply_queue_.empty()) {
      ApplyNext();
    } else if (!ready.replies.empty()) {
      reply_scratch_.swap(ready.replies);
      for (const CoreReply& reply : reply_scratch_) Reply(reply);
      reply_scratch_.clear();
    } else if (!std::exchange(trimmed, true)) {
      parts_.tail->Trim();  // a replica that it leaves without entries is asked again, at once
    } else {
      break;
    }
  }
  Publish();
}

void CommitPipeline::Publish() {
  const ShardCore& core = shard_.core;
  session_bytes_.Set(core.session_bytes());
  ShardGauges::Parts parts;
  parts.served = shard_.serving.serves();
  parts.wants_activation =
      parts.served && core.wants_activation() && !parts_.replay->wants_write_back();
  parts.staged_bytes = parts_.steps->bytes();
  parts.tail_bytes = parts_.tail->bytes();
  parts.watched = core.has_followers() || (core.primary() && !core.active()) || core.read_only() ||
                  parts.wants_activation || shard_.serving.stalled() ||
                  !shard_.serving.error().ok();
  const bool news = parts.wants_activation && !shard_.gauges.wants_activation();
  const bool watch = parts.watched && !shard_.gauges.watched();
  shard_.gauges.Publish(core, parts);
  if (watch && shard_.options.outlet != nullptr) shard_.options.outlet->Watch(shard_.options.id);
  const bool alone = parts.served && !shard_.serving.paused() && !shard_.serving.stalled() &&
                     !parts_.tail->keeps() && !applying_ && unapplied_.empty() &&
                     parts_.replay->rows_ahead_of_log_lsn() == 0 && core.TakesPushesAlone() &&
                     !parts_.waiting->any() && !noting() &&
                     shard_.options.ids_max >= PushGate::kIdsMax;
  shard_.push_gate.Set(alone ? core.epoch() : 0);
  shard_.gate.Set(core, parts.served && parts_.replay->rows_ahead_of_log_lsn() == 0 &&
                            shard_.options.ids_max >= PullGate::kIdsMax);
  if (shard_.options.outlet != nullptr) parts_.exchange->Publish(parts.served, news);
}

// --- into the log

void CommitPipeline::StartAppend(const CoreEntry& entry) {
  PushState* state = reinterpret_cast<PushState*>(entry.payload);
  if (state == nullptr && (shard_.logged() || parts_.tail->keeps())) state = PushState::Take();
  if (state != nullptr) {
    state->in_core = true;
    state->ticket = entry.ticket;
    if (state->record.owner == nullptr && !state->in_log) {
      FillRecord(shard_.options.id, shard_.dim, entry, state);
    }
    if (parts_.tail->keeps()) KeepRecord(entry, state);
  }
  HOTBED_DCHECK(unapplied_.empty() || unapplied_.back().lsn + 1 == entry.lsn)
      << shard_.Name() << ": LSN " << entry.lsn << " follows " << unapplied_.back().lsn;
  unapplied_.push_back({entry.lsn, state, shard_.in_flight.Begin()});
  if (state != nullptr && entry.kind == RecordKind::kPush) NoteStep(entry.seq >> kStepShift);
  if (noting() && state != nullptr && ChangesRows(entry.kind)) {
    noted_->insert(state->ids, state->ids + state->count);
  }
  if (entry.staged) {
    parts_.steps->Stage(state->append.header, state->ids, state->gradients);
  }
  if (!shard_.logged()) return shard_.core.Appended(entry.lsn, entry.ticket);
  ++appends_in_flight_;
  if (std::exchange(state->in_log, true)) return;  // by Shard::LogAtOnce
  state->append.ids = state->ids;
  state->append.gradients = state->gradients;
  state->append.encoded = state->record.bytes;
  // Two words of capture, here and below: they are kept without an allocation.
  state->append.done = [this, state](absl::Status status) {
    state->append_status = std::move(status);
    if (shard_.strand.RunIfIdle([this, state] { AfterAppend(state); })) return;
    shard_.strand.Run([this, state] { AfterAppend(state); });
  };
  shard_.options.log->Append(&state->append);
}

bool CommitPipeline::DeleteRows(std::vector<uint64_t> ids) {
  const std::atomic<bool>* const log_full = shard_.options.log_full;
  if (parts_.tail->full() || (log_full != nullptr && log_full->load(std::memory_order_relaxed))) {
    return false;
  }
  PushState* const state = PushState::Take();
  state->kept_ids = std::move(ids);
  state->ids = state->kept_ids.data();
  state->count = static_cast<uint32_t>(state->kept_ids.size());
  if (!shard_.core.Delete(reinterpret_cast<PushToken>(state))) {
    state->Give();
    return false;
  }
  Drain();
  return true;
}

void CommitPipeline::BeginNoting() {
  shard_.push_gate.Shut();
  noted_ = std::make_unique<absl::flat_hash_set<uint64_t>>();
  for (const Unapplied& entry : unapplied_) {
    const PushState* const state = entry.state;
    if (state == nullptr || !ChangesRows(state->append.header.kind)) continue;
    noted_->insert(state->ids, state->ids + state->count);
  }
  parts_.steps->AddStagedIds(noted_.get());
}

absl::flat_hash_set<uint64_t> CommitPipeline::EndNoting() {
  return std::move(*std::exchange(noted_, nullptr));
}

void CommitPipeline::FillRecord(ShardId shard, uint32_t dim, const CoreEntry& entry,
                                PushState* state) {
  const bool commits = entry.kind == RecordKind::kStepCommit;
  const bool deletes = entry.kind == RecordKind::kDelete;
  if (!ChangesRows(entry.kind) && !commits) state->count = 0;
  RecordHeader& header = state->append.header;
  header = RecordHeader();
  static_cast<EntryHead&>(header) = entry;
  header.shard = shard;
  header.id_count = state->count;
  header.dim = commits || deletes ? 0 : dim;
  if (state->work == nullptr) return;
  header.scalars = state->scalars;
  if (commits) return;
  header.last_part = state->segment->last_part;
  if (deletes) return;
  header.gradient_type = state->work->gradient_type;
  header.assign = state->segment->assign;
  header.shows = state->segment->shows;
}

void CommitPipeline::AfterAppend(PushState* state) {
  --appends_in_flight_;
  state->in_log = false;
  state->EndStage(RequestStages::kLog);
  state->running.End();  // where the core has left the entry before
  const absl::Status status = std::move(state->append_status);
  if (state->cut) {
    // Another entry may have its LSN by now.
    if (Mutated(CoreMutant::kStaleAppendCounts) && status.ok() && !unapplied_.empty()) {
      shard_.core.Appended(state->append.header.lsn, state->ticket);
    }
    AnswerIfFree(state);
  } else if (status.ok()) {
    shard_.core.Appended(state->append.header.lsn, state->ticket);
    AnswerIfFree(state);
  } else {
    // A poisoned log does not know whether a restart will find the record: then the answer is
    // "unknown", not "failed".
    const bool unknown = status.code() == absl::StatusCode::kDataLoss;
    const Lsn lsn = state->append.header.lsn;
    const uint64_t ticket = state->ticket;
    CutFrom(lsn);  // this state with the others
    shard_.core.AppendFailed(lsn, ticket,
                             unknown ? SegmentCode::kUnavailable : SegmentCode::kReadOnly);
  }
  if (!status.ok()) ResumeLog();
  Drain();
}

// The other replicas hold the entries from `first` through `last`.
void CommitPipeline::NoteCommitted(Lsn first, Lsn last) {
  if (unapplied_.empty() || last < unapplied_.front().lsn) return;
  const Lsn front = unapplied_.front().lsn;
  for (Lsn lsn = std::max(first, front); lsn <= last && lsn - front < unapplied_.size(); ++lsn) {
    PushState* const state = unapplied_[lsn - front].state;
    if (state != nullptr) state->EndStage(RequestStages::kReplicas);
  }
}

void CommitPipeline::ResumeLog() {
  if (shard_.core.read_only() && appends_in_flight_ == 0 &&
      !shard_.options.log->GetUsage().read_only) {
    shard_.core.Resume();
  }
}

void CommitPipeline::CutFrom(Lsn lsn) {
  parts_.steps->CutFrom(lsn);
  parts_.tail->CutFrom(lsn);
  while (!unapplied_.empty() && unapplied_.back().lsn >= lsn) {
    Unapplied cut = std::move(unapplied_.back());
    unapplied_.pop_back();
    if (cut.state != nullptr) cut.state->cut = true;
    LeaveCore(std::move(cut));
  }
}

void CommitPipeline::LeaveUnapplied() {
  apply_queue_.clear();
  CutFrom(shard_.core.applied_lsn() + 1);
}

void CommitPipeline::Close() {
  CutFrom(shard_.core.commit_lsn() + 1);
  if (shard_.serving.stalled()) LeaveUnapplied();
}

// --- records for other replicas

void CommitPipeline::KeepRecord(const CoreEntry& entry, PushState* state) {
  if (state->record.owner == nullptr) state->EncodeRecord();
  if (parts_.tail->empty()) parts_.tail->BeginAbove(entry.lsn - 1);
  parts_.tail->Add(entry.epoch, state->record);
}

void CommitPipeline::EncodeUnapplied() {
  for (const Unapplied& entry : unapplied_) {
    if (entry.state != nullptr && entry.state->record.owner == nullptr) entry.state->EncodeRecord();
  }
}

void CommitPipeline::BeginKeepingRecords() {
  const Lsn applied = shard_.core.applied_lsn();
  parts_.tail->StartKeeping();
  parts_.comparison->Start(applied);
  EncodeUnapplied();
  const bool whole = std::all_of(unapplied_.begin(), unapplied_.end(),
                                 [](const Unapplied& entry) { return entry.state != nullptr; });
  parts_.tail->BeginAbove(whole || unapplied_.empty() ? applied : unapplied_.back().lsn);
  if (!whole) return;  // the other replicas get a snapshot
  for (const Unapplied& entry : unapplied_) {
    parts_.tail->Add(entry.state->append.header.epoch, entry.state->record);
  }
}

void CommitPipeline::KeepRecordsIfFollowed() {
  if (parts_.tail->keeps() || shard_.options.outlet == nullptr) return;
  if (shard_.core.has_followers()) BeginKeepingRecords();
}

// --- into the rows

void CommitPipeline::ApplyNext() {
  const CoreEntry& entry = apply_queue_.front();
  HOTBED_DCHECK(unapplied_.front().lsn == entry.lsn)
      << shard_.Name() << ": applies LSN " << entry.lsn << " before " << unapplied_.front().lsn;
  PushState* const state = unapplied_.front().state;
  if (!shard_.serving.error().ok()) return AfterApply(shard_.serving.error());
  auto after = [this](absl::Status status) {
    AfterApply(status);
    Drain();
  };
  if (entry.kind == RecordKind::kStepCommit) {
    const absl::Span<const SessionId> sessions(state->ids, state->count);
    RecordHeader header;
    header.lsn = entry.lsn;
    header.scalars = state->scalars;
    applying_ = late_ = true;
    if (parts_.steps->Apply(header, shard_.core.StagedOf(entry.seq >> kStepShift, sessions),
                            after)) {
      AfterApply(absl::OkStatus());
    }
    return;
  }
  if (!ChangesRows(entry.kind) || entry.staged || state->count == 0) {
    return AfterApply(absl::OkStatus());
  }
  if (entry.kind == RecordKind::kDelete && Mutated(CoreMutant::kDeleteIgnoredByBackups) &&
      !shard_.core.primary()) {
    return AfterApply(absl::OkStatus());
  }
  const RowUpdates updates = UpdatesOf(state->append.header, state->ids, state->gradients);
  if (shard_.store->ApplyAtOnce(updates)) return AfterApply(absl::OkStatus());
  applying_ = late_ = true;
  if (shard_.store->Apply(updates, after)) {
    AfterApply(absl::OkStatus());
  }
}

void CommitPipeline::AfterApply(const absl::Status& status) {
  applying_ = false;
  ServingState& serving = shard_.serving;
  if (!status.ok() && serving.error().ok()) {
    if (!absl::IsDataLoss(status) && !IsDeviceLost(status)) {
      if (serving.closed()) return LeaveUnapplied();
      // The entry is in the log and not in the rows: it will be, when the disk takes rows again.
      // Until a retry succeeds, no sender is answered.
      late_ = true;
      return serving.Stall(absl::StrCat("waits to apply a push: ", status.message()));
    }
    serving.Refuse(status);
  }
  const CoreEntry entry = apply_queue_.front();
  apply_queue_.pop_front();
  Unapplied applied = std::move(unapplied_.front());
  unapplied_.pop_front();
  PushState* const state = applied.state;
  if (late_ && state != nullptr) state->EndStage(RequestStages::kRows);
  late_ &= !apply_queue_.empty();
  if (serving.error().ok()) {
    const bool commits = entry.kind == RecordKind::kStepCommit;
    shard_.core.Applied(entry.lsn);
    shard_.store->SetAppliedLsn(PlantedBug("spill_ahead_of_log") ? entry.lsn + 1000 : entry.lsn);
    absl::Span<const uint64_t> changed;
    if (commits) changed = parts_.steps->changed_ids();
    if (ChangesRows(entry.kind) && !entry.staged && state != nullptr) {
      changed = absl::MakeConstSpan(state->ids, state->count);
    }
    if (parts_.feed != nullptr && parts_.feed->open()) {
      parts_.feed->Applied({entry.epoch, entry.lsn}, changed);
    }
    if (parts_.tail->keeps()) {
      parts_.comparison->Applied(
          entry.lsn, state == nullptr ? absl::Span<const uint8_t>() : state->record.bytes, changed,
          /*rows_known=*/parts_.replay->rows_ahead_of_log_lsn() == 0,
          /*deleted=*/entry.kind == RecordKind::kDelete);
    }
    if (commits) {
      parts_.steps->Applied(entry.seq >> kStepShift, entry.lsn);
    } else if (state != nullptr) {
      shard_.gauges.AddPushed(state->count);
    }
    parts_.replay->Applied(entry.lsn);
    parts_.waiting->RunPulls();
  }
  LeaveCore(std::move(applied));
}

void CommitPipeline::LeaveCore(Unapplied entry) {
  if (entry.state == nullptr) return;
  if (entry.state->in_log) entry.state->running = std::move(entry.running);
  entry.running.End();
  entry.state->in_core = false;
  AnswerIfFree(entry.state);
}

// --- replies

void CommitPipeline::Reply(const CoreReply& reply) {
  PushState* const state = reinterpret_cast<PushState*>(reply.token);
  state->reply = reply;
  state->replied = true;
  AnswerIfFree(state);
}

// An update that is being applied reads the memory it began with: the message, if the record was
// made since.
bool CommitPipeline::StillReadsMessage(const PushState& state) const {
  const bool being_applied = applying_ && !unapplied_.empty() && unapplied_.front().state == &state;
  return state.record.owner == nullptr || being_applied ||
         (state.in_log && state.append.encoded.empty());
}

void CommitPipeline::AnswerIfFree(PushState* state) {
  const bool busy = state->in_log || state->in_core;
  if (state->work == nullptr) {
    if (!busy) state->Give();
    return;
  }
  if (!state->replied || (busy && StillReadsMessage(*state))) return;
  PushWork* work = state->work;
  PushSegment* segment = state->segment;
  const CoreReply& reply = state->reply;
  segment->result.epoch = reply.epoch;
  segment->result.lsn = reply.lsn;
  segment->result.last_seq = reply.last_seq;
  if (reply.code != SegmentCode::kOk) {
    Refusal refusal = std::move(state->refusal);
    if (refusal.detail.empty() || (reply.code != refusal.code && !refusal.ok())) {
      refusal.detail = ExplainRefusal(shard_, reply.code, *work, *segment, reply.last_seq);
    }
    RefuseSegment(segment, reply.code, std::move(refusal.detail));
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
