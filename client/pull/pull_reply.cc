// PullEngine's reading of answers: what is done, what is asked for again, whom and when.
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/pull/pull_engine.h"

namespace hotbed {
namespace {

std::string Where(const TableHandle& table, uint32_t shard) {
  return absl::StrCat("table ", table.name(), " shard ", shard);
}

bool Overloaded(v1::Code code) { return code == v1::RESOURCE_EXHAUSTED || code == v1::READ_ONLY; }

}  // namespace

// What the segments of one answer add up to.
struct PullEngine::Outcome {
  uint32_t done = 0;
  std::vector<uint32_t> resend;  // at once: the map knows better now, or the primary may
  std::vector<uint32_t> later;
  uint32_t retry_after_ms = 0;
  bool busy = false;
};

void PullEngine::OnReply(const CallPtr& call, absl::Span<const uint32_t> parts, const Sent& sent,
                         const absl::Status& transport, const Reply* reply) {
  if (!transport.ok()) return OnLost(call, parts, sent, transport);
  context_->reads->Answered(sent.to->server, context_->clock->NowNs() - sent.at_ns);
  const v1::ReplyHeader& header = reply->view->header;
  Outcome outcome;
  if (header.code() != v1::OK) {
    v1::SegmentReply refusal;
    refusal.set_code(header.code());
    refusal.set_detail(header.detail());
    for (uint32_t p : parts) OnSegment(call, p, refusal, sent, nullptr, &outcome);
  } else if (reply->segment_count != parts.size()) {
    return call->Close(absl::InternalError(absl::StrCat("a server answered ", reply->segment_count,
                                                        " segments to ", parts.size(), " asked")));
  } else {
    context_->TakeRecords(*reply);
    Answer answer{FragmentReader(reply->fragments, reply->view->rows),
                  FragmentReader(reply->fragments, reply->view->flags),
                  FragmentReader(reply->fragments, reply->view->arg_max)};
    answer.rows.Skip(std::min(answer.rows.left(), reply->row_bytes_before));
    for (uint32_t i = 0; i < parts.size(); ++i) {
      OnSegment(call, parts[i], header.segments(static_cast<int>(reply->segment_first + i)), sent,
                &answer, &outcome);
    }
  }
  if (call->closed()) return;
  if (outcome.done != 0 && call->parts_left.fetch_sub(outcome.done) == outcome.done) {
    call->scratch->join.Finish(call->scratch->pooled);
    call->Close(absl::OkStatus());
  }
  if (!outcome.resend.empty()) {
    ClientCounters::Add(&context_->counters.retries, outcome.resend.size());
    SendParts(call, outcome.resend, sent.attempt + 1);
  }
  if (!outcome.later.empty()) {
    RetryLater(call, std::move(outcome.later), sent.attempt, outcome.retry_after_ms, outcome.busy);
  }
}

bool PullEngine::AskedPrimary(const PullCall& call, uint32_t part, const Sent& sent) const {
  const ShardId shard{call.scratch->TableOf(part).id(), call.scratch->ShardOf(part)};
  return sent.map->Shard(shard)->primary.server == sent.to->server;
}

void PullEngine::OnLost(const CallPtr& call, absl::Span<const uint32_t> parts, const Sent& sent,
                        const absl::Status& transport) {
  // FailedPrecondition is the server's "never": another cluster, another wire version.
  if (absl::IsFailedPrecondition(transport)) return call->Close(transport);
  call->NoteError(transport);
  context_->reads->Failed(sent.to->server, context_->clock->NowNs());
  context_->follower->RequestRefresh();
  std::vector<uint32_t> now;
  std::vector<uint32_t> later;
  for (uint32_t p : parts) (AskedPrimary(*call, p, sent) ? later : now).push_back(p);
  if (!now.empty()) {
    ClientCounters::Add(&context_->counters.retries, now.size());
    SendParts(call, now, sent.attempt + 1);
  }
  if (!later.empty()) RetryLater(call, std::move(later), sent.attempt, 0, /*busy=*/false);
}

void PullEngine::OnSegment(const CallPtr& call, uint32_t part, const v1::SegmentReply& segment,
                           const Sent& sent, Answer* answer, Outcome* outcome) {
  if (segment.code() != v1::OK) return OnRefusal(call, part, segment, sent, outcome);
  if (answer == nullptr) return;
  if (call->lane == Lane::kPull && segment.epoch() != 0) {
    call->scratch->TableOf(part).NoteAcknowledged(call->scratch->ShardOf(part), segment.epoch(),
                                                  segment.lsn());
  }
  const PooledPart* const pooled = call->scratch->Pooled(part);
  const bool good = pooled == nullptr ? ScatterSegment(call, part, segment, answer)
                                      : ScatterPooled(call, *pooled, segment, answer);
  if (good) ++outcome->done;
}

void PullEngine::OnRefusal(const CallPtr& call, uint32_t part, const v1::SegmentReply& segment,
                           const Sent& sent, Outcome* outcome) {
  const TableHandle& table = call->scratch->TableOf(part);
  const ShardId shard{table.id(), call->scratch->ShardOf(part)};
  const Verdict verdict = VerdictOf(segment.code(), /*push=*/false);
  const absl::Status status = StatusOf(segment.code(), Where(table, shard.index), segment.detail());
  if (verdict != Verdict::kReroute && verdict != Verdict::kLater) return call->Close(status);
  call->NoteError(status);
  if (verdict == Verdict::kReroute) {
    ClientCounters::Add(&context_->counters.wrong_epoch, 1);
    const ShardRecord* const known = context_->map->Get()->Shard(shard);
    if (known == nullptr || known->IsNewerThan(*sent.map->Shard(shard))) {
      outcome->resend.push_back(part);
      return;
    }
    context_->follower->RequestRefresh();
  }
  // A copy that is behind, or no longer one: the primary is not.
  if (!AskedPrimary(*call, part, sent)) {
    outcome->resend.push_back(part);
    return;
  }
  outcome->busy |= Overloaded(segment.code());
  outcome->retry_after_ms = std::max(outcome->retry_after_ms, segment.retry_after_ms());
  outcome->later.push_back(part);
}

bool PullEngine::ScatterSegment(const CallPtr& call, uint32_t part, const v1::SegmentReply& segment,
                                Answer* answer) {
  FragmentReader* const rows = &answer->rows;
  FragmentReader* const flags = &answer->flags;
  const BatchPlan& plan = call->scratch->plan;
  const PlanPart& planned = plan.parts()[part];
  const TableGroup& group = plan.group(planned);
  const uint32_t row_bytes = RowWireBytes(call->wire_type, planned.columns);
  const uint64_t bytes = uint64_t{row_bytes} * planned.rows();
  const uint64_t flag_bytes = call->want_flags ? planned.rows() : 0;
  if (segment.row_bytes() != bytes || rows->left() < bytes || flags->left() < flag_bytes) {
    call->Close(absl::InternalError(absl::StrCat(
        Where(*group.table, planned.shard), ": answered ", segment.row_bytes(), " bytes (",
        rows->left(), " in the message), ", planned.rows(), " rows need ", bytes)));
    return false;
  }
  thread_local std::vector<const uint8_t*> pointers;
  thread_local WireScratch scratch;
  pointers.resize(planned.rows());
  scratch.Clear();
  rows->RowPointers(row_bytes, planned.rows(), pointers.data(), &scratch);
  ScatterJob job;
  job.group = &group;
  job.part = &planned;
  job.targets = call->scratch->targets;
  job.wire_type = call->wire_type;
  job.rows = pointers.data();
  job.flags = flag_bytes == 0 ? nullptr : flags->Contiguous(flag_bytes, 1, &scratch);
  job.streaming = call->streaming;
  Scatter(job);
  // A row of several slices counts once.
  if (planned.column_first == 0) {
    ClientCounters::Add(&context_->counters.rows_pulled, planned.rows());
  }
  return true;
}

}  // namespace hotbed
