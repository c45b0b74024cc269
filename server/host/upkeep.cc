#include "server/host/upkeep.h"

#include <utility>

#include "absl/time/time.h"
#include "common/threads/await_for.h"

namespace hotbed {
namespace {

constexpr absl::Duration kUpkeepStep = absl::Milliseconds(100);

}  // namespace

Upkeep::Upkeep(std::vector<Chore> chores, const Clock* clock) : clock_(clock) {
  for (Chore& chore : chores) chores_.push_back({std::move(chore)});
}

void Upkeep::Start() {
  thread_ = std::thread([this] { Loop(); });
}

void Upkeep::Stop() {
  {
    absl::MutexLock lock(&mu_);
    stops_ = true;
  }
  if (thread_.joinable()) thread_.join();
}

void Upkeep::Loop() {
  for (;;) {
    {
      absl::MutexLock lock(&mu_);
      AwaitFor(&mu_, absl::Condition(&stops_), kUpkeepStep);
      if (stops_) return;
    }
    RunDue(clock_->NowNs());
  }
}

void Upkeep::RunDue(int64_t now_ns) {
  for (Timed& timed : chores_) {
    if (now_ns < timed.due_ns) continue;
    timed.due_ns = now_ns + timed.chore.interval_ns;
    timed.chore.run(now_ns);
  }
}

}  // namespace hotbed
