#include "serving/lookup_queue.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace hotbed {
namespace {

constexpr double kNewest = 1.0 / 32;  // the weight of the newest task in the rate
constexpr int64_t kRetryNsMin = 5 * kMillisecondNs;
constexpr int64_t kRetryNsMax = kSecondNs;

}  // namespace

LookupQueue::LookupQueue(int threads, uint64_t waiting_bytes_max, const Clock* clock)
    : threads_max_(threads), waiting_bytes_max_(waiting_bytes_max), clock_(*clock) {
  for (int i = 0; i < threads; ++i) threads_.emplace_back([this] { Work(); });
}

LookupQueue::~LookupQueue() {
  {
    absl::MutexLock lock(&mu_);
    stops_ = true;
  }
  for (std::thread& thread : threads_) thread.join();
}

uint64_t LookupQueue::waiting_bytes() const {
  absl::MutexLock lock(&mu_);
  return waiting_[kInference] + waiting_[kBatch];
}

int64_t LookupQueue::WaitNs(Line line) const {
  const uint64_t before = waiting_[kInference] + (line == kBatch ? waiting_[kBatch] : 0);
  return static_cast<int64_t>(static_cast<double>(before) * ns_per_byte_ / threads_max_);
}

absl::Status LookupQueue::Run(const Wanted& wanted, Task task, int64_t* retry_ns) {
  if (wanted.quick && !wanted.batch && wanted.left_ns > 0) {
    task();
    return absl::OkStatus();
  }
  const Line line = wanted.batch ? kBatch : kInference;
  {
    absl::MutexLock lock(&mu_);
    if (AnyWaits() || running_ >= std::max(1, threads_max_ / 2)) {
      const uint64_t before = waiting_[line];
      const uint64_t bytes_max = wanted.batch ? waiting_bytes_max_ / 2 : waiting_bytes_max_;
      const int64_t wait_ns = WaitNs(line);
      if (before > 0 && (before + wanted.bytes > bytes_max || 2 * wait_ns > wanted.left_ns)) {
        *retry_ns = std::clamp(wait_ns, kRetryNsMin, kRetryNsMax);
        return absl::ResourceExhaustedError(absl::StrCat(
            "lookups that wait on this server hold ", before, " of ", bytes_max, " bytes, and ",
            wait_ns / kMillisecondNs, " ms: ask another one, or again later"));
      }
      waiting_[line] += wanted.bytes;
      lines_[line].push_back({wanted.bytes, std::move(task)});
      return absl::OkStatus();
    }
    ++running_;
  }
  RunOne(wanted.bytes, &task);
  return absl::OkStatus();
}

void LookupQueue::RunOne(uint64_t bytes, Task* task) {
  const int64_t begin_ns = clock_.NowNs();
  (*task)();
  const auto taken_ns = static_cast<double>(clock_.NowNs() - begin_ns);
  absl::MutexLock lock(&mu_);
  --running_;
  const double now = taken_ns / static_cast<double>(std::max<uint64_t>(bytes, 1));
  ns_per_byte_ += (now - ns_per_byte_) * kNewest;
}

void LookupQueue::Work() {
  for (;;) {
    Waiting next;
    {
      absl::MutexLock lock(&mu_);
      const auto wakes = [this]() ABSL_SHARED_LOCKS_REQUIRED(mu_) { return stops_ || AnyWaits(); };
      mu_.Await(absl::Condition(&wakes));
      if (!AnyWaits()) return;
      const Line line = lines_[kInference].empty() ? kBatch : kInference;
      next = std::move(lines_[line].front());
      lines_[line].pop_front();
      waiting_[line] -= next.bytes;
      ++running_;
    }
    RunOne(next.bytes, &next.task);
  }
}

}  // namespace hotbed
