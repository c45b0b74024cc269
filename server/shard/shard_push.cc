// The write half of a shard's data plane: checks, core, log, rows, reply.
#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "row_math/optimizer.h"
#include "server/shard/push_state.h"
#include "server/shard/segment_check.h"
#include "server/shard/segment_result.h"
#include "server/shard/shard.h"
#include "server/shard_log/planted_bugs.h"

namespace hotbed {
namespace {

constexpr int64_t kPushWaitNsMax = 50'000'000;

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
  // The rows are on their way while the push is checked.
  if (segment->commit_step == 0) {
    fetch_hint_.Fetch(segment->ids, segment->count, /*with_state=*/true);
  }
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
    return RefusalCode();
  }
  if (paused_) {
    *detail = absl::StrCat(Name(), ": its rows are being kept as a checkpoint");
    return SegmentCode::kUnavailable;
  }
  if (options_.log_full != nullptr && options_.log_full->load(std::memory_order_relaxed)) {
    *detail = absl::StrCat(Name(), ": the log is over its limit until rows are written back");
    return SegmentCode::kResourceExhausted;
  }
  // What is held for a copy leaves some room to other shards.
  const int64_t room = options_.outlet == nullptr ? 0 : options_.replica_budget->tail_bytes_max;
  if (tail_.bytes() > 0 && options_.replica_budget->tail_bytes.load(std::memory_order_relaxed) >
                               (held_for_.empty() ? room : room - room / 8)) {
    *detail =
        absl::StrCat(Name(), ": records that other copies have not taken fill the server's ",
                     options_.replica_budget->tail_bytes_max, " bytes (--replica-tail-bytes)");
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
  if (ParkPush(state)) return;
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

// A push that came a moment too early waits here, not at its client: the shard is about to be
// active, or to learn of the epoch that the client knows already. False: it does not wait (any
// more).
bool Shard::ParkPush(PushState* state) {
  const Epoch epoch = state->segment->epoch;
  const bool early = epoch > core_.epoch() ||
                     (core_.epoch() != 0 && core_.CheckEpoch(epoch) == SegmentCode::kUnavailable);
  if (!early || options_.outlet == nullptr) return false;
  const int64_t now_ns = options_.clock->NowNs();
  if (state->waits_until_ns == 0) state->waits_until_ns = now_ns + kPushWaitNsMax;
  if (now_ns >= state->waits_until_ns || parked_pushes_.size() >= options_.parked_max) return false;
  in_flight_.fetch_add(1, std::memory_order_relaxed);
  parked_pushes_.push_back(state);
  waiting_.store(static_cast<uint32_t>(parked_.size() + parked_pushes_.size()),
                 std::memory_order_relaxed);
  options_.outlet->WaitsUntil(state->waits_until_ns);
  return true;
}

void Shard::RunParkedPushes() {
  if (parked_pushes_.empty()) return;
  std::vector<PushState*> waiting;
  waiting.swap(parked_pushes_);
  waiting_.store(static_cast<uint32_t>(parked_.size()), std::memory_order_relaxed);
  for (PushState* state : waiting) {
    in_flight_.fetch_sub(1, std::memory_order_release);
    PushNow(state);
  }
}

void Shard::ExpireWaiting() {
  in_flight_.fetch_add(1, std::memory_order_relaxed);
  strand_.Run([this] {
    RunParkedPulls();
    RunParkedPushes();
    in_flight_.fetch_sub(1, std::memory_order_release);
  });
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
