#include "server/host/shard_ticker.h"

#include "absl/time/time.h"
#include "common/log.h"
#include "common/threads/await_for.h"

namespace hotbed {
namespace {

// Shard cores count in ticks how long a follower is silent and an activation goes unanswered.
constexpr int64_t kTickOftenNs = 100 * kMillisecondNs;
constexpr int64_t kTickSeldomNs = kSecondNs;
constexpr int64_t kExpireStepNs = 10 * kMillisecondNs;  // while requests wait in shards

}  // namespace

void ShardTicker::Start() {
  thread_ = std::thread([this] { Loop(); });
}

void ShardTicker::Stop() {
  {
    absl::MutexLock lock(&mu_);
    stops_ = true;
  }
  if (thread_.joinable()) thread_.join();
}

void ShardTicker::Wake() {
  absl::MutexLock lock(&mu_);
  wake_ = true;
}

void ShardTicker::HasNews() {
  if (news_.exchange(true, std::memory_order_acq_rel)) return;
  Wake();
}

void ShardTicker::WaitsUntil(int64_t ns) {
  int64_t known_ns = waits_until_ns_.load(std::memory_order_relaxed);
  while (known_ns < ns && !waits_until_ns_.compare_exchange_weak(known_ns, ns)) {
  }
  // The thread looks often while requests wait; only the first of them has to wake it.
  if (known_ns > wiring_.clock->NowNs()) return;
  Wake();
}

void ShardTicker::Loop() {
  int64_t often_ns = 0;
  int64_t seldom_ns = 0;
  for (;;) {
    const bool expires = waits_until_ns_.load(std::memory_order_relaxed) > 0;
    {
      absl::MutexLock lock(&mu_);
      AwaitFor(&mu_, absl::Condition(this, &ShardTicker::Wakes),
               absl::Nanoseconds(expires ? kExpireStepNs : kTickOftenNs));
      if (stops_) return;
      wake_ = false;
    }
    if (const absl::Status kept = wiring_.promises->KeepAll(); !kept.ok()) {
      HOTBED_LOG_EVERY_S(Error, 10) << "cannot keep promises: " << kept;
    }
    if (news_.exchange(false, std::memory_order_acq_rel)) wiring_.reports->TellListener();
    const int64_t now_ns = wiring_.clock->NowNs();
    if (expires) ExpireWaiting(now_ns);
    if (now_ns - often_ns < kTickOftenNs) continue;
    often_ns = now_ns;
    const bool all = now_ns - seldom_ns >= kTickSeldomNs;
    if (all) seldom_ns = now_ns;
    TickShards(all);
  }
}

void ShardTicker::ExpireWaiting(int64_t now_ns) {
  int64_t until_ns = waits_until_ns_.load(std::memory_order_relaxed);
  const auto map = wiring_.directory->Hold();
  for (const auto& [id, entry] : *map) {
    if (entry.shard != nullptr && entry.shard->has_waiting()) entry.shard->ExpireWaiting();
  }
  if (now_ns > until_ns) waits_until_ns_.compare_exchange_strong(until_ns, 0);
}

void ShardTicker::TickShards(bool all) {
  const auto map = wiring_.directory->Hold();
  for (const auto& [id, entry] : *map) {
    const std::shared_ptr<Shard>& shard = entry.shard;
    if (shard == nullptr) continue;
    if (all || shard->ticks_often() || shard->read_only()) shard->Tick();
  }
  wiring_.log->Commit();
}

}  // namespace hotbed
