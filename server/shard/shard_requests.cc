// The data plane of a shard: pulls, pushes and step commits, from the host to the parts and back.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/tables/session_of_lane.h"
#include "server/shard/push_state.h"
#include "server/shard/record_mapping.h"
#include "server/shard/replica/replica_budget.h"
#include "server/shard/request/segment_check.h"
#include "server/shard/request/segment_result.h"
#include "server/shard/request_checks.h"
#include "server/shard/shard.h"
#include "server/shard_log/planted_bugs.h"

namespace hotbed {
namespace {

Refusal StrandIsFull(const ShardOptions& options) {
  return {SegmentCode::kResourceExhausted,
          absl::StrCat(options.Name(), ": ", options.strand.queue_max, " requests wait already")};
}

CorePush PushOf(const RecordHeader& header) {
  CorePush push;
  push.epoch = header.epoch;
  push.session = header.session;
  push.incarnation = header.incarnation;
  push.seq = header.seq;
  push.prev_seq = header.prev_seq;
  return push;
}

}  // namespace

// --- pulls

bool Shard::PullAtOnce(const PullWork& work, PullSegment* segment) {
  bool answered = false;
  return strand_.RunIfIdle([&] { answered = ReadAtOnce(work, segment); }) && answered;
}

bool Shard::ReadAtOnce(const PullWork& work, PullSegment* segment) {
  if (!gate_.Admits(work, *segment) || !fetch_hint_.MayRead()) return false;
  const uint32_t outside = FirstIdOutside(segment->ids, segment->count, gate_.first(), gate_.span(),
                                          fetch_hint_.hashed());
  if (outside != segment->count) return false;
  segment->type = work.row_type;
  uint32_t missing[PullGate::kIdsMax];
  if (!fetch_hint_.Read(*segment, missing)) return false;
  segment->result.epoch = gate_.epoch();
  segment->result.lsn = gate_.lsn();
  return true;
}

void Shard::Pull(PullWork* work, PullSegment* segment) {
  bool finished = true;
  const Strand::Outcome outcome = strand_.TryRun(
      [&] { finished = PullNow(work, segment); },
      [&] {
        segment->since_ns = work->stages.NowNs();
        return [work, segment] {
          NoteStage(RequestStages::kStrand, work, segment, std::exchange(segment->since_ns, 0));
          segment->shard->RestartPull(work, segment);
        };
      });
  if (outcome == Strand::Outcome::kQueued) return;
  if (outcome == Strand::Outcome::kFull) RefuseSegment(segment, StrandIsFull(options_));
  if (finished) FinishSegment(work);
}

void Shard::RestartPull(PullWork* work, PullSegment* segment) {
  if (PullNow(work, segment)) FinishSegment(work);
}

// Rows up to rows_ahead_of_log_lsn may be newer than the log.
Lsn Shard::LsnToSee(const PullWork& work, PullSegment* segment) const {
  const bool skips = Mutated(CoreMutant::kStrictBeforeApplied);
  if (work.strict && !std::exchange(segment->waits_for_commit, true) && !skips) {
    segment->lsn_min = std::max(segment->lsn_min, core_.commit_lsn());
  }
  const Lsn guard =
      Mutated(CoreMutant::kRowsReadWhileGuarded) ? 0 : replay_.rows_ahead_of_log_lsn();
  const Lsn lsn_min = Mutated(CoreMutant::kMinLsnIgnored) && !work.strict
                          ? guard
                          : std::max(segment->lsn_min, guard);
  // A new primary's log holds what an earlier epoch acknowledged, and its rows perhaps do not yet:
  // the sender of such a push reads it all the same (the simulator's mutant StrictBeforeApplied).
  if (core_.primary()) return skips ? lsn_min : std::max(lsn_min, core_.inherited_lsn());
  // A backup or learner: what its primary had committed when it was last heard from.
  return work.staleness_ms_max == 0 ? lsn_min : std::max(lsn_min, core_.leader_commit());
}

bool Shard::PullNow(PullWork* work, PullSegment* segment) {
  Refusal refusal = CheckPull(context_, *work, *segment,
                              {replay_.rows_ahead_of_log_lsn(), exchange_.primary_heard_ns()});
  segment->result.epoch = core_.epoch();
  segment->result.lsn = core_.applied_lsn();
  if (refusal.ok() && LsnToSee(*work, segment) > core_.applied_lsn()) {
    refusal = waiting_.ParkPull(work, segment);
    if (refusal.ok()) return false;
  }
  if (!refusal.ok()) {
    RefuseSegment(segment, std::move(refusal));
    return true;
  }
  gauges_.AddPulled(segment->count);
  segment->type = work->row_type;
  segment->answer = work->answer;
  segment->since_ns = work->stages.NowNs();
  InFlight::Token running = in_flight_.Begin();
  // Two words of capture: the store keeps it without an allocation.
  if (!store_->Pull(*segment, [work, segment](absl::Status status) {
        InFlight::Token adopted = segment->shard->in_flight_.Adopt();
        NoteStage(RequestStages::kRows, work, segment, segment->since_ns);
        segment->shard->FillPullResult(*work, segment, status);
        adopted.End();
        FinishSegment(work);  // ends the segment too
      })) {
    running.Detach();
    return false;
  }
  running.End();
  FillPullResult(*work, segment, absl::OkStatus());
  return true;
}

// Epoch and LSN stay those of the pull's start: rows read early may lack updates that were applied
// while other rows were fetched, and the caller takes the LSN as seen for all of them.
void Shard::FillPullResult(const PullWork& work, PullSegment* segment, const absl::Status& status) {
  if (!status.ok()) {
    // A damaged replica is given up where others hold the rows, as if an update had met the damaged
    // row. Without others, the undamaged rows are still served.
    const bool lost = absl::IsDataLoss(status) && serving_.OthersHoldRows();
    RefuseSegment(segment, lost ? SegmentCode::kUnavailable : CodeOf(status),
                  absl::StrCat(options_.Name(), ": ", status.message()));
    if (!serving_.error().ok() || (!lost && !IsDeviceLost(status))) return;
    if (lost) {
      serving_.GiveUpReplica(status);
    } else {
      serving_.Refuse(status);
    }
    pipeline_.Drain();
  } else if (work.strict && LacksLease(context_)) {
    RefuseSegment(
        segment, SegmentCode::kUnavailable,
        absl::StrCat(options_.Name(), ": this server's lease ran out during a strict pull"));
  }
}

// --- pushes

bool Shard::PushAtOnce(const PushWork& work, PushSegment* segment) {
  if (push_gate_.logged()) return false;
  bool applied = false;
  return strand_.RunIfIdle([&] { applied = ApplyAtOnce(work, segment); }) && applied;
}

bool Shard::MayPushAtOnce(const PushWork& work, const PushSegment& segment, CorePush* push,
                          UpdateScalars* scalars) {
  const uint32_t count = segment.count;
  if (!push_gate_.Admits(work, segment) || !fetch_hint_.MayRead()) return false;
  push->epoch = segment.epoch;
  push->session = work.session;
  push->incarnation = work.incarnation;
  push->seq = segment.seq;
  push->prev_seq = segment.prev_seq;
  if (!core_.MayPushAlone(*push)) return false;
  if (FirstIdOutside(segment.ids, count, gate_.first(), gate_.span(), fetch_hint_.hashed()) !=
          count ||
      FirstRepeatedId(segment.ids, count) != count ||
      (!push_gate_.allows_nan() &&
       FirstNotFinite(segment.gradients, count, dim(), work.gradient_type) != count)) {
    return false;
  }
  const uint64_t step = segment.seq >> kStepShift;
  *scalars = push_gate_.scalars_fixed()
                 ? push_gate_.ScalarsOf(segment, step)
                 : ResolvePush(table_, segment.has_learning_rate, segment.learning_rate, step);
  StampTouches(scalars);
  if (!push_gate_.store_opened()) {
    TakeOpenedStore();  // the rows may be read, so it is open
    push_gate_.NoteStoreOpened();
  }
  return true;
}

bool Shard::ApplyAtOnce(const PushWork& work, PushSegment* segment) {
  CorePush push;
  UpdateScalars scalars;
  if (!MayPushAtOnce(work, *segment, &push, &scalars)) return false;
  const Lsn lsn = core_.last_lsn() + 1;
  const RowUpdates updates{{segment->count, work.gradient_type, segment->gradients, scalars,
                            segment->assign, segment->shows},
                           segment->ids,
                           lsn};
  if (!store_->ApplyAtOnce(updates)) return false;
  NotePushed(work, push, segment);
  return true;
}

void Shard::NotePushed(const PushWork& work, const CorePush& push, PushSegment* segment) {
  core_.SetNow(work.now_ns);
  core_.PushedAlone(push);
  const Lsn lsn = core_.last_lsn();
  gate_.SetLsn(lsn);
  gauges_.PublishLsn(lsn);
  gauges_.AddPushed(segment->count);
  if (push_gate_.touches()) pipeline_.NoteStep(push.seq >> kStepShift);
  if (push_gate_.followed() && feed_.open()) {
    feed_.Applied({segment->epoch, lsn}, {segment->ids, segment->count});
  }
  segment->result.epoch = segment->epoch;
  segment->result.lsn = lsn;
  segment->result.last_seq = segment->seq;
}

// The short way of a push to a shard with a log. The push goes to the log, and its way through core
// and rows is put off on the strand until the log has it. So no thread holds a strand while the log
// writes, and pulls read the rows as they are meanwhile. Any other task of the strand first makes
// the push the core's (TakeLogged). The core takes it surely: nothing has happened to the shard
// since MayPushAtOnce looked. The log still has one order per shard: the append is queued on the
// strand, before that of any later push.
bool Shard::LogAtOnce(PushWork* work, PushSegment* segment) {
  if (work->deadline_ns != 0 && (work->now_ns == 0 || work->now_ns >= work->deadline_ns)) {
    return false;
  }
  bool logged = false;
  strand_.RunIfIdle([&] {
    CorePush push;
    UpdateScalars scalars;
    if (strand_.deferred() != nullptr || segment->vocabulary ||
        !MayPushAtOnce(*work, *segment, &push, &scalars)) {
      return;
    }
    const std::atomic<bool>* const log_full = options_.log_full;
    if (log_full != nullptr && log_full->load(std::memory_order_relaxed)) return;
    PushState* const state = PushState::Take();
    state->work = work;
    state->segment = segment;
    state->ids = segment->ids;
    state->gradients = segment->gradients;
    state->count = segment->count;
    state->scalars = scalars;
    state->in_log = true;
    state->logged_by = this;
    state->BeginStage();
    CommitPipeline::FillRecord(options_.id, dim(), core_.EntryOf(push), state);
    state->append.ids = state->ids;
    state->append.gradients = state->gradients;
    state->append.done = [this, state](absl::Status status) {
      state->append_status = std::move(status);
      AfterLogged(state);
    };
    strand_.Defer(state);
    options_.log->Append(&state->append);
    logged = true;
  });
  return logged;
}

void Shard::AfterLogged(PushState* state) {
  PushWork* applied = nullptr;
  const bool entered = strand_.RunIfIdle([&] {
    applied = ApplyLogged(state);
    if (applied != nullptr) return;
    if (strand_.deferred() == state) strand_.SettleDeferred();
    pipeline_.AfterAppend(state);
  });
  if (applied != nullptr) return FinishSegment(applied);  // it may end the shard
  if (entered) return;
  strand_.Run([this, state] { pipeline_.AfterAppend(state); });
}

PushWork* Shard::ApplyLogged(PushState* state) {
  if (strand_.deferred() != state || !state->append_status.ok()) return nullptr;
  const RowUpdates updates = UpdatesOf(state->append.header, state->ids, state->gradients);
  if (!store_->ApplyAtOnce(updates)) return nullptr;
  if (PlantedBug("spill_ahead_of_log")) store_->SetAppliedLsn(updates.lsn + 1000);
  strand_.EndDeferred();
  PushWork* const work = state->work;
  NotePushed(*work, PushOf(state->append.header), state->segment);
  state->EndStage(RequestStages::kLog);
  state->Give();
  return work;
}

void Shard::TakeLogged(PushState* state) {
  CorePush push = PushOf(state->append.header);
  push.token = reinterpret_cast<PushToken>(state);
  core_.SetNow(state->work->now_ns);
  core_.PushLogged(push);
  pipeline_.Drain();
}

// The primary's clock alone decides when rows were touched.
void Shard::StampTouches(UpdateScalars* scalars) const {
  if (!push_gate_.touches()) return;
  scalars->time_s = static_cast<uint32_t>(options_.clock->WallUs() / 1'000'000);
}

void Shard::Push(PushWork* work, PushSegment* segment) {
  if (push_gate_.logged() && LogAtOnce(work, segment)) return;
  PushState* state = PushState::Take();
  state->work = work;
  state->segment = segment;
  state->since_ns = work->stages.begun_ns();
  PrepareRows(context_, state);
  const Strand::Outcome outcome = strand_.TryRun([&] { PushNow(state); },
                                                 [&] {
                                                   state->BeginStage();
                                                   return [this, state] {
                                                     state->EndStage(RequestStages::kStrand);
                                                     PushNow(state);
                                                   };
                                                 });
  if (outcome != Strand::Outcome::kFull) return;
  state->Give();
  RefuseSegment(segment, StrandIsFull(options_));
  FinishSegment(work);
}

void Shard::PushNow(PushState* state) {
  const PushSegment& segment = *state->segment;
  const PushWork& work = *state->work;
  const PushToken token = reinterpret_cast<PushToken>(state);
  Refusal refusal = CheckPush(context_, *state, tail_.full());
  if (!refusal.ok()) {
    state->refusal = std::move(refusal);
    return pipeline_.Reply({token, state->refusal.code, core_.epoch(), core_.applied_lsn(), 0});
  }
  if (options_.replica_budget != nullptr) {
    const GivenOut& given = options_.replica_budget->given;
    core_.LearnGiven(segment.commit_step == 0 ? given.Session()
                                              : given.SessionAndStep(options_.table->id));
  }
  if (waiting_.ParkPush(state)) return;
  if (segment.vocabulary && segment.decided_at != core_.last_lsn()) {
    state->refusal = {SegmentCode::kUnavailable,
                      absl::StrCat(options_.Name(), ": the log went on behind LSN ",
                                   segment.decided_at, "; decide again")};
    return pipeline_.Reply({token, state->refusal.code, core_.epoch(), core_.applied_lsn(), 0});
  }
  if (segment.commit_step != 0) return CommitNow(state);
  // Here, not in PrepareRows: the options may change, and do so on the strand.
  state->scalars = ResolvePush(table_, segment.has_learning_rate, segment.learning_rate,
                               segment.seq >> kStepShift);
  StampTouches(&state->scalars);
  uint32_t lane = 0;
  if (Refusal mixed = FindLane(context_, segment, &lane); !mixed.ok()) {
    state->refusal = std::move(mixed);
    return pipeline_.Reply({token, state->refusal.code, core_.epoch(), core_.applied_lsn(), 0});
  }
  CorePush push;
  push.epoch = segment.epoch;
  push.session = SessionOfLane(work.session, lane);
  push.incarnation = work.incarnation;
  push.seq = segment.seq;
  push.prev_seq = segment.prev_seq;
  push.open = segment.open;
  push.deletes = segment.deletes;
  push.staged = context_.synchronous && !segment.assign && !segment.deletes;
  if (push.staged) {
    push.no_room = steps_.NoRoomFor(state->count, work.gradient_type, state->segment->shows);
    if (state->refusal.ok()) state->refusal = steps_.CheckLearningRate(*state);
  }
  push.no_session_room = options_.SessionsFull();
  push.refusal = state->refusal.code;
  push.token = token;
  core_.SetNow(work.now_ns);
  core_.Push(push);
  pipeline_.Drain();
}

void Shard::CommitNow(PushState* state) {
  const PushSegment& segment = *state->segment;
  const PushToken token = reinterpret_cast<PushToken>(state);
  if (!state->refusal.ok()) {
    return pipeline_.Reply({token, state->refusal.code, core_.epoch(), core_.applied_lsn(), 0});
  }
  const absl::Span<const SessionId> sessions(segment.ids, segment.count);
  state->scalars = steps_.ScalarsOf(segment.commit_step, sessions);
  core_.Commit({segment.epoch, segment.commit_step, token});
  pipeline_.Drain();
}

}  // namespace hotbed
