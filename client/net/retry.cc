#include "client/net/retry.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "proto/status_text.h"

namespace hotbed {

Verdict VerdictOf(v1::Code code, bool push) {
  switch (code) {
    case v1::OK:
      return Verdict::kOk;
    case v1::WRONG_EPOCH:
    case v1::UNKNOWN_SHARD:
      return Verdict::kReroute;
    case v1::RESOURCE_EXHAUSTED:
    case v1::READ_ONLY:
    case v1::UNAVAILABLE:
      return Verdict::kLater;
    case v1::GAP:
      return push ? Verdict::kGap : Verdict::kFinal;
    case v1::UNKNOWN_SESSION:
      return push ? Verdict::kOpenAgain : Verdict::kFinal;
    case v1::DEADLINE_EXCEEDED:
      // A push outlives its deadline: the pushes behind it need its sequence number.
      return push ? Verdict::kLater : Verdict::kFinal;
    default:
      return Verdict::kFinal;
  }
}

bool IsOverload(v1::Code code) {
  return code == v1::RESOURCE_EXHAUSTED || code == v1::READ_ONLY || code == v1::DEADLINE_EXCEEDED;
}

bool IsNever(const absl::Status& transport) {
  return absl::IsFailedPrecondition(transport) || absl::IsPermissionDenied(transport) ||
         absl::IsUnauthenticated(transport);
}

v1::SegmentReply RefusalOf(const v1::ReplyHeader& header) {
  v1::SegmentReply refusal;
  refusal.set_code(header.code());
  refusal.set_detail(header.detail());
  refusal.set_retry_after_ms(header.retry_after_ms());
  return refusal;
}

absl::Status StatusOf(v1::Code code, absl::string_view where, absl::string_view detail) {
  if (code == v1::OK) return absl::OkStatus();
  std::string text = absl::StrCat(where, ": ", CodeName(code), detail.empty() ? "" : ": ", detail);
  if (code == v1::FENCED) {
    absl::StrAppend(&text, " (another client opened this session name; give each trainer its own)");
  }
  return absl::Status(StatusCodeOf(code), text);
}

void RetryPolicy::CountRequest() {
  absl::MutexLock lock(&mu_);
  tokens_ = std::min(tokens_ + 1, kTokensMax);
}

int64_t RetryPolicy::DelayNs(int attempt, uint32_t retry_after_ms) {
  absl::MutexLock lock(&mu_);
  int64_t delay = retry_after_ms != 0 ? int64_t{retry_after_ms} * 1'000'000
                                      : int64_t{1'000'000} << std::clamp(attempt - 1, 0, 8);
  if (tokens_ >= 10) {
    tokens_ -= 10;
  } else {
    delay = std::min<int64_t>(delay * 8, kDelayNsMax);
  }
  return Jittered(delay);
}

int64_t RetryPolicy::SoonNs(int attempt, uint32_t retry_after_ms) {
  int64_t delay = int64_t{1'000'000} << std::clamp(attempt - 1, 0, 8);
  if (attempt <= kSoonAttempts) {
    delay = std::min(delay, attempt <= kBriefAttempts ? kBriefNsMax : kSoonNsMax);
  }
  absl::MutexLock lock(&mu_);
  return Jittered(std::max(delay, int64_t{retry_after_ms} * 1'000'000));
}

}  // namespace hotbed
