#include "server/shard/request_checks.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "common/tables/session_of_lane.h"
#include "row_math/touches.h"
#include "server/shard/request/bag_check.h"
#include "server/shard/request/not_given.h"
#include "server/shard/request/segment_check.h"

namespace hotbed {
namespace {

constexpr uint32_t kSessionsPerCommitMax = 65536;
constexpr uint64_t kCommitStepMax = (uint64_t{1} << (64 - kStepShift)) - 1;

template <typename... Words>
Refusal Refuse(SegmentCode code, const ShardContext& shard, const Words&... words) {
  return {code, absl::StrCat(shard.Name(), words...)};
}

Refusal CheckDeadline(const ShardContext& shard, int64_t deadline_ns, const char* what) {
  if (deadline_ns == 0 || shard.options.clock->NowNs() < deadline_ns) return {};
  return Refuse(SegmentCode::kDeadlineExceeded, shard, ": the deadline passed before the ", what,
                " began");
}

Refusal CheckCount(const ShardContext& shard, uint32_t count) {
  if (count != 0 && count <= shard.options.ids_max) return {};
  return Refuse(SegmentCode::kInvalidArgument, shard, ": ", count,
                " ids in a segment, allowed are 1 to ", shard.options.ids_max);
}

Refusal CheckRange(const ShardContext& shard, const uint64_t* ids, uint32_t count) {
  const ShardRange& range = shard.options.range;
  const bool hashed = shard.options.table->hashed;
  const uint32_t bad = FirstIdOutside(ids, count, range, hashed);
  if (bad == count) return {};
  return Refuse(SegmentCode::kOutOfRange, shard, ": id ", ids[bad], " is outside of ",
                hashed ? "buckets [" : "rows [", range.first, ", ", range.limit, ")");
}

// A pull at a backup or learner.
Refusal CheckReplicaPull(const ShardContext& shard, const PullWork& work,
                         const PullSegment& segment, const ReplicaReads& reads) {
  const ShardCore& core = shard.core;
  if (work.strict || !core.record().Holds(core.self())) {
    return {SegmentCode::kWrongEpoch, ExplainRefusal(shard, SegmentCode::kWrongEpoch, segment)};
  }
  const bool guarded =
      reads.rows_ahead_of_log_lsn != 0 && !Mutated(CoreMutant::kRowsReadWhileGuarded);
  if (guarded || !core.serves_reads()) {
    return Refuse(SegmentCode::kUnavailable, shard,
                  ": this replica has not caught up yet; another one has");
  }
  const int64_t silent_ns = shard.options.clock->NowNs() - reads.primary_heard_ns;
  if (work.staleness_ms_max != 0 && silent_ns > work.staleness_ms_max * int64_t{1'000'000}) {
    return Refuse(SegmentCode::kUnavailable, shard, ": nothing heard from the primary for ",
                  silent_ns / 1'000'000, " ms, asked for were at most ", work.staleness_ms_max);
  }
  return {};
}

// The client checks these options too, but another client may not.
Refusal CheckTableOptions(const ShardContext& shard, const PushSegment& segment) {
  const TableSpec& table = shard.options.table;
  if (table.optimizer.kind == OptimizerKind::kNone && !segment.assign) {
    return Refuse(SegmentCode::kInvalidArgument, shard,
                  ": the table's optimizer is none, which takes no gradients; assign rows instead");
  }
  if (segment.shows && !table.optimizer.shows.kept) {
    return Refuse(
        SegmentCode::kInvalidArgument, shard,
        ": the table keeps no shows and clicks; make one with shows and touches (a hashed "
        "table)");
  }
  if (table.vocabulary != 0 && !segment.vocabulary) {
    return Refuse(SegmentCode::kInvalidArgument, shard,
                  ": the table is a vocabulary, whose rows change by look-ups alone "
                  "(hotbed.Vocabulary)");
  }
  const uint64_t* const limit = segment.ids + segment.count;
  if (table.has_padding_id && !segment.vocabulary &&
      std::find(segment.ids, limit, table.padding_id) != limit) {
    return Refuse(SegmentCode::kInvalidArgument, shard, ": id ", table.padding_id,
                  " is the table's padding id, which is zeros and takes no gradient; leave it out "
                  "of the push");
  }
  return {};
}

Refusal CheckShows(const ShardContext& shard, const PushSegment& segment, RowType type) {
  if (!segment.shows) return {};
  const auto bad = [](float value) { return !(value >= 0) || !std::isfinite(value); };
  for (uint32_t i = 0; i < segment.count; ++i) {
    const RowShows row = LoadShows(segment.gradients[i] + RowWireBytes(type, shard.dim));
    if (!bad(row.shows) && !bad(row.clicks)) continue;
    return Refuse(SegmentCode::kInvalidArgument, shard, ": id ", segment.ids[i], " has ", row.shows,
                  " shows and ", row.clicks, " clicks; allowed: finite numbers, 0 or more");
  }
  return {};
}

Refusal CheckPushRows(const ShardContext& shard, const PushSegment& segment, RowType type) {
  if (Refusal refusal = CheckCount(shard, segment.count); !refusal.ok()) return refusal;
  if (type == RowType::kInt8) {
    return Refuse(SegmentCode::kInvalidArgument, shard,
                  ": gradients of type int8; allowed are fp32, fp16, bf16");
  }
  if (segment.has_learning_rate && !std::isfinite(segment.learning_rate)) {
    return Refuse(SegmentCode::kInvalidArgument, shard, ": learning rate ", segment.learning_rate,
                  " is not finite");
  }
  if (Refusal refusal = CheckTableOptions(shard, segment); !refusal.ok()) return refusal;
  if (Refusal refusal = CheckRange(shard, segment.ids, segment.count); !refusal.ok()) {
    return refusal;
  }
  const uint32_t again = FirstRepeatedId(segment.ids, segment.count);
  if (again == segment.count) return CheckShows(shard, segment, type);
  return Refuse(SegmentCode::kInvalidArgument, shard, ": id ", segment.ids[again],
                " occurs twice in a segment; sum its gradients before the push");
}

// A delete, as CheckPushRows.
Refusal CheckDeletedRows(const ShardContext& shard, const PushSegment& segment) {
  if (shard.options.table->vocabulary != 0) {
    return Refuse(SegmentCode::kInvalidArgument, shard,
                  ": the table is a vocabulary, whose numbers stay given: no key is deleted");
  }
  if (Refusal refusal = CheckCount(shard, segment.count); !refusal.ok()) return refusal;
  if (Refusal refusal = CheckRange(shard, segment.ids, segment.count); !refusal.ok()) {
    return refusal;
  }
  const uint32_t again = FirstRepeatedId(segment.ids, segment.count);
  if (again == segment.count) return {};
  return Refuse(SegmentCode::kInvalidArgument, shard, ": id ", segment.ids[again],
                " occurs twice in a segment of deletes");
}

Refusal CheckCommit(const ShardContext& shard, const PushSegment& segment) {
  if (!shard.synchronous) {
    return Refuse(SegmentCode::kInvalidArgument, shard, ": a commit of step ", segment.commit_step,
                  ", and the table is not synchronous");
  }
  if (segment.commit_step > kCommitStepMax || segment.count > kSessionsPerCommitMax) {
    return Refuse(SegmentCode::kInvalidArgument, shard, ": a commit of step ", segment.commit_step,
                  " with ", segment.count, " sessions; the limits are ", kCommitStepMax, " and ",
                  kSessionsPerCommitMax);
  }
  const uint32_t again = FirstRepeatedId(segment.ids, segment.count);
  if (again == segment.count) return {};
  return Refuse(SegmentCode::kInvalidArgument, shard, ": the commit of step ", segment.commit_step,
                " names session ", segment.ids[again], " twice");
}

void DropNonFiniteRows(const ShardContext& shard, PushState* state) {
  for (uint32_t i = 0; i < state->count; ++i) {
    if (!IsFinite(state->gradients[i], shard.dim, state->work->gradient_type)) continue;
    state->kept_ids.push_back(state->ids[i]);
    state->kept_gradients.push_back(state->gradients[i]);
  }
  state->ids = state->kept_ids.data();
  state->gradients = state->kept_gradients.data();
  state->count = static_cast<uint32_t>(state->kept_ids.size());
}

std::string ExplainWrongEpoch(const ShardContext& shard, Epoch epoch) {
  return absl::StrCat(shard.Name(), ": epoch ", epoch, " asked for, current is ",
                      shard.core.epoch(),
                      shard.core.primary() ? "" : ", and another server is its primary");
}

// The shard is not active, or the coordinator has not given out a number of the request.
std::string ExplainNotGiven(const ShardContext& shard, const PushWork& work,
                            const PushSegment& segment) {
  const ShardCore& core = shard.core;
  if (segment.commit_step != 0 && !core.StepGiven(segment.commit_step)) {
    NotGiven::Get().step.Add(1);
    return absl::StrCat(shard.Name(), ": the coordinator has committed no step ",
                        segment.commit_step, " of this table, as far as this server has heard");
  }
  if (segment.commit_step == 0 && !core.SessionGiven(work.session, work.incarnation)) {
    NotGiven::Get().session.Add(1);
    return absl::StrCat(shard.Name(), ": the coordinator has opened no session ", work.session,
                        " incarnation ", work.incarnation,
                        ", as far as this server has heard; open it (Coordinator.OpenSession)");
  }
  return absl::StrCat(shard.Name(), ": epoch ", core.epoch(), " is not active yet");
}

std::string ExplainNoMemory(const ShardContext& shard) {
  const ShardOptions& options = shard.options;
  std::string words =
      absl::StrCat(shard.Name(), ": ", options.core.entries_max, " pushes wait, or ",
                   options.core.sessions_max, " sessions are open");
  if (options.SessionsFull()) {
    absl::StrAppend(&words, ", or the sessions of all shards fill the server's ",
                    options.session_bytes_max, " bytes (--session-bytes-max)");
  }
  if (shard.synchronous) {
    absl::StrAppend(&words, ", or pushes that wait for the end of their step fill the server's ",
                    options.staged_bytes_max, " bytes (--staged-bytes-max)");
  }
  return words;
}

}  // namespace

// --- pulls

Refusal CheckPull(const ShardContext& shard, const PullWork& work, const PullSegment& segment,
                  const ReplicaReads& reads) {
  if (Refusal refusal = CheckDeadline(shard, work.deadline_ns, "pull"); !refusal.ok()) {
    return refusal;
  }
  if (!shard.serving.serves()) return shard.serving.RefusalNow();
  const ShardCore& core = shard.core;
  if (!core.primary() && segment.epoch == core.epoch()) {
    Refusal refusal = CheckReplicaPull(shard, work, segment, reads);
    if (!refusal.ok()) return refusal;
  } else if (const SegmentCode code = core.CheckEpoch(segment.epoch); code != SegmentCode::kOk) {
    return {code, ExplainRefusal(shard, code, segment)};
  }
  if (work.strict && LacksLease(shard)) {
    return Refuse(SegmentCode::kUnavailable, shard,
                  ": a strict pull, and this server's lease has run out");
  }
  if (Refusal refusal = CheckCount(shard, segment.count); !refusal.ok()) return refusal;
  if (Refusal refusal = CheckRange(shard, segment.ids, segment.count); !refusal.ok()) {
    return refusal;
  }
  const BagShape shape{segment.pooling, segment.count, segment.bags, segment.weights != nullptr,
                       segment.arg_max != nullptr};
  std::string bad_bags = BagShapeError(shape, work.row_type);
  if (bad_bags.empty()) bad_bags = BagLengthError(shape, segment.bag_lengths);
  if (!bad_bags.empty()) {
    return Refuse(SegmentCode::kInvalidArgument, shard, ": ", bad_bags);
  }
  return {};
}

// A primary without other replicas needs no lease: nobody else can have acknowledged a push. A
// learner in the acknowledging set can, as a member of a later epoch that this server has not heard
// of (the simulator's mutant JoinersNeedNoLease).
bool LacksLease(const ShardContext& shard) {
  const ShardCore& core = shard.core;
  const bool joiners = core.backup_count() != 0 && !Mutated(CoreMutant::kJoinersNeedNoLease);
  if (core.record().members.size() <= 1 && !joiners) return false;
  const ReplicaBudget* const budget = shard.options.replica_budget;
  return budget == nullptr ||
         shard.options.clock->NowNs() >= budget->lease_until_ns.load(std::memory_order_acquire);
}

std::string ExplainRefusal(const ShardContext& shard, SegmentCode code,
                           const PullSegment& segment) {
  if (code == SegmentCode::kWrongEpoch) return ExplainWrongEpoch(shard, segment.epoch);
  return absl::StrCat(shard.Name(), ": epoch ", shard.core.epoch(), " is not active yet");
}

// --- pushes

void PrepareRows(const ShardContext& shard, PushState* state) {
  const PushSegment& segment = *state->segment;
  state->ids = segment.ids;
  state->count = segment.count;
  if (segment.commit_step != 0) {
    state->gradients = nullptr;
    state->scalars = UpdateScalars();
    state->refusal = CheckCommit(shard, segment);
    return;
  }
  if (segment.deletes) {
    state->gradients = nullptr;
    state->refusal = CheckDeletedRows(shard, segment);
    return;
  }
  const RowType type = state->work->gradient_type;
  state->gradients = segment.gradients;
  state->refusal = CheckPushRows(shard, segment, type);
  const NanPolicy policy = shard.options.table->nan_policy;
  if (!state->refusal.ok() || policy == NanPolicy::kAllow) return;
  const uint32_t row = FirstNotFinite(segment.gradients, segment.count, shard.dim, type);
  if (row == segment.count) return;
  if (policy == NanPolicy::kSkip) return DropNonFiniteRows(shard, state);
  state->refusal = Refuse(SegmentCode::kNanGradient, shard, ": the gradient of id ",
                          segment.ids[row], " is not finite, and the table's NaN policy is reject");
}

Refusal CheckPush(const ShardContext& shard, const PushState& state, bool tail_full) {
  const PushSegment& segment = *state.segment;
  const PushWork& work = *state.work;
  const ShardOptions& options = shard.options;
  if (Refusal refusal = CheckDeadline(shard, work.deadline_ns, "push"); !refusal.ok()) {
    return refusal;
  }
  if (!shard.serving.serves()) return shard.serving.RefusalNow();
  if (shard.serving.paused()) {
    return Refuse(SegmentCode::kUnavailable, shard,
                  ": its rows stand still for a checkpoint or a cut");
  }
  if (options.log_full != nullptr && options.log_full->load(std::memory_order_relaxed)) {
    return Refuse(SegmentCode::kResourceExhausted, shard,
                  ": the log is over its limit until rows are written back");
  }
  if (tail_full) {
    return Refuse(SegmentCode::kResourceExhausted, shard,
                  ": records that other replicas have not taken fill the server's ",
                  options.replica_budget->tail_bytes_max, " bytes (--replica-tail-bytes)");
  }
  if (segment.commit_step == 0 &&
      (segment.seq == 0 || work.session == 0 ||
       (!shard.core.record().lanes.empty() && work.session > kSessionMax))) {
    return Refuse(SegmentCode::kInvalidArgument, shard, ": session ", work.session, ", sequence ",
                  segment.seq, "; both count from 1, sessions of merged shards up to ",
                  kSessionMax);
  }
  return {};
}

Refusal FindLane(const ShardContext& shard, const PushSegment& segment, uint32_t* tag) {
  const ShardRecord& record = shard.core.record();
  *tag = 0;
  if (record.lanes.empty() || segment.epoch != record.epoch || segment.count == 0) return {};
  const bool hashed = shard.options.table->hashed;
  ShardRange range = record.range;
  for (const ShardLane& lane : record.lanes) {
    range.first = lane.first;
    range.limit = lane.limit;
    *tag = lane.tag;
    if (FirstIdOutside(segment.ids, 1, range, hashed) == 1) break;
  }
  const uint32_t other = FirstIdOutside(segment.ids, segment.count, range, hashed);
  if (other == segment.count) return {};
  if (FirstIdOutside(segment.ids, segment.count, record.range, hashed) != segment.count) return {};
  return Refuse(SegmentCode::kInvalidArgument, shard, ": ids ", segment.ids[0], " and ",
                segment.ids[other],
                " are in different lanes of the shard, which was merged from several; a segment "
                "has rows of one (ShardRecord.lanes)");
}

std::string ExplainRefusal(const ShardContext& shard, SegmentCode code, const PushWork& work,
                           const PushSegment& segment, uint64_t last_seq) {
  const ShardCore& core = shard.core;
  const std::string name = shard.Name();
  const uint64_t seq = segment.seq;
  switch (code) {
    case SegmentCode::kWrongEpoch:
      return ExplainWrongEpoch(shard, segment.epoch);
    case SegmentCode::kUnavailable:
      if (!shard.serving.error().ok()) {
        return absl::StrCat("whether sequence ", seq,
                            " will be applied is not known: ", shard.serving.reason());
      }
      return ExplainNotGiven(shard, work, segment);
    case SegmentCode::kUnknownSession:
      return absl::StrCat(name, ": sequence ", seq,
                          " of a session that has not opened here; send it with the open flag");
    case SegmentCode::kFenced:
      return absl::StrCat(name, ": a later incarnation of this session has opened, or it was ",
                          "silent for so long that it was forgotten here (of more than ",
                          shard.options.core.sessions_max, " sessions); open it again");
    case SegmentCode::kGap:
      return absl::StrCat(name, ": sequence ", seq, " follows ", segment.prev_seq,
                          ", the last here is ", last_seq);
    case SegmentCode::kReadOnly:
      return absl::StrCat(name, ": the log takes no appends (disk full or failing); nothing of ",
                          "sequence ", seq, " was applied");
    case SegmentCode::kResourceExhausted:
      return ExplainNoMemory(shard);
    case SegmentCode::kStepOver:
      return absl::StrCat(name, ": step ", seq >> kStepShift,
                          " was committed without this push (the last committed step is ",
                          core.committed_step(),
                          "): its trainer was given up by its group; join again");
    case SegmentCode::kCorrupt:
      return shard.serving.reason();
    default:
      return absl::StrCat(name, ": sequence ", seq, " refused");
  }
}

}  // namespace hotbed
