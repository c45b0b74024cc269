// PushEngine's reading of answers: what each code means for the part, its chain and its push; and
// what is not answered.
#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/push/push_engine.h"

namespace hotbed {
namespace {

// A shard that stops, steps down or lost its log's disk may have logged the push before it answered
// so; every other refusal says that nothing was applied.
bool LeavesItOpen(v1::Code code) { return code == v1::UNAVAILABLE || code == v1::WRONG_EPOCH; }

}  // namespace

void PushEngine::OnReply(absl::Span<const SentPart> parts, const absl::Status& transport,
                         const Reply* reply, bool written) {
  Resolutions resolutions;
  {
    absl::MutexLock lock(&mu_);
    // The server's "never" (another cluster, another wire version), said before it took anything
    // from the stream.
    const bool never = absl::IsFailedPrecondition(transport);
    v1::SegmentReply alike;  // of every segment, where they fare alike
    const v1::ReplyHeader* header = transport.ok() ? &reply->view->header : nullptr;
    const bool short_answer =
        header != nullptr && header->code() == v1::OK && reply->segment_count != parts.size();
    const bool each = header != nullptr && header->code() == v1::OK && !short_answer;
    if (header == nullptr) {
      alike.set_code(v1::UNAVAILABLE);
      alike.set_detail(std::string(transport.message()));
      context_->follower->RequestRefresh();
    } else if (short_answer) {
      alike.set_code(v1::UNAVAILABLE);
      alike.set_detail(absl::StrCat("a server answered ", reply->segment_count, " segments to ",
                                    parts.size(), " sent"));
    } else if (!each) {
      alike.set_code(header->code());
      alike.set_detail(header->detail());
    }
    if (each) context_->TakeRecords(*reply);
    std::vector<ShardChain*> answered;
    for (size_t i = 0; i < parts.size(); ++i) {
      const v1::SegmentReply& segment =
          each ? header->segments(static_cast<int>(reply->segment_first + i)) : alike;
      const bool unanswered = header == nullptr ? written && !never : short_answer;
      if (unanswered || (each && LeavesItOpen(segment.code()))) parts[i].part->maybe_applied = true;
      if (never) {
        Refused(parts[i], 0, parts[i].part->EndOf(transport), &resolutions);
      } else {
        OnSegment(parts[i], segment, &resolutions);
      }
      if (parts[i].chain->chain.ReadyToRestart()) answered.push_back(parts[i].chain);
    }
    Settle(std::move(answered), &resolutions);
  }
  Resolve(std::move(resolutions));
}

void PushEngine::Refused(const SentPart& sent, uint64_t last_seq, const absl::Status& status,
                         Resolutions* resolutions) {
  sent.chain->chain.OnRefused(sent.part, last_seq);
  Finish(sent.part, status, resolutions);
}

void PushEngine::OnSegment(const SentPart& sent, const v1::SegmentReply& segment,
                           Resolutions* resolutions) {
  ShardChain& chain = *sent.chain;
  PushPart* const part = sent.part;
  const Verdict verdict = VerdictOf(segment.code(), /*push=*/true);
  if (verdict == Verdict::kOk) {
    chain.chain.OnApplied(part, segment.last_seq());
    if (part->column_first == 0) {
      ClientCounters::Add(&context_->counters.rows_pushed, part->rows);
    }
    part->table->NoteAcknowledged(part->shard, segment.epoch(), segment.lsn());
    return Finish(part, absl::OkStatus(), resolutions);
  }
  const absl::Status status = StatusOf(segment.code(), part->Where(), segment.detail());
  if (verdict == Verdict::kFinal) {
    // What is wrong with the gradients themselves, or late, was so at the first send, which left a
    // noop.
    const bool about_content = segment.code() == v1::OUT_OF_RANGE ||
                               segment.code() == v1::NAN_GRADIENT ||
                               segment.code() == v1::STEP_OVER;
    return Refused(sent, segment.last_seq(), about_content ? status : part->EndOf(status),
                   resolutions);
  }
  ClientCounters::Add(&context_->counters.retries, 1);
  part->call->last_error = status;
  chain.retry_after_ms = std::max(chain.retry_after_ms, segment.retry_after_ms());
  chain.busy |= segment.code() == v1::RESOURCE_EXHAUSTED || segment.code() == v1::READ_ONLY ||
                segment.code() == v1::DEADLINE_EXCEEDED;
  switch (verdict) {
    case Verdict::kGap:
      return chain.chain.OnGap(part, segment.last_seq());
    case Verdict::kOpenAgain:
      return chain.chain.OnUnknownSession(part);
    case Verdict::kReroute: {
      ClientCounters::Add(&context_->counters.wrong_epoch, 1);
      const ShardRecord* const record = context_->map->Get()->Shard(chain.shard);
      const bool known = record == nullptr || record->epoch > sent.epoch;
      if (known) chain.restart_now = true;
      if (!known) context_->follower->RequestRefresh();
      break;
    }
    default:
      break;
  }
  chain.chain.OnRetry(part);
}

std::vector<PushResult> PushEngine::Unanswered(absl::Duration at_least) const {
  std::vector<PushResult> unanswered;
  {
    absl::MutexLock lock(&mu_);
    const int64_t begun_by_ns = context_->clock->NowNs() - absl::ToInt64Nanoseconds(at_least);
    for (const auto& [ticket, call] : calls_) {
      if (call->place.begun_ns <= begun_by_ns) unanswered.push_back(call->Result());
    }
  }
  std::sort(unanswered.begin(), unanswered.end(),
            [](const PushResult& a, const PushResult& b) { return a.ticket < b.ticket; });
  return unanswered;
}

}  // namespace hotbed
