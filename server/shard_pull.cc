// The read half of a shard's data plane.
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "server/bag_check.h"
#include "server/segment_check.h"
#include "server/segment_result.h"
#include "server/shard.h"

namespace hotbed {

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
    return closed_ ? SegmentCode::kUnavailable : CodeOf(error_state_);
  }
  if (const SegmentCode code = core_.CheckEpoch(segment.epoch); code != SegmentCode::kOk) {
    *detail = Explain(code, segment.epoch, 0, 0, 0);
    return code;
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

bool Shard::PullNow(PullWork* work, PullSegment* segment) {
  std::string detail;
  const SegmentCode code = CheckPull(*work, *segment, &detail);
  segment->result.epoch = core_.epoch();
  segment->result.lsn = core_.applied_lsn();
  if (code != SegmentCode::kOk) {
    RefuseSegment(segment, code, std::move(detail));
    return true;
  }
  if (segment->lsn_min > core_.applied_lsn()) {
    if (segment->lsn_min > core_.last_lsn()) {
      RefuseSegment(segment, SegmentCode::kUnavailable,
                    absl::StrCat(Name(), ": LSN ", segment->lsn_min, " asked for, the log ends at ",
                                 core_.last_lsn()));
    } else if (parked_.size() >= options_.parked_max) {
      RefuseSegment(segment, SegmentCode::kResourceExhausted,
                    absl::StrCat(Name(), ": ", options_.parked_max, " pulls wait for an LSN"));
    } else {
      in_flight_.fetch_add(1, std::memory_order_relaxed);
      parked_.push_back({work, segment});
      return false;
    }
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
  reads.pooling = segment->pooling;
  reads.bag_lengths = segment->bag_lengths;
  reads.bags = segment->bags;
  reads.weights = segment->weights;
  reads.arg_max = segment->arg_max;
  in_flight_.fetch_add(1, std::memory_order_relaxed);
  // Two words of capture: the store keeps it without an allocation.
  if (!store_->Pull(reads, [work, segment](absl::Status status) {
        segment->shard->FillPullResult(segment, status);
        segment->shard->in_flight_.fetch_sub(1, std::memory_order_release);
        FinishSegment(work);
      })) {
    return false;
  }
  in_flight_.fetch_sub(1, std::memory_order_release);
  FillPullResult(segment, absl::OkStatus());
  return true;
}

// Epoch and LSN stay those of the pull's start: rows read early may lack what was applied while
// others were fetched, and the caller takes the LSN for what it has seen of all of them.
void Shard::FillPullResult(PullSegment* segment, const absl::Status& status) {
  if (!status.ok()) {
    RefuseSegment(segment, CodeOf(status), absl::StrCat(Name(), ": ", status.message()));
  }
}

void Shard::RunParkedPulls() {
  if (parked_.empty()) return;
  std::vector<ParkedPull> waiting;
  waiting.swap(parked_);
  for (const ParkedPull& pull : waiting) {
    in_flight_.fetch_sub(1, std::memory_order_release);
    if (PullNow(pull.work, pull.segment)) FinishSegment(pull.work);
  }
}

}  // namespace hotbed
