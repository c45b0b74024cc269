#include "server/shard/waiting_requests.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace hotbed {
namespace {

// A pull at a backup or learner, for an LSN that is on its way there.
constexpr int64_t kPullWaitNsMax = 200'000'000;
constexpr int64_t kPushWaitNsMax = 50'000'000;

}  // namespace

WaitingRequests::WaitingRequests(const ShardOptions* options, const ShardCore* core,
                                 InFlight* in_flight, RestartPull restart_pull,
                                 RestartPush restart_push)
    : options_(options),
      core_(core),
      in_flight_(in_flight),
      restart_pull_(std::move(restart_pull)),
      restart_push_(std::move(restart_push)) {}

void WaitingRequests::Count() {
  count_.store(static_cast<uint32_t>(pulls_.size() + pushes_.size()), std::memory_order_relaxed);
}

Refusal WaitingRequests::ParkPull(PullWork* work, PullSegment* segment) {
  if (core_->primary()) {
    if (segment->lsn_min > core_->last_lsn()) {
      return {SegmentCode::kUnavailable,
              absl::StrCat(options_->Name(), ": LSN ", segment->lsn_min,
                           " asked for, the log ends at ", core_->last_lsn())};
    }
  } else {
    const int64_t now_ns = options_->clock->NowNs();
    if (segment->waits_until_ns == 0) segment->waits_until_ns = now_ns + kPullWaitNsMax;
    if (now_ns >= segment->waits_until_ns) {
      return {SegmentCode::kUnavailable,
              absl::StrCat(options_->Name(), ": LSN ", segment->lsn_min,
                           " asked for, this replica is at ", core_->applied_lsn(),
                           "; another one may be further")};
    }
  }
  if (pulls_.size() >= options_->parked_max) {
    return {SegmentCode::kResourceExhausted,
            absl::StrCat(options_->Name(), ": ", options_->parked_max, " pulls wait for an LSN")};
  }
  if (segment->since_ns == 0) segment->since_ns = work->stages.NowNs();
  pulls_.push_back({work, segment, in_flight_->Begin()});
  Count();
  // After it is counted: shards that are watched and have nothing are forgotten. On a primary a
  // pull ends with the record that it waits for, not by time, even if it came to a backup.
  if (segment->waits_until_ns != 0 && !core_->primary()) {
    options_->outlet->Watch(options_->id);
    options_->outlet->WaitsUntil(segment->waits_until_ns);
  }
  return {};
}

bool WaitingRequests::IsEarly(const PushState& state) const {
  const PushSegment& segment = *state.segment;
  if (segment.epoch > core_->epoch()) return true;
  if (core_->epoch() != 0 && core_->CheckEpoch(segment.epoch) == SegmentCode::kUnavailable) {
    return true;
  }
  if (segment.commit_step != 0) return !core_->StepGiven(segment.commit_step);
  return !core_->SessionGiven(state.work->session, state.work->incarnation);
}

bool WaitingRequests::ParkPush(PushState* state) {
  if (options_->outlet == nullptr || !IsEarly(*state)) {
    if (state->waits_until_ns != 0) state->BeginStage();  // the wait has been noted
    return false;
  }
  const int64_t now_ns = options_->clock->NowNs();
  if (state->waits_until_ns == 0) {
    state->waits_until_ns = now_ns + kPushWaitNsMax;
    state->BeginStage();
  }
  if (now_ns >= state->waits_until_ns || pushes_.size() >= options_->parked_max) return false;
  pushes_.push_back({state, in_flight_->Begin()});
  Count();
  options_->outlet->Watch(options_->id);
  options_->outlet->WaitsUntil(state->waits_until_ns);
  return true;
}

void WaitingRequests::RunAllPulls() {
  std::vector<ParkedPull> waiting;
  waiting.swap(pulls_);
  Count();
  for (const ParkedPull& pull : waiting) {
    NoteStage(RequestStages::kState, pull.work, pull.segment, pull.segment->since_ns);
    restart_pull_(pull.work, pull.segment);
  }
}

void WaitingRequests::RunAllPushes() {
  std::vector<ParkedPush> waiting;
  waiting.swap(pushes_);
  Count();
  for (const ParkedPush& push : waiting) {
    PushState* const state = push.state;
    NoteStage(RequestStages::kState, state->work, state->segment, state->since_ns);
    restart_push_(state);
  }
}

}  // namespace hotbed
