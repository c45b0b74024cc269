#include "server/host/shard_ticker.h"

#include <vector>

#include "absl/time/time.h"
#include "common/log.h"
#include "common/threads/await_for.h"

namespace hotbed {
namespace {

// Shard cores count in ticks how long a follower is silent and an activation goes unanswered.
constexpr int64_t kTickOftenNs = 100 * kMillisecondNs;
constexpr int64_t kTickSomeNs = kSecondNs;
constexpr size_t kSomePart = 32;  // one in this many shards is ticked per second in any case
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
  int64_t some_ns = 0;
  size_t turn = 0;
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
    TickWatched();
    if (now_ns - some_ns >= kTickSomeNs) {
      some_ns = now_ns;
      TickSome(turn++);
    }
    wiring_.log->Commit();
  }
}

void ShardTicker::ExpireWaiting(int64_t now_ns) {
  int64_t until_ns = waits_until_ns_.load(std::memory_order_relaxed);
  const auto map = wiring_.directory->Hold();
  for (const ShardId id : wiring_.watched->List()) {
    const auto entry = map->find(id);
    if (entry == map->end() || entry->second.shard == nullptr) continue;
    if (entry->second.shard->has_waiting()) entry->second.shard->ExpireWaiting();
  }
  if (now_ns > until_ns) waits_until_ns_.compare_exchange_strong(until_ns, 0);
}

// Another object may take a shard's place meanwhile, and be watched under the same id. So each
// shard is found when its turn comes, and once more after its id was taken out.
void ShardTicker::TickWatched() {
  // Not Find: this thread looks up seldom, and would keep the map until it does again.
  const auto find = [this](ShardId id) {
    const auto map = wiring_.directory->Hold();
    const auto entry = map->find(id);
    return entry == map->end() ? nullptr : entry->second.shard;
  };
  for (const ShardId id : wiring_.watched->List()) {
    if (const auto shard = find(id); shard != nullptr) {
      shard->Tick();
      if (shard->watched()) continue;
    }
    wiring_.watched->Remove(id);
    const auto since = find(id);
    if (since != nullptr && since->watched()) wiring_.watched->Add(id);
  }
}

void ShardTicker::TickSome(size_t turn) {
  const auto shards = wiring_.directory->Shards();
  for (size_t i = turn % kSomePart; i < shards->size(); i += kSomePart) {
    Shard& shard = *(*shards)[i];
    shard.Tick();
    if (shard.watched()) wiring_.watched->Add(shard.id());
  }
}

}  // namespace hotbed
