// The read half of a shard's data plane.
#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/log.h"
#include "server/shard/bag_check.h"
#include "server/shard/segment_check.h"
#include "server/shard/segment_result.h"
#include "server/shard/shard.h"

namespace hotbed {
namespace {

// Of a pull at another copy than the primary, for an LSN that is on its way there.
constexpr int64_t kPullWaitNsMax = 200'000'000;

}  // namespace

void Shard::Pull(PullWork* work, PullSegment* segment) {
  bool finished = true;
  const Strand::Outcome outcome = strand_.TryRun([&] { finished = PullNow(work, segment); },
                                                 [&] {
                                                   return [work, segment] {
                                                     if (segment->shard->PullNow(work, segment))
                                                       FinishSegment(work);
                                                   };
                                                 });
  if (outcome == Strand::Outcome::kFull) {
    RefuseSegment(segment, SegmentCode::kResourceExhausted,
                  absl::StrCat(Name(), ": ", options_.strand.queue_max, " requests wait already"));
  } else if (outcome == Strand::Outcome::kQueued) {
    return;
  }
  if (finished) FinishSegment(work);
}

SegmentCode Shard::CheckPull(const PullWork& work, const PullSegment& segment,
                             std::string* detail) {
  if (work.deadline_ns != 0 && options_.clock->NowNs() >= work.deadline_ns) {
    *detail = absl::StrCat(Name(), ": the deadline passed before the pull began");
    return SegmentCode::kDeadlineExceeded;
  }
  if (closed_ || !error_state_.ok()) {
    *detail = closed_ ? absl::StrCat(Name(), " is closing") : error();
    return RefusalCode();
  }
  const bool elsewhere = !core_.primary() && segment.epoch == core_.epoch();
  const SegmentCode code =
      elsewhere ? CheckReplicaPull(work, segment, detail) : core_.CheckEpoch(segment.epoch);
  if (code != SegmentCode::kOk) {
    if (detail->empty()) *detail = Explain(code, segment.epoch, 0, 0, 0);
    return code;
  }
  if (NeedsLease(work) && !LeaseHolds()) {
    *detail = absl::StrCat(Name(), ": a strict pull, and this server's lease has run out");
    return SegmentCode::kUnavailable;
  }
  if (segment.count == 0 || segment.count > options_.ids_max) {
    *detail = absl::StrCat(Name(), ": ", segment.count, " ids in a segment, allowed are 1 to ",
                           options_.ids_max);
    return SegmentCode::kInvalidArgument;
  }
  const bool hashed = options_.table.hashed;
  const uint32_t bad = FirstIdOutside(segment.ids, segment.count, options_.range, hashed);
  if (bad != segment.count) {
    *detail = absl::StrCat(Name(), ": id ", segment.ids[bad], " is outside of ",
                           hashed ? "buckets [" : "rows [", options_.range.first, ", ",
                           options_.range.limit, ")");
    return SegmentCode::kOutOfRange;
  }
  const BagShape shape{segment.pooling, segment.count, segment.bags, segment.weights != nullptr,
                       segment.arg_max != nullptr};
  std::string bad_bags = BagShapeError(shape, work.row_type);
  if (bad_bags.empty()) bad_bags = BagLengthError(shape, segment.bag_lengths);
  if (!bad_bags.empty()) {
    *detail = absl::StrCat(Name(), ": ", bad_bags);
    return SegmentCode::kInvalidArgument;
  }
  return SegmentCode::kOk;
}

// Alone it needs none: nobody else can have acknowledged a push (DECISIONS W6). A learner in the
// acknowledging set can, as a member of a later epoch that this server has not heard of: found by
// the simulation (JoinersNeedNoLease).
bool Shard::NeedsLease(const PullWork& work) const {
  return work.strict && (core_.record().members.size() > 1 || core_.backup_count() > 0);
}

bool Shard::LeaseHolds() const {
  return options_.outlet != nullptr &&
         options_.clock->NowNs() <
             options_.replica_budget->lease_until_ns.load(std::memory_order_acquire);
}

SegmentCode Shard::CheckReplicaPull(const PullWork& work, const PullSegment&,
                                    std::string* detail) const {
  const ShardRecord& record = core_.record();
  const auto names = [this](const std::vector<Member>& members) {
    return std::find(members.begin(), members.end(), self_) != members.end();
  };
  if (work.strict || (!names(record.members) && !names(record.learners))) {
    return SegmentCode::kWrongEpoch;
  }
  if (guard_lsn_ != 0 || !core_.serves_reads()) {
    *detail = absl::StrCat(Name(), ": this copy has not caught up yet; another one has");
    return SegmentCode::kUnavailable;
  }
  const int64_t silent_ns = options_.clock->NowNs() - heard_ns_;
  if (work.staleness_ms_max != 0 && silent_ns > work.staleness_ms_max * int64_t{1'000'000}) {
    *detail = absl::StrCat(Name(), ": nothing heard from the primary for ", silent_ns / 1'000'000,
                           " ms, asked for were at most ", work.staleness_ms_max);
    return SegmentCode::kUnavailable;
  }
  return SegmentCode::kOk;
}

// What the pull has to wait for is on its way, or will never come. False: it does not wait.
bool Shard::Park(PullWork* work, PullSegment* segment, std::string* detail, SegmentCode* code) {
  int64_t until_ns = 0;
  if (core_.primary()) {
    if (segment->lsn_min > core_.last_lsn()) {
      *code = SegmentCode::kUnavailable;
      *detail = absl::StrCat(Name(), ": LSN ", segment->lsn_min, " asked for, the log ends at ",
                             core_.last_lsn());
      return false;
    }
  } else {
    const int64_t now_ns = options_.clock->NowNs();
    until_ns = segment->waits_until_ns;
    if (until_ns == 0) segment->waits_until_ns = until_ns = now_ns + kPullWaitNsMax;
    if (now_ns >= until_ns) {
      *code = SegmentCode::kUnavailable;
      *detail = absl::StrCat(Name(), ": LSN ", segment->lsn_min, " asked for, this copy is at ",
                             core_.applied_lsn(), "; another one may be further");
      return false;
    }
    options_.outlet->WaitsUntil(until_ns);
  }
  if (parked_.size() >= options_.parked_max) {
    *code = SegmentCode::kResourceExhausted;
    *detail = absl::StrCat(Name(), ": ", options_.parked_max, " pulls wait for an LSN");
    return false;
  }
  in_flight_.fetch_add(1, std::memory_order_relaxed);
  parked_.push_back({work, segment});
  waiting_.store(static_cast<uint32_t>(parked_.size() + parked_pushes_.size()),
                 std::memory_order_relaxed);
  return true;
}

// How far the rows have to be. Up to guard_lsn_ they may be ahead of the log.
Lsn Shard::LsnToSee(const PullWork& work, PullSegment* segment) const {
  if (work.strict && !std::exchange(segment->waits_for_commit, true)) {
    segment->lsn_min = std::max(segment->lsn_min, core_.commit_lsn());
  }
  const Lsn lsn_min = std::max(segment->lsn_min, guard_lsn_);
  // What an earlier epoch acknowledged is in the log of a new primary, and perhaps not yet in its
  // rows (the simulation's StrictBeforeApplied): its sender reads it all the same.
  if (core_.primary()) return std::max(lsn_min, core_.inherited_lsn());
  // Of a copy: what its primary had committed when it was last heard of.
  return work.staleness_ms_max == 0 ? lsn_min : std::max(lsn_min, core_.leader_commit());
}

bool Shard::PullNow(PullWork* work, PullSegment* segment) {
  std::string detail;
  const SegmentCode code = CheckPull(*work, *segment, &detail);
  segment->result.epoch = core_.epoch();
  segment->result.lsn = core_.applied_lsn();
  if (code != SegmentCode::kOk) {
    RefuseSegment(segment, code, std::move(detail));
    return true;
  }
  const Lsn lsn_min = LsnToSee(*work, segment);
  if (lsn_min > core_.applied_lsn()) {
    SegmentCode refusal = SegmentCode::kOk;
    if (Park(work, segment, &detail, &refusal)) return false;
    RefuseSegment(segment, refusal, std::move(detail));
    return true;
  }
  rows_pulled_.store(rows_pulled_.load(std::memory_order_relaxed) + segment->count,
                     std::memory_order_relaxed);
  RowReads reads;
  reads.ids = segment->ids;
  reads.count = segment->count;
  reads.type = work->row_type;
  reads.rows = segment->rows;
  reads.flags = segment->flags;
  reads.answer = work->answer;
  reads.pooling = segment->pooling;
  reads.bag_lengths = segment->bag_lengths;
  reads.bags = segment->bags;
  reads.weights = segment->weights;
  reads.arg_max = segment->arg_max;
  in_flight_.fetch_add(1, std::memory_order_relaxed);
  // Two words of capture: the store keeps it without an allocation.
  if (!store_->Pull(reads, [work, segment](absl::Status status) {
        segment->shard->FillPullResult(*work, segment, status);
        segment->shard->in_flight_.fetch_sub(1, std::memory_order_release);
        FinishSegment(work);
      })) {
    return false;
  }
  in_flight_.fetch_sub(1, std::memory_order_release);
  FillPullResult(*work, segment, absl::OkStatus());
  return true;
}

// Epoch and LSN stay those of the pull's start: rows read early may lack what was applied while
// others were fetched, and the caller takes the LSN for what it has seen of all of them.
void Shard::FillPullResult(const PullWork& work, PullSegment* segment, const absl::Status& status) {
  if (!status.ok()) {
    // A copy that is damaged is given up where there are others, as an update that met the row
    // would have it; else the rows beside it are still served.
    const std::vector<Member>& members = core_.record().members;
    const bool others = std::any_of(members.begin(), members.end(),
                                    [this](const Member& member) { return !(member == self_); });
    const bool lost = absl::IsDataLoss(status) && others;
    RefuseSegment(segment, lost ? SegmentCode::kUnavailable : CodeOf(status),
                  absl::StrCat(Name(), ": ", status.message()));
    if ((lost || IsDeviceLost(status)) && error_state_.ok()) {
      FailEverything(status);
      if (lost) {
        HOTBED_LOG(Error) << error();
        options_.outlet->HasNews();
      }
      Drain();
    }
  } else if (work.strict && NeedsLease(work) && !LeaseHolds()) {
    RefuseSegment(segment, SegmentCode::kUnavailable,
                  absl::StrCat(Name(), ": this server's lease ran out during a strict pull"));
  }
}

void Shard::RunParkedPulls() {
  if (parked_.empty()) return;
  std::vector<ParkedPull> waiting;
  waiting.swap(parked_);
  waiting_.store(static_cast<uint32_t>(parked_pushes_.size()), std::memory_order_relaxed);
  for (const ParkedPull& pull : waiting) {
    in_flight_.fetch_sub(1, std::memory_order_release);
    if (PullNow(pull.work, pull.segment)) FinishSegment(pull.work);
  }
}

}  // namespace hotbed
