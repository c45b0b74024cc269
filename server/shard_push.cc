// The write half of a shard's data plane: checks, core, log, rows, reply.
#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "row_math/optimizer.h"
#include "server/push_state.h"
#include "server/segment_check.h"
#include "server/segment_result.h"
#include "server/shard.h"
#include "server/shard_log/planted_bugs.h"

namespace hotbed {
namespace {

// Why the table's options allow no such push; empty: they do. The client sees to both, and a client
// of another make might not (DECISIONS W5).
std::string RefusedByTable(const TableSpec& table, const PushSegment& segment) {
  if (table.optimizer.kind == OptimizerKind::kNone && !segment.assign) {
    return "the table's optimizer is none, which takes no gradients; assign rows instead";
  }
  const uint64_t* const limit = segment.ids + segment.count;
  if (table.has_padding_id && std::find(segment.ids, limit, table.padding_id) != limit) {
    return absl::StrCat("id ", table.padding_id,
                        " is the table's padding id, which is zeros and takes no gradient; leave "
                        "it out of the push");
  }
  return "";
}

}  // namespace

void Shard::Push(PushWork* work, PushSegment* segment) {
  PushState* state = PushState::Take();
  state->shard = this;
  state->work = work;
  state->segment = segment;
  CheckPush(state);
  const Strand::Outcome outcome = strand_.TryRun(
      [&] { PushNow(state); }, [&] { return [state] { state->shard->PushNow(state); }; });
  if (outcome != Strand::Outcome::kFull) return;
  state->Give();
  RefuseSegment(segment, SegmentCode::kResourceExhausted,
                absl::StrCat(Name(), ": ", options_.strand.queue_max, " requests wait already"));
  FinishSegment(work);
}

// What can be said without the shard's state, off the strand. A refusal becomes noop(seq) in the
// log.
void Shard::CheckPush(PushState* state) {
  const PushSegment& segment = *state->segment;
  if (segment.commit_step != 0) return CheckCommit(state);
  const RowType type = state->work->gradient_type;
  state->ids = segment.ids;
  state->gradients = segment.gradients;
  state->count = segment.count;
  const bool hashed = options_.table.hashed;
  if (segment.count == 0 || segment.count > options_.ids_max) {
    state->refusal = SegmentCode::kInvalidArgument;
    state->detail = absl::StrCat(Name(), ": ", segment.count,
                                 " ids in a segment, allowed are 1 to ", options_.ids_max);
  } else if (type == RowType::kInt8) {
    state->refusal = SegmentCode::kInvalidArgument;
    state->detail = absl::StrCat(Name(), ": gradients of type int8; allowed are fp32, fp16, bf16");
  } else if (segment.has_learning_rate && !std::isfinite(segment.learning_rate)) {
    state->refusal = SegmentCode::kInvalidArgument;
    state->detail =
        absl::StrCat(Name(), ": learning rate ", segment.learning_rate, " is not finite");
  } else if (std::string why = RefusedByTable(options_.table, segment); !why.empty()) {
    state->refusal = SegmentCode::kInvalidArgument;
    state->detail = absl::StrCat(Name(), ": ", why);
  } else if (const uint32_t bad =
                 FirstIdOutside(segment.ids, segment.count, options_.range, hashed);
             bad != segment.count) {
    state->refusal = SegmentCode::kOutOfRange;
    state->detail = absl::StrCat(Name(), ": id ", segment.ids[bad], " is outside of ",
                                 hashed ? "buckets [" : "rows [", options_.range.first, ", ",
                                 options_.range.limit, ")");
  } else if (const uint32_t again = FirstRepeatedId(segment.ids, segment.count);
             again != segment.count) {
    state->refusal = SegmentCode::kInvalidArgument;
    state->detail = absl::StrCat(Name(), ": id ", segment.ids[again],
                                 " occurs twice in a segment; sum its gradients before the push");
  } else if (options_.table.nan_policy != NanPolicy::kAllow) {
    const uint32_t row = FirstNotFinite(segment.gradients, segment.count, dim_, type);
    if (row == segment.count) return;
    if (options_.table.nan_policy == NanPolicy::kSkip) return DropNonFiniteRows(state);
    state->refusal = SegmentCode::kNanGradient;
    state->detail = absl::StrCat(Name(), ": the gradient of id ", segment.ids[row],
                                 " is not finite, and the table's NaN policy is reject");
  }
}

void Shard::DropNonFiniteRows(PushState* state) {
  for (uint32_t i = 0; i < state->count; ++i) {
    if (!IsFinite(state->gradients[i], dim_, state->work->gradient_type)) continue;
    state->kept_ids.push_back(state->ids[i]);
    state->kept_gradients.push_back(state->gradients[i]);
  }
  state->ids = state->kept_ids.data();
  state->gradients = state->kept_gradients.data();
  state->count = static_cast<uint32_t>(state->kept_ids.size());
}

SegmentCode Shard::RefusalNow(const PushState& state, std::string* detail) const {
  const PushSegment& segment = *state.segment;
  const PushWork& work = *state.work;
  if (work.deadline_ns != 0 && options_.clock->NowNs() >= work.deadline_ns) {
    *detail = absl::StrCat(Name(), ": the deadline passed before the push began");
    return SegmentCode::kDeadlineExceeded;
  }
  if (closed_ || !error_state_.ok()) {
    *detail = closed_ ? absl::StrCat(Name(), " is closing") : error();
    return closed_ ? SegmentCode::kUnavailable : CodeOf(error_state_);
  }
  if (paused_) {
    *detail = absl::StrCat(Name(), ": its rows are being kept as a checkpoint");
    return SegmentCode::kUnavailable;
  }
  if (options_.log_full != nullptr && options_.log_full->load(std::memory_order_relaxed)) {
    *detail = absl::StrCat(Name(), ": the log is over its limit until rows are written back");
    return SegmentCode::kResourceExhausted;
  }
  if (segment.commit_step == 0 && (segment.seq == 0 || work.session == 0)) {
    *detail = absl::StrCat(Name(), ": session ", work.session, ", sequence ", segment.seq,
                           "; both count from 1");
    return SegmentCode::kInvalidArgument;
  }
  return SegmentCode::kOk;
}

void Shard::PushNow(PushState* state) {
  const PushSegment& segment = *state->segment;
  const PushWork& work = *state->work;
  const PushToken token = reinterpret_cast<PushToken>(state);
  CoreReply refused{token, SegmentCode::kOk, core_.epoch(), core_.applied_lsn(), 0};
  std::string detail;
  refused.code = RefusalNow(*state, &detail);
  if (refused.code != SegmentCode::kOk) {
    state->detail = std::move(detail);
    state->refusal = refused.code;
    return DeliverReply(refused);
  }
  if (segment.commit_step != 0) return CommitNow(state);
  // Here, not in CheckPush: the options may change, and do so on the strand.
  state->scalars = ResolvePush(table_, segment.has_learning_rate, segment.learning_rate,
                               segment.seq >> kStepShift);
  CorePush push;
  push.epoch = segment.epoch;
  push.session = work.session;
  push.incarnation = work.incarnation;
  push.seq = segment.seq;
  push.prev_seq = segment.prev_seq;
  push.open = segment.open;
  push.staged = synchronous_ && !segment.assign;
  if (push.staged) CheckStaged(state, &push.no_room);
  push.refusal = state->refusal;
  push.token = token;
  core_.Push(push);
  Drain();
}

// Does what the core wants done, until it wants nothing. Completions that arrive meanwhile queue on
// the strand.
void Shard::Drain() {
  CoreReady& ready = *core_.ready();
  for (;;) {
    if (ready.promise != 0) promise_wanted_ = std::exchange(ready.promise, 0);
    if (!ready.appends.empty()) {
      append_scratch_.swap(ready.appends);
      for (const CoreEntry& entry : append_scratch_) StartAppend(entry);
      append_scratch_.clear();
    } else if (!ready.applies.empty()) {
      apply_queue_.insert(apply_queue_.end(), ready.applies.begin(), ready.applies.end());
      ready.applies.clear();
    } else if (!applying_ && !apply_blocked_ && !apply_queue_.empty()) {
      ApplyNext();
    } else if (!ready.replies.empty()) {
      reply_scratch_.swap(ready.replies);
      for (const CoreReply& reply : reply_scratch_) DeliverReply(reply);
      reply_scratch_.clear();
    } else {
      break;
    }
  }
  PublishState();
}

void Shard::StartAppend(const CoreEntry& entry) {
  in_flight_.fetch_add(1, std::memory_order_relaxed);  // until applied or cut
  PushState* state = reinterpret_cast<PushState*>(entry.payload);
  if (state != nullptr) {
    state->in_core = true;
  } else if (logged()) {
    state = PushState::Take();
    state->shard = this;
    state->work = nullptr;
    state->segment = nullptr;
  }
  if (state != nullptr && (logged() || entry.staged)) FillRecord(entry, state);
  if (entry.staged) staged_.Add(state->append.header, state->ids, state->gradients);
  if (!logged()) return core_.Appended(entry.lsn, entry.ticket);
  ++appends_in_flight_;
  state->in_log = true;
  state->ticket = entry.ticket;
  state->append.ids = state->ids;
  state->append.gradients = state->gradients;
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
  const Lsn lsn = state->append.header.lsn;
  if (state->append_status.ok()) {
    core_.Appended(lsn, state->ticket);
  } else {
    // A poisoned log does not know whether a restart will find the record: then the answer is
    // "unknown", not "failed".
    const bool unknown = state->append_status.code() == absl::StatusCode::kDataLoss;
    state->in_core = false;
    in_flight_.fetch_sub(1, std::memory_order_release);
    staged_.CutFrom(lsn);
    core_.AppendFailed(lsn, state->ticket, unknown ? SegmentCode::kUnavailable : SegmentCode::kReadOnly);
    MaybeResume();
  }
  DeliverIfFree(state);
  Drain();
}

void Shard::ApplyNext() {
  const CoreEntry& entry = apply_queue_.front();
  PushState* state = reinterpret_cast<PushState*>(entry.payload);
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
  RowUpdates updates;
  updates.ids = state->ids;
  updates.count = state->count;
  updates.gradient_type = state->work->gradient_type;
  updates.gradients = state->gradients;
  updates.scalars = state->scalars;
  updates.assign = state->append.header.assign;
  updates.lsn = entry.lsn;
  applying_ = true;
  if (store_->Apply(updates, after)) AfterApply(absl::OkStatus());
}

void Shard::AfterApply(const absl::Status& status) {
  applying_ = false;
  if (!status.ok() && error_state_.ok()) {
    if (status.code() != absl::StatusCode::kDataLoss) {
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
  PushState* state = reinterpret_cast<PushState*>(entry.payload);
  in_flight_.fetch_sub(1, std::memory_order_release);
  if (error_state_.ok()) {
    core_.Applied(entry.lsn);
    store_->SetAppliedLsn(PlantedBug("spill_ahead_of_log") ? entry.lsn + 1000 : entry.lsn);
    if (entry.kind == RecordKind::kStepCommit) {
      staged_.DropThrough(entry.seq >> kStepShift, entry.lsn);
      commit_rows_ = SummedRows();
    } else if (state != nullptr) {
      rows_pushed_.store(rows_pushed_.load(std::memory_order_relaxed) + state->count,
                         std::memory_order_relaxed);
    }
    RunParkedPulls();
  }
  if (state == nullptr) return;
  state->in_core = false;
  DeliverIfFree(state);
}

void Shard::DeliverReply(const CoreReply& reply) {
  PushState* state = reinterpret_cast<PushState*>(reply.token);
  state->reply = reply;
  state->replied = true;
  DeliverIfFree(state);
}

void Shard::DeliverIfFree(PushState* state) {
  if (state->in_log || state->in_core) return;
  if (state->work == nullptr) return state->Give();
  if (!state->replied) return;
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
  state->Give();
  FinishSegment(work);
}

std::string Shard::Explain(SegmentCode code, Epoch epoch, uint64_t seq, uint64_t prev_seq,
                           uint64_t last_seq) const {
  switch (code) {
    case SegmentCode::kWrongEpoch:
      return absl::StrCat(Name(), ": epoch ", epoch, " asked for, current is ", core_.epoch(),
                          core_.primary() ? "" : ", and another server is its primary");
    case SegmentCode::kUnavailable:
      if (!error_state_.ok()) {
        return absl::StrCat("whether sequence ", seq, " will be applied is not known: ", error());
      }
      return absl::StrCat(Name(), ": epoch ", core_.epoch(), " is not active yet");
    case SegmentCode::kUnknownSession:
      return absl::StrCat(Name(), ": sequence ", seq,
                          " of a session that has not opened here; send it with the open flag");
    case SegmentCode::kFenced:
      return absl::StrCat(Name(), ": a later incarnation of this session has opened, or it was ",
                          "silent for so long that it was forgotten here (of more than ",
                          options_.core.sessions_max, " sessions); open it anew");
    case SegmentCode::kGap:
      return absl::StrCat(Name(), ": sequence ", seq, " follows ", prev_seq, ", the last here is ",
                          last_seq);
    case SegmentCode::kReadOnly:
      return absl::StrCat(Name(), ": the log takes no appends (disk full or failing); nothing of ",
                          "sequence ", seq, " was applied");
    case SegmentCode::kResourceExhausted:
      return absl::StrCat(
          Name(), ": ", options_.core.entries_max, " pushes wait, or ", options_.core.sessions_max,
          " sessions are open",
          !synchronous_ ? ""
                        : absl::StrCat(", or pushes that wait for the end of their "
                                       "step fill the server's ",
                                       options_.staged_bytes_max, " bytes (--staged-bytes-max)"));
    case SegmentCode::kStepOver:
      return absl::StrCat(Name(), ": step ", seq >> kStepShift,
                          " was committed without this push (the last committed step is ",
                          core_.committed_step(),
                          "): its trainer was given up by its group; join again");
    case SegmentCode::kCorrupt:
      return error();
    default:
      return absl::StrCat(Name(), ": sequence ", seq, " refused");
  }
}

}  // namespace hotbed
