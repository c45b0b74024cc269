#include "server/host/transfer/transfer_rate.h"

#include <algorithm>

#include "common/clock.h"

namespace hotbed {

void TransferRate::SetLimits(const TransferLimits& limits) {
  absl::MutexLock lock(&mu_);
  // Bytes sent under one rate are no debt under another.
  if (limits.bytes_per_s != limits_.bytes_per_s) free_ns_ = 0;
  if (limits.pull_p99_ms_max == 0) guarded_rate_ = 0;
  limits_ = limits;
}

bool TransferRate::paused() const {
  absl::MutexLock lock(&mu_);
  return limits_.paused;
}

uint64_t TransferRate::RateNow() const {
  if (guarded_rate_ == 0) return limits_.bytes_per_s;
  return limits_.bytes_per_s == 0 ? guarded_rate_ : std::min(guarded_rate_, limits_.bytes_per_s);
}

uint64_t TransferRate::rate() const {
  absl::MutexLock lock(&mu_);
  return RateNow();
}

void TransferRate::AddNumbers(StatusNumbers* numbers) const {
  absl::MutexLock lock(&mu_);
  numbers->Add("snapshot_bytes_sent", "hotbed_server_snapshot_sent_bytes_total",
               "Bytes of snapshot transfers to other servers.", bytes_total_);
  numbers->Add("transfer_rate_limit", "hotbed_server_transfer_rate_limit_bytes",
               "Bytes per second that snapshot transfers may take now; 0: no limit.", RateNow());
}

int64_t TransferRate::WaitNs(uint64_t bytes, int64_t now_ns) {
  absl::MutexLock lock(&mu_);
  bytes_total_ += bytes;
  const uint64_t rate = RateNow();
  if (rate == 0) return 0;
  const int64_t begins_ns = std::max(free_ns_, now_ns);
  free_ns_ = begins_ns + static_cast<int64_t>(static_cast<double>(bytes) / rate * kSecondNs);
  return begins_ns - now_ns;
}

void TransferRate::OnSecond(int64_t pull_p99_ns) {
  absl::MutexLock lock(&mu_);
  const uint64_t sent = bytes_total_ - bytes_before_;
  bytes_before_ = bytes_total_;
  if (limits_.pull_p99_ms_max == 0) return;
  const bool slow = pull_p99_ns > int64_t{1'000'000} * limits_.pull_p99_ms_max;
  if (slow && sent > 0) {
    const uint64_t now = guarded_rate_ == 0 ? sent : std::min(RateNow(), sent);
    guarded_rate_ = std::max(kRateMin, now / 2);
  } else if (!slow && guarded_rate_ != 0) {
    guarded_rate_ += guarded_rate_ / 4;
    const uint64_t most = limits_.bytes_per_s == 0 ? kRateMax : limits_.bytes_per_s;
    if (guarded_rate_ >= most) guarded_rate_ = 0;
  }
}

}  // namespace hotbed
