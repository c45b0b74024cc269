#include "server/host/row_sweeper.h"

#include <algorithm>
#include <utility>

#include "absl/time/time.h"
#include "common/log.h"
#include "common/threads/await_for.h"
#include "server/shard/row_policy.h"

namespace hotbed {
namespace {

constexpr absl::Duration kSweepLook = absl::Milliseconds(50);
// Between two sweeps for rows that expire: a part of the time to live, within these.
constexpr int64_t kSweepTtlPart = 8;
constexpr int64_t kSweepPauseNsMin = 250 * kMillisecondNs;
constexpr int64_t kSweepPauseNsMax = 300 * kSecondNs;
constexpr int64_t kSweepStepsPauseNs = 2 * kSecondNs;
// And so many times as long as the last one took.
constexpr int64_t kSweepDurations = 4;
constexpr int64_t kSweepAfterErrorNs = kSecondNs;
// Space is given back for so many deleted bytes, if they are this part of those left; by then, the
// deletions have reached the spill tier.
constexpr uint64_t kCompactBytesMin = 16ull << 20;
constexpr uint64_t kCompactPart = 4;
constexpr int64_t kCompactAfterNs = 5 * kSecondNs;

// A part of the time to live, and of the period of shows where rows go by their score.
int64_t SweepPauseNs(const LifeParams& life, const ShowParams& shows) {
  int64_t pause_ns = kSweepPauseNsMax;
  const auto within = [&pause_ns](uint64_t seconds) {
    const auto capped = static_cast<int64_t>(std::min<uint64_t>(seconds, 1u << 30));
    pause_ns = std::min(pause_ns, std::clamp(capped * kSecondNs / kSweepTtlPart, kSweepPauseNsMin,
                                             kSweepPauseNsMax));
  };
  if (life.ttl_s != 0) within(life.ttl_s);
  if (life.score.least > 0) within(shows.period_s);
  return life.ttl_steps != 0 ? std::min(pause_ns, kSweepStepsPauseNs) : pause_ns;
}

}  // namespace

void RowSweeper::Start() {
  thread_ = std::thread([this] { Loop(); });
}

void RowSweeper::Stop() {
  {
    absl::MutexLock lock(&mu_);
    stops_ = true;
  }
  if (thread_.joinable()) thread_.join();
}

bool RowSweeper::Stops() {
  absl::MutexLock lock(&mu_);
  return stops_;
}

void RowSweeper::Loop() {
  for (;;) {
    {
      absl::MutexLock lock(&mu_);
      AwaitFor(&mu_, absl::Condition(&stops_), kSweepLook);
      if (stops_) return;
    }
    Run();
  }
}

void RowSweeper::Run() {
  const auto shards = directory_->Shards();
  if (seen_.lock() != shards) {  // a server has many shards, and few tables keep touches
    seen_ = shards;
    living_.clear();
    for (size_t i = 0; i < shards->size(); ++i) {
      if ((*shards)[i]->row_sweep() != nullptr) living_.push_back(i);
    }
  }
  absl::flat_hash_map<ShardId, Swept> kept;
  for (const size_t i : living_) {
    const std::shared_ptr<Shard>& shard = (*shards)[i];
    if (!shard->primary() || !shard->active()) continue;
    Swept& last = kept[shard->id()];
    if (const auto it = last_.find(shard->id()); it != last_.end()) last = it->second;
    if (IsDue(shard.get(), last, clock_->NowNs())) Sweep(shard.get(), &last);
    if (last.compact_ns != 0 && clock_->NowNs() >= last.compact_ns) Compact(*shard, &last);
    if (Stops()) return;
  }
  last_ = std::move(kept);
}

void RowSweeper::Compact(const Shard& shard, Swept* last) {
  last->deleted = 0;
  last->compact_ns = 0;
  const absl::Status compacted = tiers_->CompactShard(shard.spilled());
  if (compacted.ok()) return;
  HOTBED_LOG_EVERY_S(Warning, 10) << "cannot give back the disk space of deleted rows: "
                                  << compacted;
}

bool RowSweeper::IsDue(Shard* shard, const Swept& last, int64_t now_ns) const {
  const LifeParams life = shard->row_sweep()->life();
  if (now_ns < last.again_ns || !life.TakesRows()) return false;
  if (const uint64_t limit = shard->row_sweep()->RowsMax(); limit != 0) {
    uint64_t rows = 0;
    const bool known = shard->EstimateRows(&rows);
    if (!known || rows > limit) return true;
  }
  if (!life.Expires() || now_ns < last.next_ns) return false;
  // Steps pass by pushes alone.
  return life.ttl_s != 0 || life.score.least > 0 || shard->rows_pushed() != last.pushed;
}

void RowSweeper::Sweep(Shard* shard, Swept* last) {
  const int64_t begun_ns = clock_->NowNs();
  last->pushed = shard->rows_pushed();
  int64_t worked_from_ns = begun_ns;
  const auto go_on = [&]() -> absl::Status {
    if (Stops()) return absl::AbortedError("this server is stopping");
    const int64_t now_ns = clock_->NowNs();
    constexpr int64_t kRestAfterNs = kMillisecondNs;
    if (now_ns - worked_from_ns >= kRestAfterNs) {
      clock_->SleepNs(now_ns - worked_from_ns);
      worked_from_ns = clock_->NowNs();
    }
    return absl::OkStatus();
  };
  const absl::StatusOr<SweptRows> swept = shard->row_sweep()->Sweep(go_on);
  const int64_t ended_ns = clock_->NowNs();
  if (!swept.ok()) {
    last->again_ns = ended_ns + kSweepAfterErrorNs;
    if (!absl::IsAborted(swept.status()) && !absl::IsUnavailable(swept.status())) {
      HOTBED_LOG_EVERY_S(Warning, 10) << "cannot look for rows to delete: " << swept.status();
    }
    return;
  }
  last->deleted += swept->expired + swept->evicted;
  const uint64_t left = swept->rows - std::min(swept->rows, swept->expired + swept->evicted);
  const uint64_t bytes = last->deleted * shard->spilled().record_bytes();
  if (last->compact_ns == 0 && bytes >= kCompactBytesMin && last->deleted >= left / kCompactPart) {
    last->compact_ns = ended_ns + kCompactAfterNs;
  }
  last->next_ns =
      ended_ns + std::max(SweepPauseNs(shard->row_sweep()->life(), shard->table().optimizer.shows),
                          kSweepDurations * (ended_ns - begun_ns));
}

}  // namespace hotbed
